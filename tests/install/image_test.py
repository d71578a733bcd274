# SPDX-License-Identifier: Apache-2.0

"""Tests images that client/packaging/image.py builds from a small base image and a small wheel."""

import gzip
import hashlib
import io
import json
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import unittest
import zipfile

_ENTRY_POINTS = "[console_scripts]\nrun = ronda:main\n"
_IMAGE = pathlib.Path("client/packaging/image.py").absolute()


def _tar(files: dict[str, bytes]) -> bytes:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return archive.getvalue()


def _write_wheel(path: pathlib.Path) -> None:
    """Writes a wheel with a module, a program, a manual page and an entry point."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, text, mode in [
            ("ronda/__init__.py", "def main():\n    return 7\n", 0o644),
            ("ronda/lib/rondarun", "#!/bin/sh\n", 0o755),
            ("ronda-1.2.data/data/share/man/man1/rondarun.1", ".TH\n", 0o644),
            ("ronda-1.2.dist-info/entry_points.txt", _ENTRY_POINTS, 0o644),
        ]:
            entry = zipfile.ZipInfo(name)
            entry.external_attr = (0o100000 | mode) << 16
            archive.writestr(entry, text)


class ImageTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.base = self.folder / "base.tar"
        self.base.write_bytes(_tar({"etc/debian_version": b"12\n"}))
        self.wheel = self.folder / "ronda-1.2-cp310-abi3-manylinux_2_34_x86_64.whl"
        _write_wheel(self.wheel)

    def make(self) -> bytes:
        arguments = [sys.executable, _IMAGE, self.base, self.wheel, self.folder / "dist"]
        subprocess.run(arguments, check=True, stdout=subprocess.DEVNULL)
        return (self.folder / "dist" / "ronda-1.2.image.tar").read_bytes()

    def files(self) -> dict[str, bytes]:
        with tarfile.open(fileobj=io.BytesIO(self.make())) as tar:
            return {m.name: tar.extractfile(m).read() for m in tar.getmembers() if m.isfile()}

    def blob(self, files: dict[str, bytes], descriptor: dict) -> bytes:
        algorithm, digest = descriptor["digest"].split(":")
        data = files[f"blobs/{algorithm}/{digest}"]
        self.assertEqual(hashlib.new(algorithm, data).hexdigest(), digest)
        self.assertEqual(descriptor["size"], len(data))
        return data

    def test_all_blobs_have_the_digests_that_refer_to_them(self):
        files = self.files()
        self.assertEqual(json.loads(files["oci-layout"]), {"imageLayoutVersion": "1.0.0"})
        [reference] = json.loads(files["index.json"])["manifests"]
        manifest = json.loads(self.blob(files, reference))
        config = json.loads(self.blob(files, manifest["config"]))
        layers = [gzip.decompress(self.blob(files, layer)) for layer in manifest["layers"]]
        self.assertEqual(layers[0], self.base.read_bytes())
        digests = [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in layers]
        self.assertEqual(config["rootfs"]["diff_ids"], digests)

    def test_docker_finds_the_same_blobs_by_name(self):
        files = self.files()
        [reference] = json.loads(files["index.json"])["manifests"]
        manifest = json.loads(self.blob(files, reference))
        [docker] = json.loads(files["manifest.json"])
        self.assertEqual(docker["RepoTags"], ["ronda:1.2"])
        for name, descriptor in zip(
            [docker["Config"], *docker["Layers"]], [manifest["config"], *manifest["layers"]]
        ):
            self.assertEqual(files[name], self.blob(files, descriptor))

    def test_the_wheel_is_installed_as_pip_would(self):
        files = self.files()
        [reference] = json.loads(files["index.json"])["manifests"]
        layer = json.loads(self.blob(files, reference))["layers"][1]
        root = self.folder / "root"
        with tarfile.open(fileobj=io.BytesIO(gzip.decompress(self.blob(files, layer)))) as tar:
            tar.extractall(root)
        self.assertTrue((root / "usr/local/share/man/man1/rondarun.1").is_file())
        [packages] = root.glob("usr/local/lib/python3*/dist-packages")
        self.assertEqual((packages / "ronda/lib/rondarun").stat().st_mode & 0o777, 0o755)
        script = root / "usr/local/bin/run"
        self.assertEqual(script.stat().st_mode & 0o777, 0o755)
        done = subprocess.run([sys.executable, script], env={"PYTHONPATH": str(packages)})
        self.assertEqual(done.returncode, 7)

    def test_the_same_input_gives_the_same_image(self):
        self.assertEqual(self.make(), self.make())


if __name__ == "__main__":
    unittest.main()
