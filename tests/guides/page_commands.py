"""The commands that a page prints, in its blocks and within its sentences."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

FENCE = re.compile(r"^( *)```(.*)\n((?:.*\n)*?)\1```$", re.MULTILINE)
CODE = re.compile(r"`([^`\n]+)`")
SHELL = ("bash", "sh")
PROGRAMS = {
    *("airflow", "amtool", "apt", "cat", "cd", "curl", "docker", "eval", "export", "gcloud", "git"),
    *("gsutil", "iconv", "jq", "journalctl", "kubectl", "make", "openssl", "pip", "printf"),
    *("promtool", "psql", "pytest", "python", "python3", "rm", "ssh", "sudo", "systemctl"),
    *("terraform", "uv"),
}
"""First words by which code within a sentence is known to be a command."""


@dataclass(frozen=True)
class Command:
    """A command as a page prints it.

    :ivar assigned: names of the variables that are set for it, or exported.
    :ivar words: program and arguments; empty for what only sets variables.
    :ivar in_block: it is a line to copy, not one of a sentence.
    """

    words: tuple[str, ...]
    assigned: tuple[str, ...] = ()
    in_block: bool = True

    def __str__(self) -> str:
        return shlex.join(self.words)


def commands(page: str) -> Iterator[Command]:
    """Yield the commands of a page; those of pipes, lists and ``$(...)`` one by one."""
    for _, kind, block in FENCE.findall(page):
        if kind.split(" ")[0] in SHELL:
            for line in _lines(block):
                yield from split(line)
    for code in CODE.findall(FENCE.sub("", page)):
        first = re.sub(r"^(\w+=\S+ )*(\.venv/bin/)?", "", code).split(" ")[0]
        # A program alone is its name and no command.
        if first in PROGRAMS and " " in code:
            yield from split(code, in_block=False)


def _lines(block: str) -> Iterator[str]:
    """Yield a block's commands, each in one piece: quotes may go over several lines."""
    held = ""
    for line in block.replace("\\\n", " ").splitlines():
        held = f"{held}\n{line}" if held else line
        try:
            shlex.split(held, comments=True)
        except ValueError:
            continue
        yield held
        held = ""
    assert not held, f"a quote is not closed: {held}"


def split(line: str, *, in_block: bool = True) -> Iterator[Command]:
    """Yield the commands of one line."""
    for inner in re.findall(r"\$\(([^()]+)\)", line):
        yield from split(inner, in_block=in_block)
    # `|` of words that shlex keeps together is not the shell's.
    lexer = shlex.shlex(
        re.sub(r"\"?\$\([^()]+\)\"?", "WORDS", line), posix=True, punctuation_chars="|&;"
    )
    lexer.whitespace_split = True
    words: list[str] = []
    for word in [*lexer, ";"]:
        if set(word) <= set("|&;"):
            yield from _command(words, in_block)
            words = []
        else:
            words.append(word)


def _command(words: list[str], in_block: bool) -> Iterator[Command]:
    assigned, rest = [], [*words]
    is_export = rest[:1] == ["export"]
    if is_export:
        rest.pop(0)
    while rest and (match := re.match(r"([A-Za-z_]\w*)=", rest[0])):
        assigned.append(match[1])
        rest.pop(0)
    if rest and rest[0].startswith(".venv/bin/"):
        rest[0] = rest[0].removeprefix(".venv/bin/")
    if rest or assigned:
        yield Command(tuple(rest), tuple(assigned), in_block)
