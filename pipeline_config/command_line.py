"""Shared parts of command lines: the parser, sub-commands, and the exit code of refusals."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any

Run = Callable[[argparse.Namespace], int]


def command_parser(module: str, text: str | None, **options: Any) -> argparse.ArgumentParser:
    """Return the parser of ``python -m MODULE``, whose help keeps the text's line breaks."""
    return argparse.ArgumentParser(
        prog=f"python -m {module}",
        description=text,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        **options,
    )


class SubCommands:
    """The sub-commands of ``python -m MODULE``."""

    def __init__(self, module: str, text: str | None) -> None:
        self.parser = command_parser(module, text)
        self._commands = self.parser.add_subparsers(required=True, metavar="COMMAND")

    def add(self, name: str, run: Run, text: str) -> argparse.ArgumentParser:
        """Add a sub-command and return its parser."""
        command = self._commands.add_parser(name, help=text, description=text)
        command.set_defaults(run=run)
        return command

    def run(self, words: Sequence[str] | None, *refusals: type[Exception]) -> int:
        """Run the sub-command that the arguments name; return its exit code, or 1 if it refuses.

        :param words: arguments; default: those of the process.
        :param refusals: errors whose message suffices; it goes to stderr without a traceback.
        """
        arguments = self.parser.parse_args(words)
        try:
            return int(arguments.run(arguments))
        except refusals as error:
            print(error, file=sys.stderr)
            return 1
