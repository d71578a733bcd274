#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0

"""Builds the wheel of the Python package. Usage: bazel run //client/packaging:wheel -- FOLDER.

The wheel contains the shared libraries that manylinux does not guarantee. They have unique names in
the wheel, so that they do not collide with other libraries in a process. The wheel does not contain
the MPI and NVIDIA driver libraries, which the user installs.
"""

from __future__ import annotations

import base64
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable

_TAG = "cp310-abi3-manylinux_2_34_x86_64"

# pip installs a wheel with this tag only on machines that have these libraries.
_PROMISED = re.compile(
    r"(libc|libm|libdl|librt|libpthread|libutil|libgcc_s|libstdc\+\+|libz|ld-linux-x86-64)\.so\.\d+"
)
_OF_THE_USER = re.compile(r"(libmpi|libmpich|libcuda|libnvidia-ml)\.so\.\d+")

_ENTRY_POINTS = """\
[console_scripts]
rondarun = ronda.run:rondarun
horovodrun = ronda.run:rondarun
rondactl = ronda.run:rondactl
ronda-monitor = ronda.run:ronda_monitor
ronda-bench = ronda.run:ronda_bench

[torch.backends]
ronda = ronda._torch_backend:register
"""

_METADATA = """\
Metadata-Version: 2.4
Name: ronda
Version: {version}
Summary: Collective communication for synchronous data-parallel training
License-Expression: Apache-2.0
{license_files}
Requires-Python: >=3.10
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: Python :: 3
Classifier: Topic :: Scientific/Engineering
Provides-Extra: run
Requires-Dist: cloudpickle; extra == "run"
Provides-Extra: numpy
Requires-Dist: numpy; extra == "numpy"
Provides-Extra: bench
Requires-Dist: matplotlib; extra == "bench"
Provides-Extra: torch
Requires-Dist: torch>=1.13; extra == "torch"
Provides-Extra: jax
Requires-Dist: jax>=0.5.0; extra == "jax"
Provides-Extra: keras
Requires-Dist: keras>=3; extra == "keras"
Provides-Extra: tensorflow
Requires-Dist: tensorflow>=2.16; extra == "tensorflow"
Provides-Extra: paddle
Requires-Dist: paddlepaddle>=2.6; extra == "paddle"
Description-Content-Type: text/markdown

Ronda runs the collectives of data-parallel training: under the API of horovod.torch, as a backend
of torch.distributed, under the APIs of horovod.tensorflow, horovod.keras and Paddle's Fleet, for
JAX, and on NumPy arrays.

    rondarun -np 4 python train.py
"""

_WHEEL = f"""\
Wheel-Version: 1.0
Generator: ronda
Root-Is-Purelib: false
Tag: {_TAG}
"""


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _needed(file: pathlib.Path) -> list[str]:
    return _run("patchelf", "--print-needed", str(file)).split()


def _places(file: pathlib.Path) -> dict[str, pathlib.Path]:
    """Returns where the loader finds the direct and indirect dependencies of a file."""
    found = re.findall(r"(\S+) => (/\S+)", _run("ldd", str(file)))
    return {name: pathlib.Path(place) for name, place in found}


def _elf_files(package: pathlib.Path) -> list[pathlib.Path]:
    files = [package / "_native.abi3.so", *(package / "lib").iterdir()]
    return [file for file in files if file.read_bytes()[:4] == b"\x7fELF"]


class _Bundle:
    """Copies libraries into a folder, each library once."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        self._names: dict[str, str] = {}  # in the folder, by soname

    def complete(self, file: pathlib.Path, places: dict[str, pathlib.Path]) -> None:
        """Copies the libraries that `file` needs, and patches `file` and the copies so that the
        loader finds the copies.
        """
        own = {each.name for each in self._folder.iterdir()}
        for name in _needed(file):
            if name in own or _PROMISED.fullmatch(name) or _OF_THE_USER.fullmatch(name):
                continue
            if name not in places:
                raise SystemExit(f"wheel: {file.name} needs {name}, which the loader does not find")
            _run("patchelf", "--replace-needed", name, self._copy(name, places), str(file))
        is_in_folder = file.parent == self._folder
        _run("patchelf", "--set-rpath", "$ORIGIN" if is_in_folder else "$ORIGIN/lib", str(file))

    def _copy(self, name: str, places: dict[str, pathlib.Path]) -> str:
        if name not in self._names:
            data = places[name].read_bytes()
            digest = hashlib.sha256(data).hexdigest()[:8]
            self._names[name] = name.replace(".so", f"-{digest}.so", 1)
            copy = self._folder / self._names[name]
            copy.write_bytes(data)
            copy.chmod(0o755)
            _run("patchelf", "--set-soname", copy.name, str(copy))
            self.complete(copy, places)
        return self._names[name]


def _bundle(package: pathlib.Path) -> None:
    bundle = _Bundle(package / "lib")
    for file in _elf_files(package):
        places = _places(file)
        _run("strip", "--strip-unneeded", str(file))  # which may break what patchelf has written
        bundle.complete(file, places)


def _license_texts() -> dict[str, bytes]:
    """Returns Ronda's license, and the licenses of the projects in NOTICE, by file name."""
    texts = {name: pathlib.Path(name).read_bytes() for name in ("LICENSE", "NOTICE")}
    table = texts["NOTICE"].decode().partition("\nProject ")[2].splitlines()[1:]
    for package in sorted({line.split()[-1] for line in table} - {"-"}):
        copyright_file = pathlib.Path("/usr/share/doc", package, "copyright")
        if not copyright_file.is_file():
            raise SystemExit(f"wheel: {copyright_file} is not here: install Debian's {package}")
        texts[f"{package}.txt"] = copyright_file.read_bytes()
    return texts


def _record(name: str, data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(data)}"


def _write(wheel: pathlib.Path, folder: pathlib.Path, info: str) -> None:
    files = sorted(each for each in folder.rglob("*") if each.is_file())
    records = []
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for file in files:
            name = str(file.relative_to(folder))
            records.append(_record(name, file.read_bytes()))
            _add(archive, name, file.read_bytes(), file.stat().st_mode & 0o777)
        lines = "\n".join([*records, f"{info}/RECORD,,", ""])
        _add(archive, f"{info}/RECORD", lines.encode(), 0o644)


def _add(archive: zipfile.ZipFile, name: str, data: bytes, mode: int) -> None:
    """Adds a file to the archive, with the same timestamp in every build."""
    entry = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
    entry.external_attr = (0o100000 | mode) << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(entry, data, compresslevel=9)


def _describe(info: pathlib.Path, version: str) -> None:
    """Writes the metadata that pip reads, and the licenses."""
    licenses = _license_texts()
    license_files = "\n".join(f"License-File: {name}" for name in licenses)
    texts = {
        "METADATA": _METADATA.format(version=version, license_files=license_files),
        "WHEEL": _WHEEL,
        "entry_points.txt": _ENTRY_POINTS,
        "top_level.txt": "ronda\n",
    }
    (info / "licenses").mkdir(parents=True)
    for name, text in texts.items():
        (info / name).write_text(text)
    for name, data in licenses.items():
        (info / "licenses" / name).write_bytes(data)


def _version(package_file: pathlib.Path) -> str:
    version = re.search(r"^Version: (\S+)$", package_file.read_text(), re.M)
    assert version is not None
    return version[1]


def main(arguments: Iterable[str]) -> int:
    """Returns the exit code."""
    target, *others = arguments
    if others:
        print("usage: bazel run //client/packaging:wheel -- FOLDER", file=sys.stderr)
        return 2
    version = _version(pathlib.Path("client/packaging/ronda.pc"))
    # Bazel runs this script in a different folder, but a relative path refers to the caller's
    # folder.
    output = pathlib.Path(os.environ.get("BUILD_WORKING_DIRECTORY", "."), target)
    output.mkdir(parents=True, exist_ok=True)
    wheel = output / f"ronda-{version}-{_TAG}.whl"
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        shutil.copytree("client/python/package", folder, dirs_exist_ok=True)
        for each in folder.rglob("*"):
            each.chmod(each.stat().st_mode | 0o200)
        _bundle(folder / "ronda")
        info = f"ronda-{version}.dist-info"
        # pip installs these files under share/ of the environment.
        share = folder / f"ronda-{version}.data" / "data" / "share"
        shutil.copytree("client/packaging/man1", share / "man" / "man1")
        shutil.copytree("client/packaging/completions", share / "bash-completion" / "completions")
        _describe(folder / info, version)
        _write(wheel, folder, info)
    print(f"{wheel} ({wheel.stat().st_size / 1e6:.1f} MB)")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
