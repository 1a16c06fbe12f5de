"""The commands that people, documents and agents type: modules with their options, make targets."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator

from scripts.command_parsers import parsers
from tests.golden.discovery import REPOSITORY, sources


def commands(run_by_tasks: Iterable[str]) -> dict[str, list[str]]:
    """Return the options of every command.

    Commands are the modules that can be run and that documents or their own help tell to run.

    :param run_by_tasks: modules that the DAGs' tasks run, which are commands, too.
    """
    texts = [path.read_text() for path in sorted(REPOSITORY.glob("docs/**/*.md"))]
    texts += [path.read_text() for path in REPOSITORY.glob("dags/*.py")]
    texts += [(REPOSITORY / "README.md").read_text()]
    # Of the code only what a program calls itself: what else it starts is its own affair.
    texts += [line for text in sources().values() for line in re.findall(r"prog=.*", text)]
    named = {name for text in texts for name in re.findall(r"python -m ([a-z_.]+[a-z_])", text)}
    found: dict[str, list[str]] = {}
    for module in sorted(named.union(run_by_tasks)):
        if _can_be_run(module):
            for name, parser, _ in parsers(module):
                found[f"python -m {name}"] = _options(parser)
    return found


def _can_be_run(module: str) -> bool:
    """Return whether it is one of our modules that do something when they are run."""
    return f"{module}.__main__" in sources() or "__main__" in sources().get(module, "")


def _options(parser: argparse.ArgumentParser) -> list[str]:
    """Return what a parser takes, without what belongs to the commands below it."""
    skipped = (argparse._SubParsersAction, argparse._HelpAction)
    own = (action for action in parser._actions if not isinstance(action, skipped))
    return sorted(word for action in own for word in _words(action))


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
