# SPDX-License-Identifier: Apache-2.0

"""ronda_python_test: tests of the Python package, with unittest, on any number of ranks."""

# The environment for TensorFlow also has torch and jax.
_FRAMEWORKS = ["tensorflow", "torch", "paddle", "jax"]

def ronda_python_test(name, srcs, ranks = 0, needs = [], data = [], tags = [], **kwargs):
    """Runs the TestCases of `srcs` on `ranks` ranks that rondarun starts; rank 0's results are the test's.

    A failure on any rank fails the test. The interpreter is $TEST_PYTHON, or else the first one that has all modules of
    `needs`: Debian's /usr/bin/python3, then the one in PATH. Without such an interpreter the test is skipped, with a
    message. tests/python/ronda_test.py has helpers.

    Args:
      name: of the target; with a list of ranks, of a suite with a target <name>_np<ranks> for each.
      srcs: modules of test cases, *_test.py, and modules that they import, in this folder.
      ranks: 0 for a process without rondarun, a number, or a list of these.
      needs: modules that the tests import, beside the standard library: "numpy", "torch". Last "gpu", for tests of a GPU:
        where there is none, PyTorch need not be imported to find that out.
      data: files that the tests use.
      tags: as of every test. "asanonly" is added, because the interpreter is built without sanitizers, and only
        AddressSanitizer can be preloaded. The first of _FRAMEWORKS that is needed is added: tests/run_every_test.sh
        runs these targets with its newest version.
      **kwargs: passed to sh_test; the size is "medium" by default, the timeout at least "long" if a framework is
        needed.
    """
    if type(ranks) != "list":
        _test(name, srcs, ranks, needs, data, tags, **kwargs)
        return
    for count in ranks:
        _test("%s_np%d" % (name, count), srcs, count, needs, data, tags, **kwargs)
    native.test_suite(name = name, tests = ["%s_np%d" % (name, count) for count in ranks])

def _test(name, srcs, ranks, needs, data, tags, size = "medium", **kwargs):
    frameworks = [module for module in _FRAMEWORKS if module in needs]
    if frameworks and size != "enormous":
        kwargs.setdefault("timeout", "long")  # on a busy machine, the import of a framework takes a minute
    modules = [source for source in srcs if source.endswith("_test.py")]
    native.sh_test(
        name = name,
        size = size,
        srcs = ["//tests/python:run_python_test.sh"],
        args = [str(ranks), ",".join(needs) or "-"] + ["$(location %s)" % module for module in modules],
        data = srcs + data + [
            "//client/python:package",
            "//tests/python:ronda_test.py",
        ],
        tags = tags + ["asanonly"] + frameworks[:1],
        **kwargs
    )
