# SPDX-License-Identifier: Apache-2.0

"""Provides small stand-ins for modules that third-party suites import, if they are not installed.

The suites use only a decorator or a base class of each module, so installing the modules is not
worthwhile.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import types
import unittest
import unittest.mock
from collections.abc import Callable
from typing import Any


def install(*names: str) -> None:
    """Makes the modules "pytest", "mock", "packaging" and "expecttest" importable.

    `pytest` is replaced even if it is installed. `pytest` marks have no effect, because unittest
    runs the suites.
    """
    makers = {"pytest": _pytest, "mock": _mock, "packaging": _packaging, "expecttest": _expecttest}
    for name in names:
        if name == "pytest" or importlib.util.find_spec(name) is None:
            sys.modules[name] = makers[name]()


def _module(name: str, **attributes: Any) -> types.ModuleType:
    module = types.ModuleType(name)
    module.__dict__.update(attributes)
    return module


def _pytest() -> types.ModuleType:
    def skip_if(condition: bool, reason: str = "") -> Callable[..., Any]:
        return unittest.skipIf(condition, reason)

    def skip(reason: str = "") -> Callable[..., Any]:
        return unittest.skip(reason)

    return _module("pytest", mark=types.SimpleNamespace(skip=skip, skipif=skip_if))


def _mock() -> types.ModuleType:
    return unittest.mock


def _packaging() -> types.ModuleType:
    def parse(version: str) -> tuple[int, ...]:
        return tuple(map(int, re.findall(r"\d+", version.partition("+")[0])))

    version = sys.modules["packaging.version"] = _module("packaging.version", parse=parse)
    return _module("packaging", version=version)


def _expecttest() -> types.ModuleType:
    return _module("expecttest", ACCEPT=False, TestCase=unittest.TestCase)
