"""The commands that people, documents and agents type: modules with their options, make targets."""

from __future__ import annotations

import argparse
import re
import runpy
import sys
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn
from unittest import mock

from tests.golden.discovery import REPOSITORY, sources


class _Parsing(BaseException):
    """A program has made its parser; no ``except Exception`` of its own may catch this."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        super().__init__()
        self.parser = parser


def commands(run_by_tasks: Iterable[str]) -> dict[str, list[str]]:
    """Return the options of every command.

    Commands are the modules that can be run and that documents or their own help tell to run.

    :param run_by_tasks: modules that the DAGs' tasks run, which are commands, too.
    """
    texts = [path.read_text() for path in sorted(REPOSITORY.glob("docs/*.md"))]
    texts += [path.read_text() for path in REPOSITORY.glob("dags/*.py")]
    texts += [(REPOSITORY / "README.md").read_text()]
    # Of the code only what a program calls itself: what else it starts is its own affair.
    texts += [line for text in sources().values() for line in re.findall(r"prog=.*", text)]
    named = {name for text in texts for name in re.findall(r"python -m ([a-z_.]+[a-z_])", text)}
    found: dict[str, list[str]] = {}
    for module in sorted(named.union(run_by_tasks)):
        if _can_be_run(module):
            found |= _described(f"python -m {module}", _parser(module))
            below = [key for key in found if key.startswith(f"python -m {module} ")]
            for name in (key.split()[3:] for key in below):
                # Some hand all that follows to another parser.
                inner = _parser(module, *name)
                if not any(isinstance(a, argparse._SubParsersAction) for a in inner._actions):
                    found |= _described(" ".join(["python -m", module, *name]), inner)
    return found


def _can_be_run(module: str) -> bool:
    """Return whether it is one of our modules that do something when they are run."""
    return f"{module}.__main__" in sources() or "__main__" in sources().get(module, "")


def _parser(module: str, *words: str) -> argparse.ArgumentParser:
    """Return the parser that a module makes when it is run."""

    def parse(self: argparse.ArgumentParser, *_: Any, **__: Any) -> NoReturn:
        raise _Parsing(self)

    with (
        mock.patch.object(sys, "argv", [module, *words]),
        mock.patch.object(argparse.ArgumentParser, "parse_args", parse),
        mock.patch.object(argparse.ArgumentParser, "parse_known_args", parse),
    ):
        try:
            runpy.run_module(module, run_name="__main__", alter_sys=False)
        except _Parsing as found:
            return found.parser
    raise AssertionError(f"python -m {module} ended without reading its arguments")


def _described(command: str, parser: argparse.ArgumentParser) -> dict[str, list[str]]:
    """Return the options of a command and of those below it."""
    found: dict[str, list[str]] = {command: []}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                found |= _described(f"{command} {name}", inner)
        elif not isinstance(action, argparse._HelpAction):
            found[command] += _words(action)
    found[command].sort()
    return found


def _words(action: argparse.Action) -> Iterator[str]:
    """Yield the spellings of an option, or the place of an argument, with what it takes."""
    choices = f" {{{','.join(map(str, action.choices))}}}" if action.choices else ""
    takes = choices or ("" if action.nargs == 0 else " …")
    if not action.option_strings:
        yield f"({action.metavar or action.dest}){choices}"
    for name in action.option_strings:
        yield f"{name}{takes}{' required' if action.required else ''}"


def make_targets() -> dict[str, list[str]]:
    """Return the targets of the Makefile with the variables that whoever calls make may set."""
    text = (REPOSITORY / "Makefile").read_text()
    internal = set(re.findall(r"^([A-Z_]+) :=", text, re.MULTILINE))
    found = {}
    for block in re.split(r"\n(?=\S)", text):
        if match := re.match(r"([a-z0-9-]+):(?!=)", block):
            words = set(re.findall(r"\$\((?:if \$\(|or \$\()?([A-Z_]+)", block))
            found[match[1]] = sorted(words - internal)
    return found
