# SPDX-License-Identifier: Apache-2.0

"""Writes empty replacements for CUDA libraries, so that PyPI's torch for GPUs runs without CUDA.

    stand_ins.py SITE_PACKAGES

When Python loads a library, all of its undefined symbols must be found. So the script writes a
library for each soname that torch's libraries need and this machine lacks. It defines the symbols,
with the versions, that torch's libraries expect. Each of their functions reports that there is no
device. The libraries are written to torch/lib, where torch looks first.
"""

from __future__ import annotations

import collections
import ctypes
import pathlib
import re
import subprocess
import sys
import tempfile


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _needed(library: pathlib.Path) -> set[str]:
    return set(re.findall(r"\(NEEDED\).*\[(.*)\]", _output("readelf", "-dW", str(library))))


def _symbols(library: pathlib.Path, which: str) -> set[str]:
    """Returns symbols, with any @VERSION; `which` is --undefined-only or --defined-only."""
    lines = _output("nm", "-D", which, "--format=posix", str(library)).splitlines()
    return {
        name.replace("@@", "@")
        for name, kind in (line.split()[:2] for line in lines)
        if kind not in "wv"
    }


def _version_owners(library: pathlib.Path) -> dict[str, str]:
    """Returns the soname for each symbol version that `library` needs."""
    owners: dict[str, str] = {}
    soname = ""
    for line in _output("readelf", "-VW", str(library)).splitlines():
        if found := re.search(r"File: (\S+)", line):
            soname = found.group(1)
        elif found := re.search(r"Name: (\S+)", line):
            owners[found.group(1)] = soname
    return owners


def _is_on_this_machine(soname: str) -> bool:
    try:
        ctypes.CDLL(soname)
    except OSError:
        return False
    return True


def _function(name: str) -> str:
    if re.search("Error(String|Name)", name):
        return f'const char* {name}(void) {{ return "no CUDA: a stand-in"; }}\n'
    return f"long {name}(void) {{ return 100; }}\n"  # cudaErrorNoDevice


def _build(path: pathlib.Path, by_version: dict[str, set[str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder, "stand_in.c")
        script = pathlib.Path(folder, "versions")
        names = sorted(set().union(*by_version.values()))
        source.write_text("".join(_function(name) for name in names))
        blocks = [
            f"{version} {{ global: {' '.join(f'{n};' for n in sorted(names)) or '*;'} }};\n"
            for version, names in by_version.items()
            if version
        ]
        script.write_text("".join(blocks))
        versions = [f"-Wl,--version-script={script}"] if blocks else []
        _output(
            "gcc",
            "-shared",
            "-fPIC",
            "-w",
            "-fno-builtin",
            f"-Wl,-soname,{path.name}",
            *versions,
            "-o",
            str(path),
            str(source),
        )


def main(site_packages: str) -> None:
    """Writes the libraries that torch in `site_packages` lacks, and prints their names."""
    folder = pathlib.Path(site_packages, "torch", "lib")
    libraries = [path for path in folder.iterdir() if ".so" in path.name]
    own = {path.name for path in libraries}
    missing = sorted(
        name
        for name in set().union(*map(_needed, libraries)) - own
        if not _is_on_this_machine(name)
    )
    if not missing:
        return
    found: dict[str, dict[str, set[str]]] = collections.defaultdict(
        lambda: collections.defaultdict(set)
    )
    defined = set().union(*(_symbols(path, "--defined-only") for path in libraries))
    interpreter = ctypes.CDLL(None)
    for library in libraries:
        owners = _version_owners(library)
        # A symbol without a version may come from any library that `library` needs.
        any_owner = next(iter(sorted(_needed(library) & set(missing))), "")
        for symbol in _symbols(library, "--undefined-only") - defined:
            name, _, version = symbol.partition("@")
            owner = owners.get(version, "") if version else any_owner
            if owner in missing and (version or not hasattr(interpreter, name)):
                found[owner][version].add(name)
    for soname in missing:
        _build(folder / soname, found[soname])
    print("stand-ins:", *missing)


if __name__ == "__main__":
    main(*sys.argv[1:])
