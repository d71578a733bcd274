# SPDX-License-Identifier: Apache-2.0

"""Prints the requirements of installed packages, one per line: requirements.py NAME[EXTRA]...

The output omits the named packages, torch, and the libraries that a GPU needs. PyPI's torch is
built for CUDA, and requires gigabytes of such libraries.
"""

from __future__ import annotations

import importlib.metadata
import re
import sys
from collections.abc import Iterator

from pip._vendor.packaging.requirements import Requirement

_LEFT_OUT = re.compile(r"torch$|nvidia-|cuda-|triton")


def _requirements(package: Requirement) -> Iterator[Requirement]:
    for line in importlib.metadata.requires(package.name) or []:
        each = Requirement(line)
        extras = package.extras or {""}
        if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in extras):
            yield each


def main() -> None:
    """Prints each requirement once."""
    packages = [Requirement(name) for name in sys.argv[1:]]
    there = {package.name for package in packages}
    lines = {
        f"{each.name}{each.specifier}"
        for package in packages
        for each in _requirements(package)
        if each.name not in there and not _LEFT_OUT.match(each.name)
    }
    print("\n".join(sorted(lines)))


if __name__ == "__main__":
    main()
