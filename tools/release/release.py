#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0

"""Makes a release of the checked-out commit: release.py [--publish], in the project's folder.

Without --publish the script checks the commit, and prints its plan. With --publish the script also
builds the packages, writes their checksums, and makes the tag. The script pushes nothing.
docs/releases.md has the steps before and after.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import email
import hashlib
import pathlib
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "bindings"))

from abi_changes import differences  # noqa: E402
from c_headers import BindingsError, read_with_includes  # noqa: E402

_VERSION_FILE = "runtime/base/version.h"
_HEADER = "client/ronda.h"
_CHANGELOG = "CHANGELOG.md"
_PACKAGES = "dist"  # where `make wheel deb` puts the packages
# Copies of the headers of earlier releases. The folders' names have the ABI and the release.
_EARLIER_HEADERS = "tests/client/abi_v*/ronda.h"
_DEBS = ("ronda", "libronda0", "libronda-dev", "python3-ronda")


class ReleaseError(Exception):
    """Names the failed command, or describes what is wrong with a package or the tree."""


@dataclasses.dataclass(frozen=True)
class Release:
    """A version to release, with its notes."""

    version: str
    notes: str  # the version's section of the changelog, without its heading

    @property
    def tag(self) -> str:
        return f"v{self.version}"

    @property
    def checksums(self) -> str:
        return f"{_PACKAGES}/ronda-{self.version}.sha256"


def _output(*command: str) -> str:
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        raise ReleaseError(f"{' '.join(command)}: {result.stderr.strip()}")
    return result.stdout.strip()


def _find(pattern: str, path: str) -> str | None:
    """Returns the first group of the first match in the file."""
    found = re.search(pattern, pathlib.Path(path).read_text(), re.M)
    return found[1] if found else None


def _sections() -> list[tuple[str, str]]:
    """Returns the headings and texts of the changelog sections, newest first."""
    parts = re.split(r"^## (.*)$", pathlib.Path(_CHANGELOG).read_text(), flags=re.M)
    return [(heading.strip(), text.strip()) for heading, text in zip(parts[1::2], parts[2::2])]


def _has_entries(text: str) -> bool:
    return re.search(r"^- ", text, re.M) is not None


def _notes(version: str) -> str:
    wanted = rf"\[{re.escape(version)}\] - .*"
    return next((text for heading, text in _sections() if re.fullmatch(wanted, heading)), "")


def _is_date(text: str) -> bool:
    try:
        return datetime.date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _problems_of_changelog(version: str) -> Iterator[str]:
    sections = _sections()
    if sections and sections[0][0] == "[Unreleased]":
        if _has_entries(sections.pop(0)[1]):
            yield (
                f'{_CHANGELOG}: "Unreleased" has entries: move them below a heading'
                f' "## [{version}] - {datetime.date.today()}"'
            )
    heading = sections[0][0] if sections else "none"
    found = re.fullmatch(r"\[(.+)\] - (.+)", heading)
    if found is None or found[1] != version or not _is_date(found[2]):
        yield (
            f'{_CHANGELOG}: the newest version\'s heading is "{heading}", and {_VERSION_FILE} has'
            f" {version}: the heading of a release is [{version}] and its date, as"
            f' "[{version}] - {datetime.date.today()}"'
        )
    elif not _has_entries(sections[0][1]):
        yield f"{_CHANGELOG}: the section [{version}] has no entry: say what has changed"


def _problems_of_header(version: str) -> Iterator[str]:
    said = _find(r'/\* The version of the library, "(.*)"\. \*/', _HEADER)
    if said != version:
        yield f"{_HEADER}: its comment says version {said}, and {_VERSION_FILE} has {version}"


def _problems_of_abi() -> Iterator[str]:
    """Compares the header's declarations with those of the newest release that the tests have."""
    abi = _find(r"^#define RONDA_ABI_VERSION (\d+)$", _HEADER)
    releases = {
        tuple(int(number) for number in re.findall(r"\d+", path.parent.name)): path
        for path in pathlib.Path().glob(_EARLIER_HEADERS)
    }
    newest = max(releases, default=())
    if newest[:1] != (int(abi or 0),):
        yield f"{_HEADER}: it has ABI {abi}, and there is no tests/client/abi_v{abi} that tests it"
        return
    copy = releases[newest]
    names = differences(read_with_includes(copy), read_with_includes(pathlib.Path(_HEADER)))
    if names:
        yield (
            f"{_HEADER}: it differs from {copy} in {', '.join(names[:3])}"
            f"{', ...' * (len(names) > 3)}: add the headers and a program of this release to the"
            " tests, as step 2 of docs/releases.md says"
        )


def _problems_of_checkout(version: str) -> Iterator[str]:
    if changed := _output("git", "status", "--porcelain").splitlines():
        files = ", ".join(line.split()[-1] for line in changed[:3])
        yield f"the tree has changes ({files}{', ...' * (len(changed) > 3)}): commit or remove them"
    if (branch := _output("git", "branch", "--show-current")) != "main":
        yield f"this is the branch {branch or 'of no name'}: a release is made from main"
    if _output("git", "tag", "--list", f"v{version}"):
        yield f"the tag v{version} exists: raise kVersion in {_VERSION_FILE}"


def problems(version: str) -> list[str]:
    """Returns the reasons why the commit cannot be released as this version, one line each."""
    if re.fullmatch(r"\d+\.\d+\.\d+", version) is None:
        return [f"{_VERSION_FILE}: kVersion is {version!r}, and not MAJOR.MINOR.PATCH"]
    return [
        *_problems_of_checkout(version),
        *_problems_of_changelog(version),
        *_problems_of_header(version),
        *_problems_of_abi(),
    ]


def _version_in(path: pathlib.Path) -> str:
    """Returns the version in a package's metadata."""
    if path.suffix == ".deb":
        return _output("dpkg-deb", "-f", str(path), "Version")
    with zipfile.ZipFile(path) as wheel:
        name = next(each for each in wheel.namelist() if each.endswith(".dist-info/METADATA"))
        return str(email.message_from_bytes(wheel.read(name))["Version"])


def _find_packages(version: str) -> list[pathlib.Path]:
    """Checks the packages' version in their metadata, and returns the packages."""
    patterns = [f"ronda-{version}-*.whl", *(f"{name}_{version}_*.deb" for name in _DEBS)]
    packages = []
    for pattern in patterns:
        found = list(pathlib.Path(_PACKAGES).glob(pattern))
        if len(found) != 1:
            raise ReleaseError(f"{_PACKAGES} has {len(found)} files {pattern}, and not one")
        (path,) = found
        if (said := _version_in(path)) != version:
            raise ReleaseError(f"{path} says that its version is {said}, and not {version}")
        packages.append(path)
    return packages


def _checksums(packages: list[pathlib.Path]) -> str:
    """Returns the checksums as `sha256sum` prints them in the packages' folder."""
    return "".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in packages
    )


def publish(release: Release) -> None:
    """Builds the packages, writes their checksums, and creates the tag."""
    if subprocess.run(["make", "wheel", "deb"]).returncode != 0:
        raise ReleaseError("make wheel deb: it has failed, as said above")
    packages = _find_packages(release.version)
    if _output("git", "status", "--porcelain"):
        raise ReleaseError("the tree has changed during the build: no tag is made")
    pathlib.Path(release.checksums).write_text(_checksums(packages))
    # Without --cleanup, git would remove the changelog headings as comments.
    message = f"Ronda {release.version}\n\n{release.notes}\n"
    _output("git", "tag", "--annotate", "--cleanup=verbatim", f"--message={message}", release.tag)
    for path in packages:
        print(f"made {path}")
    print(f"made {release.checksums}: sha256sum --check in {_PACKAGES} compares the packages")
    print(f"made the tag {release.tag}: git push origin {release.tag} publishes it")


def _print_plan(release: Release) -> None:
    commit = _output("git", "log", "-1", "--format=%h %s")
    print(f"Ronda {release.version} can be released, from {commit}.")
    print("make release PUBLISH=1 would")
    print(f"  run make wheel deb, and check the version in each package in {_PACKAGES}")
    print(f"  write {release.checksums}")
    print(f"  make the annotated tag {release.tag}, with the changelog's section as its text:")
    for line in release.notes.splitlines():
        print(f"    {line}".rstrip())


def main(arguments: list[str]) -> int:
    """Runs the release, and returns the exit code."""
    parser = argparse.ArgumentParser(prog="release", description=__doc__)
    parser.add_argument("--publish", action="store_true", help="build, and make the tag")
    options = parser.parse_args(arguments)
    try:
        version = _find(r'kVersion\[\] = "(.*)";', _VERSION_FILE) or ""
        found = problems(version)
        for problem in found:
            print(f"release: {problem}", file=sys.stderr)
        if found:
            return 1
        release = Release(version, _notes(version))
        if options.publish:
            publish(release)
        else:
            _print_plan(release)
    except (ReleaseError, BindingsError) as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
