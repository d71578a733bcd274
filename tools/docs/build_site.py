#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0

"""Builds the site of the documentation: build_site.py FOLDER.

The script writes the Markdown to FOLDER/pages, and the site to FOLDER/html. The pages are
README.md, docs/*.md, reference pages from headers and docstrings, and each file of the repository
that a page links to. MkDocs builds the site. It is an error if MkDocs warns, a link leads to a
heading that does not exist, or the navigation lacks a page.
"""

from __future__ import annotations

import html.parser
import os
import pathlib
import posixpath
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable

import cpp_reference
import python_reference

_ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
_LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)#\s]+)(#[^)\s]+)?(?=\))")
_FENCE = re.compile(r"(^ *```.*?^ *```$)", re.S | re.M)
_LANGUAGES = {".py": "python", ".sh": "bash", ".md": "markdown", ".txt": "text", "": "text"}


class Stage:
    """Collects the pages of the site, and writes them to the folder `pages`."""

    def __init__(self, pages: pathlib.Path) -> None:
        self._pages = pages
        self._targets: dict[str, str] = {}  # pages of files of the repository, by their paths there

    def add_all(self) -> None:
        """Adds every page."""
        headers = {header: (_ROOT / "client" / header).read_text() for header in _headers()}
        for header, (name, text) in cpp_reference.pages(headers).items():
            self._targets[f"client/{header}"] = f"reference/cpp/{name}"
            self._write(f"reference/cpp/{name}", text)
        for name, text in python_reference.pages(_ROOT / "client/python/ronda").items():
            self._write(f"reference/python/{name}", text)
        for path in sorted((_ROOT / "docs").iterdir()):
            if path.suffix == ".md":
                self._add_page(f"docs/{path.name}", path.name)
            elif path.suffix in (".svg", ".png", ".json"):
                shutil.copy(path, self._pages)
        self._add_page("README.md", "index.md")

    def _add_page(self, path: str, page: str) -> None:
        """Adds a Markdown page, and the repository files that it links to."""
        pieces = _FENCE.split((_ROOT / path).read_text())
        for i in range(0, len(pieces), 2):
            pieces[i] = _LINK.sub(lambda link: self._link(path, page, link), pieces[i])
        self._write(page, "".join(pieces))

    def _link(self, path: str, page: str, link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), link[1]))
        if not (_ROOT / target).exists():
            sys.exit(
                f"build_site.py: {path} links to {link[1]}, which is not there: correct the link"
            )
        place = posixpath.relpath(self._place(target), posixpath.dirname(page) or ".")
        return place + (link[2] or "")

    def _place(self, target: str) -> str:
        """Returns the path of the file or folder `target` in the site. Adds `target` if needed."""
        if target == "README.md":
            return "index.md"
        if target.startswith("docs/"):
            return target.removeprefix("docs/")
        if target in self._targets:
            return self._targets[target]
        is_picture = target.endswith((".svg", ".png"))
        page = f"source/{target}" if is_picture else f"source/{target.removesuffix('.md')}.md"
        self._targets[target] = page
        if is_picture:
            (self._pages / page).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(_ROOT / target, self._pages / page)
        elif target.endswith(".md"):
            self._add_page(target, page)
        else:
            self._write(page, _source_page(target))
        return page

    def _write(self, page: str, text: str) -> None:
        path = self._pages / page
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def _headers() -> list[str]:
    """Returns the headers that programs can include, as paths after #include."""
    client = _ROOT / "client"
    found = [client / "ronda.h", client / "ronda.hpp"]
    found += sorted((client / "ronda").glob("*.h*")) + sorted((client / "ronda").glob("*/*.h*"))
    return [str(path.relative_to(client)) for path in found]


def _source_page(target: str) -> str:
    """Returns a page that shows a file, or lists the files in a folder."""
    path = _ROOT / target
    files = sorted(file for file in path.iterdir() if file.is_file()) if path.is_dir() else [path]
    parts = [f"# {target}\n"]
    for file in files:
        heading = f"## {file.name}\n\n" if path.is_dir() else ""
        text = file.read_text()
        ticks = "`" * (max((len(run) for run in re.findall(r"`{3,}", text)), default=2) + 1)
        parts.append(
            f"{heading}{ticks}{_LANGUAGES.get(file.suffix, 'cpp')}\n{text.rstrip()}\n{ticks}\n"
        )
    return "\n".join(parts)


class _Anchors(html.parser.HTMLParser):
    """The anchors in an HTML page, and the anchors that its links point to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.places: set[str] = set()
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.places.add(values.get("id") or "")
        if tag == "a" and "#" in (values.get("href") or "") and ":" not in (values["href"] or ""):
            self.links.append(values["href"] or "")


def broken_anchors(site: pathlib.Path) -> list[str]:
    """Returns a line for each link within the site that points to a missing heading."""
    pages = {path: _Anchors(path.read_text()) for path in sorted(site.rglob("*.html"))}
    broken = []
    for path, page in pages.items():
        for link in page.links:
            target, _, anchor = link.partition("#")
            file = pathlib.Path(os.path.normpath(path.parent / target)) if target else path
            if anchor and (file not in pages or anchor not in pages[file].places):
                broken.append(
                    f"{path.relative_to(site)} links to {link}, but there is no such heading"
                )
    return broken


def without_a_place(pages: Iterable[str], configuration: str) -> list[str]:
    """Returns the pages that are missing from the navigation in mkdocs.yml."""
    named = set(re.findall(r"(?m)^ +- .*?([\w./]+\.md)$", configuration))
    return [page for page in pages if page not in named]


def with_reference(configuration: str, folder: str, titles: dict[str, str]) -> str:
    """Returns mkdocs.yml with the pages of `folder` added below the entry of the folder's index.

    Args:
        configuration: the text of mkdocs.yml.
        folder: a folder below the site's root.
        titles: the titles of the pages, by file name.
    """
    line = re.compile(rf"(?m)^( +)- (.+): ({folder}/index\.md)$")
    pages = "".join(f'\n\\1    - "{titles[name]}": {folder}/{name}' for name in sorted(titles))
    return line.sub(r"\1- \2:\n\1    - \3" + pages, configuration)


def _titles(folder: pathlib.Path) -> dict[str, str]:
    """Returns the heading of each page in `folder` except its index, by file name."""
    pages = [path for path in folder.glob("*.md") if path.name != "index.md"]
    return {path.name: path.read_text().split("\n")[0].strip("# `") for path in pages}


def build(folder: pathlib.Path) -> pathlib.Path:
    """Builds the site in `folder`, and returns the folder of its HTML."""
    pages, site = folder / "pages", folder / "html"
    shutil.rmtree(pages, ignore_errors=True)
    pages.mkdir(parents=True)
    Stage(pages).add_all()
    path = _ROOT / "tools/docs/mkdocs.yml"
    settings = path.read_text()
    if lost := without_a_place([path.name for path in pages.glob("*.md")], settings):
        sys.exit(f"build_site.py: add {', '.join(lost)} to a part of the navigation in {path}")
    for reference in ("reference/cpp", "reference/python"):
        settings = with_reference(settings, reference, _titles(pages / reference))
    configuration = folder / "mkdocs.yml"
    configuration.write_text(f"{settings}docs_dir: {pages}\nsite_dir: {site}\n")
    command = "mkdocs build --quiet --strict --clean --config-file".split() + [str(configuration)]
    if subprocess.run(command).returncode != 0:
        sys.exit("build_site.py: mkdocs has found errors; they stand above")
    if broken := broken_anchors(site):
        sys.exit("\n".join(["build_site.py: these links name no heading:", *broken]))
    return site


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    print(f"the site: {build(pathlib.Path(sys.argv[1]).resolve())}/index.html")
