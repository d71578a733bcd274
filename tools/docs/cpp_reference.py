# SPDX-License-Identifier: Apache-2.0

"""Generates the reference of the C and C++ headers from their declarations and comments.

clang-format must have formatted the headers. The reference leaves out bodies of functions, private
members and the namespaces `detail`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from comment_text import fence, markdown

_STRING = r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\''
_COMMENT = r"//[^\n]*|/\*.*?\*/"
_TOKEN = re.compile(rf"{_COMMENT}|{_STRING}|[(){{}};]|\n|[^(){{}};\"'/\n]+|.", re.S)


class Item(NamedTuple):
    """Declarations that share a comment."""

    comment: str
    code: str

    def names(self) -> list[str]:
        """Returns the distinct names that the item declares."""
        plain = re.sub(_COMMENT, "", self.code, flags=re.S)
        found = [_name(statement) for statement in _statements(plain)]
        return list(dict.fromkeys(name for name in found if name))


class _Reader:
    """Reads a header, token by token."""

    def __init__(self, text: str) -> None:
        self.tokens = _TOKEN.findall(text)
        self.at = 0

    def more(self) -> bool:
        return self.at < len(self.tokens)

    def peek(self) -> str:
        return self.tokens[self.at] if self.more() else ""

    def take(self) -> str:
        self.at += 1
        return self.tokens[self.at - 1]

    def take_until(self, ends: str) -> str:
        """Consumes the text through the first token in `ends` that is not in parentheses."""
        depth, text = 0, ""
        while self.more():
            token = self.take()
            text += token
            depth += (token == "(") - (token == ")")
            if depth == 0 and token in ends:
                break
        return text

    def take_block(self) -> str:
        """Consumes the text through the brace that closes the last consumed brace."""
        depth, text = 1, ""
        while self.more() and depth:
            token = self.take()
            text += token
            depth += (token == "{") - (token == "}")
        return text

    def take_line_rest(self) -> str:
        """Consumes trailing blanks and the comment on the same line, if nothing else follows."""
        start = self.at
        text = ""
        while self.more() and self.peek() != "\n":
            token = self.take()
            text += token
            if token.strip() and not re.fullmatch(_COMMENT, token, re.S):
                self.at = start
                return ""
        return text.rstrip()


def pages(headers: dict[str, str]) -> dict[str, tuple[str, str]]:
    """Returns the reference pages by header. The key "index" is the list of pages.

    Args:
        headers: the texts of headers, by their paths after #include.

    Returns:
        The file name and text of each page.
    """
    result = {}
    index = []
    for header, text in headers.items():
        items = declarations(text)
        if not items and header.count("/") > 1:
            continue  # only parts that programs do not call
        page = header.replace("/", "_").replace(".", "_") + ".md"
        result[header] = page, _page(header, text, items)
        names = ", ".join(f"`{name}`" for item in items for name in item.names()[:1])
        index.append(f"| [`{header}`]({page}) | {names} |")
    result["index"] = (
        "index.md",
        "# C and C++\n\nThese pages are made of the headers' declarations and comments.\n\n"
        "| header | declares |\n|---|---|\n" + "\n".join(index) + "\n",
    )
    return result


def declarations(text: str) -> list[Item]:
    """Returns the public declarations in a header, in order."""
    # The reference shows macros that have a value, but no other preprocessor lines.
    text = re.sub(r"(?m)^#(?!define \w+ ).*\n", "", text)
    body = re.sub(r"(?m)^#define(?:.*\\\n)*.*\n", lambda macro: _define(macro[0]), text)
    items = _items(_Reader(body), "public")
    return [item for item in items if not re.fullmatch(r"(class|struct) \w+;", item.code)]


def _define(line: str) -> str:
    """Turns a macro into a statement, so that _Reader needs no separate case for macros."""
    return line.rstrip("\n").replace("{", "\x01").replace("}", "\x02").replace(";", "\x03") + ";\n"


def _undefine(code: str) -> str:
    code = code.replace("\x01", "{").replace("\x02", "}").replace("\x03", ";")
    return re.sub(r"(?m)(^#define[^\n]*(?:\\\n[^\n]*)*);$", r"\1", code)


def _page(header: str, text: str, items: list[Item]) -> str:
    lead = re.match(r"(?:(?://|/\*) SPDX.*\n\n)?((?://.*\n)+|/\*[\s\S]*?\*/)", text)
    parts = [f"# `{header}`\n", markdown(_plain(lead[1]) if lead else "", "cpp")]
    for item in items:
        names = item.names()
        parts.append("## " + (", ".join(f"`{name}`" for name in names[:4]) or "Others") + "\n")
        parts.append(fence(item.code, "c" if header.endswith(".h") else "cpp"))
        if item.comment:
            parts.append(markdown(_plain(item.comment), "cpp"))
    return "\n".join(parts)


def _plain(comment: str) -> str:
    """Returns a comment's text without comment markers."""
    comment = re.sub(r"(?m)^\s*//+ ?", "", comment)
    comment = re.sub(r"\A\s*/\* ?(?:-- )?|(?: ?--)?\s*\*/\s*\Z", "", comment)
    comment = re.sub(r"(?m)^ \* ?", "", comment)
    return re.sub(r"(?m)^(Errors?|Thread-safety|REQUIRES):", r"\n\1:", comment)


def _items(reader: _Reader, access: str) -> list[Item]:
    """Returns the items up to the brace that closes the current scope."""
    items: list[Item] = []
    comment, shown, apart = "", access == "public", True
    while reader.more():
        token = reader.take()
        if token == "}":
            break
        if token == "\n":
            # A comment that is followed by an empty line does not describe the next declaration.
            if reader.peek() == "\n":
                comment, apart = "", True
        elif re.fullmatch(_COMMENT, token, re.S):
            comment, apart = f"{comment}\n{token}".lstrip(), True
        elif label := re.match(r"\s*(public|protected|private):\s*$", token):
            shown = label[1] == "public"
        elif token.strip() and token != ";":
            reader.at -= 1
            inner, code = _statement(reader)
            items += inner
            if code and shown and items and not apart:
                items[-1] = items[-1]._replace(code=f"{items[-1].code}\n{code}")
            elif code and shown:
                items.append(Item(comment, code))
            comment, apart = "", False
    return items


def _statement(reader: _Reader) -> tuple[list[Item], str]:
    """Returns the items in a namespace, or the text of one declaration without function bodies."""
    head = reader.take_until("{;")
    plain = re.sub(_COMMENT, "", head, flags=re.S).strip()
    if head.endswith(";"):
        return [], _undefine(head + reader.take_line_rest())
    if match := re.match(r'(?:inline )?namespace\s*([\w:]*)|extern "C"', plain):
        inner = _items(reader, "private" if match[1] == "detail" else "public")
        return ([] if match[1] == "detail" else inner), ""
    if re.match(r"(class|struct)\s[^()=]*{$", _without_angles(plain)):
        return [], _class(reader, head)
    if _is_function(plain):
        return [], _function(reader, head)
    block = head + reader.take_block()
    return [], block + reader.take_until(";") + reader.take_line_rest()


def _without_angles(head: str) -> str:
    """Removes template arguments and attributes from the start of a declaration."""
    head, again = re.sub(r"\[\[\w+\]\] ", "", head), 1
    while again:
        head, again = re.subn(r"(template\s*)?<[^<>]*>", " ", head)
    return head.lstrip()


def _is_function(plain: str) -> bool:
    return "(" in plain and not re.match(r"typedef|enum", plain) and not plain.endswith("= {")


def _function(reader: _Reader, head: str) -> str:
    """Returns a function's declaration; `head` ends at the brace of its body or initialiser."""
    reader.take_block()
    while True:
        start = reader.at
        blanks = ""
        while reader.more() and not reader.peek().strip():
            blanks += reader.take()
        if reader.peek().startswith(","):
            reader.take_until("{")
        elif reader.peek() != "{" or "\n" in blanks:
            reader.at = start
            break
        else:
            reader.take()
        reader.take_block()
    declaration = _without_initialisers(head.rstrip("{").rstrip())
    return declaration + ";" + reader.take_line_rest()


def _without_initialisers(head: str) -> str:
    """Cuts a constructor's declaration before its member initialiser list."""
    depth = 0
    for match in re.finditer(r"[()]|:(?!:)(?<!::)", head):
        depth += (match[0] == "(") - (match[0] == ")")
        before = head[: match.start()].rstrip()
        if match[0] == ":" and depth == 0 and before.endswith((")", "noexcept")):
            return before
    return head


def _class(reader: _Reader, head: str) -> str:
    """Returns a class declaration with its public members and their comments."""
    is_class = _without_angles(head).startswith("class")
    outer = head[: len(head) - len(head.lstrip())]
    indent = outer + "  "
    members = []
    for item in _items(reader, "private" if is_class else "public"):
        lines = [line.strip() for line in item.comment.split("\n") if line.strip()]
        members.append("\n".join(indent + line for line in [*lines, item.code.lstrip()]))
    opening = head + (f"\n{outer} public:" if is_class and members else "")
    end = reader.take_until(";") + reader.take_line_rest()
    return opening + "\n" + "\n\n".join(members) + f"\n{outer}}}{end}"


def _statements(plain: str) -> list[str]:
    """Returns an item's declarations, without the text in braces."""
    depth, statements = 0, [""]
    for token in _TOKEN.findall(plain):
        depth += (token == "{") - (token == "}")
        if depth == 0 and token == ";":
            statements.append("")
        elif depth == 0 or (depth == 1 and token == "{"):
            statements[-1] += token
    return [" ".join(statement.split()) for statement in statements if statement.strip()]


def _name(statement: str) -> str:
    """Returns the name that a declaration declares."""
    patterns = (
        r"#define (\w+)",
        r"using (\w+) =",
        r"(?:class|struct|enum(?: class)?) (\w+)",
        r"typedef .*?(\w+)$",
        r".*?(operator\s?[^\s(]+|\w+)\(",
        r".*?(\w+)(?: =.*)?$",
    )
    plain = _without_angles(statement)
    return next((found[1] for pattern in patterns if (found := re.match(pattern, plain))), "")
