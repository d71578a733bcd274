#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0

"""Builds a container image from a Debian system and Ronda's wheel: image.py BASE.tar WHEEL FOLDER.

BASE.tar is the file system of a Debian system with python3, as produced by mmdebstrap. The script
needs no container engine. It writes the image to FOLDER/ronda-VERSION.image.tar, an archive with
OCI's image layout and Docker's manifest, for `podman load`, `docker load` and
`skopeo copy oci-archive:`.
"""

import configparser
import gzip
import hashlib
import io
import json
import pathlib
import re
import sys
import tarfile
import zipfile

# The folder in which Debian's python3 looks for packages that do not come from Debian.
_PACKAGES = "usr/local/lib/python3.11/dist-packages"
_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
_SCRIPT = """\
#!/usr/bin/python3
import sys

from {module} import {function}

sys.exit({function}())
"""


class _Tar:
    """A tar archive in memory whose bytes depend only on the files in it. All files belong to root
    and are dated 2020.
    """

    def __init__(self) -> None:
        self._bytes = io.BytesIO()
        self._tar = tarfile.open(fileobj=self._bytes, mode="w")
        self._folders: set[str] = set()

    def add(self, name: str, data: bytes, mode: int = 0o644) -> None:
        for folder in reversed(pathlib.PurePosixPath(name).parents):
            if str(folder) != "." and str(folder) not in self._folders:
                self._folders.add(str(folder))
                self._append(str(folder), tarfile.DIRTYPE, 0o755)
        self._append(name, tarfile.REGTYPE, mode, data)

    def _append(self, name: str, kind: bytes, mode: int, data: bytes = b"") -> None:
        member = tarfile.TarInfo(name)
        member.type, member.mode, member.size, member.mtime = kind, mode, len(data), 1577836800
        self._tar.addfile(member, io.BytesIO(data))

    def end(self) -> bytes:
        self._tar.close()
        return self._bytes.getvalue()


def wheel_layer(wheel: pathlib.Path) -> bytes:
    """Returns the files that pip would install from `wheel`, without bytecode, as a tar archive."""
    tar = _Tar()
    with zipfile.ZipFile(wheel) as archive:
        for entry in sorted(archive.infolist(), key=lambda entry: entry.filename):
            # Files under NAME.data/data/ go below the prefix; all other files go into the package
            # folder.
            name, data_files = re.subn(r"^[^/]+\.data/data/", "usr/local/", entry.filename)
            if not data_files:
                name = f"{_PACKAGES}/{name}"
            tar.add(name, archive.read(entry), entry.external_attr >> 16 & 0o777)
            if entry.filename.endswith(".dist-info/entry_points.txt"):
                for script, text in _scripts(archive.read(entry).decode()):
                    tar.add(f"usr/local/bin/{script}", text.encode(), 0o755)
    return tar.end()


def _scripts(entry_points: str) -> list[tuple[str, str]]:
    parser = configparser.ConfigParser()
    parser.read_string(entry_points)
    scripts = []
    for name, target in parser["console_scripts"].items():
        module, function = target.split(":")
        scripts.append((name, _SCRIPT.format(module=module, function=function)))
    return scripts


class _Blobs:
    """The blobs of an image, addressed by digest."""

    def __init__(self, tar: _Tar) -> None:
        self._tar = tar

    def add(self, data: bytes, kind: str) -> dict[str, object]:
        """Adds a blob, and returns the descriptor by which other blobs refer to it."""
        digest = hashlib.sha256(data).hexdigest()
        self._tar.add(f"blobs/sha256/{digest}", data)
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(data)}


def _path(descriptor: dict[str, object]) -> str:
    return "blobs/" + str(descriptor["digest"]).replace(":", "/")


def make(layers: list[bytes], name: str) -> bytes:
    """Returns an image with these layers. Each layer is an uncompressed tar archive, lowest layer
    first.
    """
    tar = _Tar()
    blobs = _Blobs(tar)
    packed = [blobs.add(gzip.compress(layer, 6, mtime=0), _LAYER) for layer in layers]
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {
            "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
            "Cmd": ["python3", "-m", "ronda.check"],
        },
        "rootfs": {
            "type": "layers",
            "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in layers],
        },
    }
    config_blob = blobs.add(_json(config), "application/vnd.oci.image.config.v1+json")
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config_blob,
        "layers": packed,
    }
    manifest_blob = blobs.add(_json(manifest), str(manifest["mediaType"]))
    manifest_blob["annotations"] = {"org.opencontainers.image.ref.name": name}
    tar.add("oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
    tar.add("index.json", _json({"schemaVersion": 2, "manifests": [manifest_blob]}))
    docker = {
        "Config": _path(config_blob),
        "RepoTags": [name],
        "Layers": [_path(layer) for layer in packed],
    }
    tar.add("manifest.json", _json([docker]))
    return tar.end()


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def main(arguments: list[str]) -> int:
    """Returns the exit code."""
    if len(arguments) != 3:
        print("usage: image.py BASE.tar WHEEL FOLDER", file=sys.stderr)
        return 2
    base, wheel, folder = map(pathlib.Path, arguments)
    version = wheel.name.split("-")[1]
    image = folder / f"ronda-{version}.image.tar"
    folder.mkdir(parents=True, exist_ok=True)
    image.write_bytes(make([base.read_bytes(), wheel_layer(wheel)], f"ronda:{version}"))
    print(f"{image} ({image.stat().st_size / 1e6:.0f} MB): podman load -i {image}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
