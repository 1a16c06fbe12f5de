"""What command lines have in common: their parser, sub-commands, and an exit code for refusals."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any

Run = Callable[[argparse.Namespace], int]


def command_parser(module: str, text: str | None, **options: Any) -> argparse.ArgumentParser:
    """Return the parser of ``python -m MODULE``, whose help keeps the line breaks of its text."""
    return argparse.ArgumentParser(
        prog=f"python -m {module}",
        description=text,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        **options,
    )


class SubCommands:
    """The commands below ``python -m MODULE``; each says what it runs."""

    def __init__(self, module: str, text: str | None) -> None:
        self.parser = command_parser(module, text)
        self._commands = self.parser.add_subparsers(required=True, metavar="COMMAND")

    def add(self, name: str, run: Run, text: str) -> argparse.ArgumentParser:
        """Return the parser of one more command."""
        command = self._commands.add_parser(name, help=text, description=text)
        command.set_defaults(run=run)
        return command

    def run(self, words: Sequence[str] | None, *refusals: type[Exception]) -> int:
        """Run the command that the words name; return its exit code, or 1 when it refuses.

        :param words: default: those of the process.
        :param refusals: errors that say all there is to say; they go to stderr, in one line.
        """
        arguments = self.parser.parse_args(words)
        try:
            return int(arguments.run(arguments))
        except refusals as error:
            print(error, file=sys.stderr)
            return 1
