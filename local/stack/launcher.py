"""Becomes one part of the stack, after ending the processes that an earlier start of it left.

Copy-paste, in the environment of a stack's own processes:
``python -m local.stack.launcher --part scheduler -- sleep 600``

A killed part leaves child processes. The workers of a dead scheduler hold its database session, and
with it locks on the rows of all runs that it was processing: its successor skips these as long as a
worker lives. Process groups and sessions do not show which part started a process, as tasks create
their own; an environment variable, which every child inherits, does.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from local.stack import processes
from local.stack.paths import StackError, StatePaths
from local.stack.settings import MARKER, PART, SESSION_NAME, UNMENDED

PATIENCE_SECONDS = 30.0
POLL_SECONDS = 0.05
NAMED = 6
"""Maximum number of processes listed in the log; a scheduler can leave dozens."""


def main(argv: Sequence[str] | None = None) -> None:
    """End leftover processes, then become the command in this same process.

    With the variable :data:`~local.stack.settings.UNMENDED` in the environment the command starts
    as if there were no launcher, by which a check demonstrates the launcher's effect.
    """
    options = _parser().parse_args(argv)
    environment = {**os.environ, PART: options.part, SESSION_NAME: options.part}
    if UNMENDED not in os.environ:
        environment |= dict(options.env)
        try:
            ended = end_leftovers(StatePaths(Path(os.environ[MARKER])), options.part)
        except StackError as error:
            # supervisord retries.
            sys.exit(str(error))
        if ended:
            print(_report(options.part, ended), flush=True)
    command: list[str] = options.command
    try:
        os.execvpe(command[0], command, environment)  # noqa: S606
    except OSError as error:
        sys.exit(
            f"The part {options.part} is started by {command[0]!r}, which cannot be run: {error}. "
            "Install it, or look at PATH."
        )


def end_leftovers(
    paths: StatePaths, part: str, patience: float = PATIENCE_SECONDS
) -> dict[int, str]:
    """Kill all processes of a part, except the caller and its ancestors, and wait for their end.

    The search is repeated until none is found: a process may start another before it dies. They get
    no time to clean up, since the rest of the stack waits for the resources that they hold; all
    work of a task can be repeated after a crash.

    :param paths: the state folder of the stack.
    :param part: name of the part.
    :param patience: seconds until they must be gone.
    :returns: the ended processes: command by process id.
    :raises StackError: a process does not end.
    """
    ended: dict[int, str] = {}
    deadline = time.monotonic() + patience
    while found := processes.find(paths, part):
        if time.monotonic() > deadline:
            raise StackError(
                f"Nothing of an earlier {part} may be left when it starts, but these processes do "
                f"not end within {patience:.0f} s of SIGKILL: {_listing(found)}. They wait for a "
                "device, as a rule: look at their state with `ps`."
            )
        for process in found:
            ended.setdefault(process.pid, processes.describe(process))
            # A process that has ended meanwhile is fine.
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL)
        time.sleep(POLL_SECONDS)
    return ended


def _report(part: str, ended: dict[int, str]) -> str:
    more = f" and {len(ended) - NAMED} more" if len(ended) > NAMED else ""
    named = "; ".join(list(ended.values())[:NAMED])
    count = "1 process" if len(ended) == 1 else f"{len(ended)} processes"
    return f"launcher: ended {count} of the {part} before this one: {named}{more}"


def _listing(found: list[psutil.Process]) -> str:
    return "; ".join(processes.describe(process) for process in found)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m local.stack.launcher", description=__doc__)
    parser.add_argument("--part", required=True, help="name of the part")
    parser.add_argument(
        "--env",
        type=_assignment,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="variable for this part alone",
    )
    parser.add_argument("command", nargs="+", help="what to become, after `--`")
    return parser


def _assignment(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE; give both")
    return name, value


if __name__ == "__main__":
    main()
