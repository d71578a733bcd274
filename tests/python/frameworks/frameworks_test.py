# SPDX-License-Identifier: Apache-2.0

"""Tests ronda.torch.frameworks with small modules in place of the frameworks."""

from __future__ import annotations

import unittest

from ronda_test import run

_ACCELERATE = """
    import sys
    import types

    class PartialState:
        pass

    package, state = types.ModuleType("accelerate"), types.ModuleType("accelerate.state")
    package.__version__ = "99.0"
    state.PartialState, state.DistributedType = PartialState, None
    sys.modules.update({"accelerate": package, "accelerate.state": state})
    import ronda.torch.frameworks.accelerate
"""


class FrameworksTest(unittest.TestCase):
    def test_tells_no_framework_that_the_program_has_not_imported(self) -> None:
        finished = run(
            """
            import sys
            from ronda.torch import frameworks
            frameworks.tell_imported()
            print({"accelerate", "ignite", "transformers"} & set(sys.modules))
            """
        )
        self.assertEqual((0, "set()"), (finished.code, finished.out.strip()), finished.err)

    def test_version_with_its_backends_elsewhere_is_named_and_a_way_out(self) -> None:
        finished = run(_ACCELERATE)
        self.assertEqual(1, finished.code)
        self.assertIn("ImportError: accelerate 99.0 has its list of backends in", finished.err)
        self.assertIn("RONDA_REPLACE_BACKEND=gloo", finished.err)
