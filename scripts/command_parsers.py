"""The parser of a command, taken from it while it is run: what it accepts, without what it does."""

from __future__ import annotations

import argparse
import runpy
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn
from unittest import mock


class _Parsing(BaseException):
    """A program has made its parser; no ``except Exception`` of its own may catch this."""

    def __init__(self, parser: argparse.ArgumentParser, words: list[str]) -> None:
        super().__init__()
        self.parser = parser
        self.words = words


def parser_of(module: str, *words: str) -> argparse.ArgumentParser:
    """Return the parser that a module makes when it is run with these words.

    :raises AssertionError: the module ended without reading its arguments.
    """
    return _parsing(module, words).parser


def parse(program: str, *words: str) -> None:
    """Let the parser of a module, or of a file with one, read the words; nothing else is done.

    :raises SystemExit: they are refused, which the parser explains on stderr, or ask for help.
    """
    found = _parsing(program, words)
    found.parser.parse_args(found.words)


def _parsing(program: str, words: Sequence[str]) -> _Parsing:
    def stop(
        self: argparse.ArgumentParser, args: Sequence[str] | None = None, *_: Any, **__: Any
    ) -> NoReturn:
        raise _Parsing(self, list(words if args is None else args))

    with (
        mock.patch.object(sys, "argv", [program, *words]),
        mock.patch.object(argparse.ArgumentParser, "parse_args", stop),
        mock.patch.object(argparse.ArgumentParser, "parse_known_args", stop),
    ):
        try:
            if program.endswith(".py"):
                runpy.run_path(program, run_name="__main__")
            else:
                runpy.run_module(program, run_name="__main__", alter_sys=False)
        except _Parsing as found:
            return found
    raise AssertionError(f"{program} ended without reading its arguments")


def parsers(module: str) -> Iterator[tuple[str, argparse.ArgumentParser, str]]:
    """Yield a command and those below it: name, parser, and the line of the list it stands in."""
    for name, parser, line in _below(module, parser_of(module), ""):
        *_, last = name.split()
        # Some hand all that follows to another parser.
        inner = parser_of(module, last) if name.count(" ") == 1 else parser
        is_handed_on = inner is not parser and not _subcommands(inner)
        yield name, inner if is_handed_on else parser, line


def _below(
    name: str, parser: argparse.ArgumentParser, line: str
) -> Iterator[tuple[str, argparse.ArgumentParser, str]]:
    yield name, parser, line
    for action in _subcommands(parser):
        lines = {choice.dest: choice.help or "" for choice in action._choices_actions}
        for word, inner in action.choices.items():
            yield from _below(f"{name} {word}", inner, lines.get(word, ""))


def _subcommands(
    parser: argparse.ArgumentParser,
) -> list[argparse._SubParsersAction[argparse.ArgumentParser]]:
    return [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
