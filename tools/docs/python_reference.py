# SPDX-License-Identifier: Apache-2.0

"""Generates the reference of the Python package from signatures and docstrings.

It reads the sources without importing them, so PyTorch and Paddle need not be installed.
"""

from __future__ import annotations

import ast
import pathlib
import re
from typing import NamedTuple

from comment_text import fence, markdown

# Modules without __all__ that programs import or run.
_WITHOUT_A_LIST = ("ronda.check", "ronda.launch", "ronda.torch.ddp_hook", "ronda.torch.frameworks")
# Maps a public module to the module whose docstring describes the arguments shared by its
# functions.
_SHARED_ARGUMENTS = {"ronda": "ronda.reductions"}
_MARKS = ("property", "classmethod", "staticmethod")
_SECTIONS = ("Args", "Returns", "Raises", "Yields", "Attributes", "Example")


class Module(NamedTuple):
    """A module of the package."""

    name: str
    tree: ast.Module


class Package:
    """The sources of a package, by module name."""

    def __init__(self, root: pathlib.Path) -> None:
        self._modules: dict[str, Module] = {}
        for path in sorted(root.rglob("*.py")):
            parts = list(path.relative_to(root.parent).with_suffix("").parts)
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            self._modules[name] = Module(name, ast.parse(path.read_text()))

    def get(self, name: str | None) -> Module | None:
        return self._modules.get(name) if name else None

    def public_modules(self) -> list[Module]:
        """Returns _WITHOUT_A_LIST, and modules with public names that their parent lacks."""
        return [
            module
            for name, module in self._modules.items()
            if name in _WITHOUT_A_LIST or self._adds(module)
        ]

    def names(self, module: Module) -> list[str]:
        """Returns the public names of `module`: its __all__, or its functions and classes."""
        listed = _assigned(module.tree, "__all__")
        if listed is None:
            nodes = [
                node
                for node in module.tree.body
                if isinstance(node, (ast.FunctionDef, ast.ClassDef))
            ]
            return [
                node.name
                for node in nodes
                if not node.name.startswith("_") and ast.get_docstring(node)
            ]
        names = []
        for element in listed.elts if isinstance(listed, (ast.List, ast.Tuple)) else []:
            if isinstance(element, ast.Starred) and isinstance(element.value, ast.Attribute):
                names += self.names(
                    self._neighbour(module, ast.unparse(element.value.value))
                )  # *mpi_ops.__all__
            elif isinstance(element, ast.Constant):
                names.append(element.value)
        return names

    def _adds(self, module: Module) -> bool:
        if "._" in module.name or _assigned(module.tree, "__all__") is None:
            return False
        parent = self._modules.get(module.name.rpartition(".")[0])
        return parent is None or not set(self.names(module)) <= set(self.names(parent))

    def _neighbour(self, module: Module, name: str) -> Module:
        """Returns the module that `module` imported as `name`. This is the nearest module with this
        name, in `module` itself or in an enclosing package.
        """
        parts = module.name.split(".")
        places = (".".join([*parts[:n], name]) for n in range(len(parts), 0, -1))
        return next(self._modules[place] for place in places if place in self._modules)

    def find(self, module: Module, name: str, seen: frozenset[str] = frozenset()) -> ast.AST | None:
        """Returns the definition of `name`, which `module` may have imported; None for a module."""
        if module.name in seen:
            return None  # modules that import each other
        for node in module.tree.body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name:
                return node
            if isinstance(node, ast.ImportFrom):
                if node.module not in self._modules:  # a module of another package
                    if any(name == (alias.asname or alias.name) for alias in node.names):
                        return node
                    continue
                for alias in node.names:
                    if name == (alias.asname or alias.name) or alias.name == "*":
                        original = name if alias.name == "*" else alias.name
                        if found := self.find(
                            self._modules[node.module], original, seen | {module.name}
                        ):
                            return found
            if isinstance(node, ast.Assign) and any(
                _is_name(target, name) for target in node.targets
            ):
                value = node.value
                return (isinstance(value, ast.Name) and self.find(module, value.id, seen)) or node
            if isinstance(node, ast.AnnAssign) and _is_name(node.target, name):
                return node
        return None


def pages(root: pathlib.Path) -> dict[str, str]:
    """Returns the reference pages by file name, for the package in the folder `root`."""
    package = Package(root)
    result = {}
    index = []
    for module in package.public_modules():
        names = package.names(module)
        page = module.name.replace(".", "_") + ".md"
        result[page] = _page(package, module)
        summary = (ast.get_docstring(module.tree) or "").split("\n\n")[0].replace("\n", " ")
        index.append(
            f"| [`{module.name}`]({page}) | {len(names)} | {markdown(summary, 'python').strip()} |"
        )
    result["index.md"] = (
        "# Python\n\nThese pages are made of the package's signatures and docstrings.\n\n"
        "| module | names | |\n|---|---|---|\n" + "\n".join(index) + "\n"
    )
    return result


def _page(package: Package, module: Module) -> str:
    parts = [f"# `{module.name}`\n", _docstring(module.tree)]
    if shared := package.get(_SHARED_ARGUMENTS.get(module.name)):
        parts.append("## Common arguments\n\n" + _docstring(shared.tree))
    for name in package.names(module):
        node = package.find(module, name)
        if node is None:
            continue  # a module, which has its own page
        parts.append(f"## `{name}`\n")
        parts.append(_entry(node, name))
    return "\n".join(parts)


def _entry(node: ast.AST, name: str) -> str:
    if isinstance(node, ast.FunctionDef):
        return fence(_signature(node, name), "python") + "\n" + _docstring(node)
    if not isinstance(node, ast.ClassDef):
        return fence(ast.unparse(node), "python")
    parts = [fence(_class_signature(node, name), "python"), _docstring(node)]
    for member in node.body:
        if (
            isinstance(member, ast.FunctionDef)
            and not member.name.startswith("_")
            and ast.get_docstring(member)
        ):
            parts.append(f"### `{name}.{member.name}`\n")
            parts.append(
                fence(_signature(member, member.name), "python") + "\n" + _docstring(member)
            )
    return "\n".join(parts)


def _class_signature(node: ast.ClassDef, name: str) -> str:
    """Returns a class with its public fields and its constructor's arguments."""
    bases = ", ".join(ast.unparse(base) for base in node.bases)
    lines = [f"class {name}({bases}):" if bases else f"class {name}:"]
    for member in node.body:
        if isinstance(member, ast.FunctionDef) and member.name == "__init__":
            lines += ["    " + line for line in _signature(member, "__init__").split("\n")]
        elif isinstance(member, (ast.Assign, ast.AnnAssign)):
            field = ast.unparse(member)
            lines += [] if field.startswith("_") else ["    " + field]
    return "\n".join(lines if len(lines) > 1 else [lines[0] + " ..."])


def _signature(node: ast.FunctionDef, name: str) -> str:
    """Returns a function's signature, on one line or with one line per argument."""
    marks = [
        f"@{ast.unparse(mark)}\n" for mark in node.decorator_list if ast.unparse(mark) in _MARKS
    ]
    arguments = re.sub(r"(\w: [^=,]+)=", r"\1 = ", ast.unparse(node.args))
    result = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    line = f"def {name}({arguments}){result}"
    if len(line) > 88:
        split = re.sub(r", (?=[*\w]+(?::|=|,|$))(?![^\[(]*[\])])", ",\n    ", arguments)
        line = f"def {name}(\n    {split},\n){result}"
    return "".join(marks) + line


def _docstring(node: ast.AST) -> str:
    text = ast.get_docstring(node) or ""  # type: ignore[arg-type]
    pattern = rf"(?m)^({'|'.join(_SECTIONS)}|[A-Z][\w ,()*-]*):\n((?: {{4}}.*\n?|\n(?= {{4}}))+)"
    parts = []
    at = 0
    for match in re.finditer(pattern, text):
        parts.append(markdown(text[at : match.start()], "python"))
        parts.append(_section(match[1], re.sub(r"(?m)^ {4}", "", match[2])))
        at = match.end()
    parts.append(markdown(text[at:], "python"))
    return "\n".join(part for part in parts if part.strip())


def _section(title: str, text: str) -> str:
    """Turns a section such as "Args:" into a list. "Returns:" and "Yields:" remain text."""
    if not re.search(r"(?m)^[*\w., ]+: ", text) or title in ("Returns", "Yields"):
        return f"**{title}**: " + markdown(" ".join(text.split()), "python")
    entries = re.findall(r"(?m)^\S.*(?:\n {2,}.*)*", text)
    items = ""
    for entry in entries:
        term, colon, rest = entry.partition(": ")
        rest = " ".join(rest.split())
        if colon and re.fullmatch(r"[*\w., ]+", term):
            items += f"- `{term}`: {markdown(rest, 'python')}"
        else:
            items += f"- {markdown(' '.join(entry.split()), 'python')}"
    return f"**{title}**\n\n{items}"


def _assigned(tree: ast.Module, name: str) -> ast.expr | None:
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(_is_name(target, name) for target in node.targets):
            return node.value
    return None


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
