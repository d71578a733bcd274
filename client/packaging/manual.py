#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0

"""Generates manual pages and bash completions from the programs' --help texts.

manual.py VERSION FOLDER PROGRAM... writes FOLDER/man1/NAME.1 and FOLDER/completions/NAME for each
program.
"""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys
from collections.abc import Iterable
from typing import NamedTuple

# Alternative names under which a program is also installed.
_OTHER_NAMES = {"rondarun": ["horovodrun"]}


class Entry(NamedTuple):
    """An option or a command, with its description."""

    term: str
    text: str

    def names(self) -> list[str]:
        """Returns the names of an option, such as both names in "-np, --num-proc N"."""
        return re.findall(r"(?:^|, )(-[\w-]+)", self.term)

    def choices(self) -> list[str]:
        """Returns the choices of a value such as none|core|numa. Words in capitals are
        placeholders.
        """
        value = self.term.rpartition(" ")[2]
        return [word for word in value.split("|") if not word.isupper()] if "|" in value else []


class Block(NamedTuple):
    """Consecutive lines without a blank line between them."""

    title: str  # without its colon; empty: none
    lines: list[str]

    def options(self) -> list[Entry]:
        """Returns the options in the block. The description of each option is indented on the lines
        below it.
        """
        text = "\n".join(self.lines)
        found = re.findall(r"^  (-.*)\n((?: {8}.*\n?)+)", text, re.M)
        return [Entry(term, re.sub(r"^ {8}", "", help_, flags=re.M)) for term, help_ in found]

    def commands(self) -> list[Entry]:
        """Returns the commands in the block. The description of each command follows on the same
        line.
        """
        found = (re.fullmatch(r"  ([a-z]+(?: [a-z]+)?)  +(\S.*)", line) for line in self.lines)
        return [Entry(each[1], each[2]) for each in found if each]


class Help:
    """The --help text of a program, or of one of its commands."""

    def __init__(self, text: str) -> None:
        usage, _, self._rest = text.partition("\n")
        self.usage = usage.partition(" ")[2]

    @property
    def blocks(self) -> list[Block]:
        """The blocks of the text, in order."""
        blocks = []
        for part in re.split(r"\n{2,}", self._rest.strip("\n")):
            lines = part.split("\n")
            has_title = len(lines) > 1 and lines[0].endswith(":") and lines[1].startswith("  ")
            title = lines.pop(0)[:-1] if has_title else ""
            blocks.append(Block(title, lines))
        return blocks

    @property
    def summary(self) -> str:
        """The first sentence of the description, formatted for the NAME line of a manual page."""
        sentence = re.split(r"[.:]\s", " ".join(self.blocks[0].lines) + " ")[0]
        return sentence[0].lower() + sentence[1:]

    @property
    def options(self) -> list[Entry]:
        """The options of all blocks."""
        return [option for block in self.blocks for option in block.options()]

    @property
    def commands(self) -> list[Entry]:
        """The commands of all blocks."""
        return [command for block in self.blocks for command in block.commands()]


def _ask(*words: str) -> Help:
    answer = subprocess.run([*words, "--help"], check=True, capture_output=True, text=True)
    return Help(answer.stdout)


def _escaped(text: str) -> str:
    """Escapes `text` so that troff prints it unchanged."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.M)


def _entries(entries: Iterable[Entry]) -> str:
    paragraphs = (
        f".TP\n\\fB{_escaped(each.term)}\\fR\n{_escaped(each.text.strip())}" for each in entries
    )
    return "\n".join([*paragraphs, ""])


def _body(help_: Help, heading: str) -> str:
    """Returns the part of the page below the synopsis. `heading` is the troff request that begins a
    titled block.
    """
    text = ""
    for block in help_.blocks:
        if block.title:
            text += f'{heading} "{_escaped(block.title)}"\n'
        if entries := block.options() or block.commands():
            others = [line for line in block.lines if not line.startswith("  ")]
            text += "".join(f".PP\n{_escaped(line)}\n" for line in others) + _entries(entries)
        elif block.lines[0].startswith(" "):
            text += ".PP\n.nf\n" + _escaped("\n".join(block.lines)) + "\n.fi\n"
        else:
            text += ".PP\n" + _escaped("\n".join(block.lines)) + "\n"
    return text


def _page(name: str, version: str, help_: Help, parts: dict[str, Help]) -> str:
    text = f'.TH {name.upper()} 1 "" "Ronda {version}" "User Commands"\n'
    text += f".SH NAME\n{name} \\- {_escaped(help_.summary)}\n"
    text += f".SH SYNOPSIS\n{_escaped(help_.usage)}\n.SH DESCRIPTION\n" + _body(help_, ".SH")
    for command, part in parts.items():
        title = _escaped(f"{name} {command}")
        text += f'.SH "{title}"\n{_escaped(part.usage)}\n' + _body(part, ".SS")
    return text


def _names(options: Iterable[Entry]) -> str:
    return " ".join(name for option in options for name in option.names())


def _completion(name: str, help_: Help, parts: dict[str, Help]) -> str:
    function = "_" + name.replace("-", "_")
    commands = " ".join(dict.fromkeys(command.term.split()[0] for command in help_.commands))
    values = []
    for option in [*help_.options, *(each for part in parts.values() for each in part.options)]:
        if option.choices():
            words = " ".join(option.choices())
            values.append(f'    {"|".join(option.names())}) words="{words}" ;;')
    options = [
        f'        -*:{command}) words="{_names(part.options)}" ;;'
        for command, part in parts.items()
    ]
    # rondactl mentions options in the descriptions of its commands.
    own = [
        _names(help_.options),
        *re.findall(r"--[a-z-]+", " ".join(each.text for each in help_.commands)),
    ]
    lines = [
        f"# Completion of {name}, made of its --help.",
        f"{function}() {{",
        "  local words",
        '  case "${COMP_WORDS[COMP_CWORD - 1]}" in',
        *values,
        "    *)",
        '      case "${COMP_WORDS[COMP_CWORD]}:${COMP_WORDS[1]}" in',
        *options,
        f'        -*) words="{" ".join(own)}" ;;',
        f'        *) ((COMP_CWORD > 1)) || words="{commands}" ;;',
        "      esac",
        "      ;;",
        "  esac",
        '  mapfile -t COMPREPLY < <(compgen -W "$words" -- "${COMP_WORDS[COMP_CWORD]}")',
        "}",
        f"complete -o bashdefault -o default -F {function} {name}",
        "",
    ]
    return "\n".join(lines)


def main(arguments: Iterable[str]) -> int:
    """Returns the exit code."""
    version, folder, *programs = arguments
    pages, completions = pathlib.Path(folder, "man1"), pathlib.Path(folder, "completions")
    pages.mkdir(parents=True, exist_ok=True)
    completions.mkdir(exist_ok=True)
    for program in programs:
        name = pathlib.Path(program).name
        help_ = _ask(program)
        parts = {}
        if any("--help" in block.title for block in help_.blocks):  # "Commands, each with a --help"
            parts = {command.term: _ask(program, command.term) for command in help_.commands}
        (pages / f"{name}.1").write_text(_page(name, version, help_, parts))
        (completions / name).write_text(_completion(name, help_, parts))
        for other in _OTHER_NAMES.get(name, []):
            (pages / f"{other}.1").write_text(f".so man1/{name}.1\n")
            (completions / other).write_text(_completion(other, help_, parts))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
