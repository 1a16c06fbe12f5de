"""Becomes one part of the stack, after ending all that an earlier incarnation of it has left.

Copy-paste, in the environment of a stack's own processes:
``python -m local.stack.launcher --part scheduler -- sleep 600``

A part that is killed leaves children. The workers of a dead scheduler hold its database session,
and with it the rows of all runs that it was looking at: its successor skips these for as long as a
worker lives. Groups and sessions do not tell whose child a process was, as tasks make their own;
a variable of the environment, which every child inherits, does.
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
"""So many processes are named in the log; a scheduler can leave dozens."""


def main(argv: Sequence[str] | None = None) -> None:
    """End what is left, then become the command: same process, no parent of it stays.

    With the variable :data:`~local.stack.settings.UNMENDED` in the environment the command starts
    as if there were no launcher, which is how the check of it shows what it is for.
    """
    options = _parser().parse_args(argv)
    environment = {**os.environ, PART: options.part, SESSION_NAME: options.part}
    if UNMENDED not in os.environ:
        environment |= dict(options.env)
        try:
            ended = end_leftovers(StatePaths(Path(os.environ[MARKER])), options.part)
        except StackError as error:
            # supervisord tries again.
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
    """Kill all processes of a part, the caller and its ancestors aside, and wait for their end.

    They are looked for until there are none: one may start another before it dies. They get no
    time to clean up, since what they hold is what everybody else waits for; whatever a task does
    can be repeated after a crash.

    :param paths: the state folder of the stack.
    :param part: name of the part.
    :param patience: seconds until they must be gone.
    :returns: what was ended: its command by process id.
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
            # One that has ended meanwhile is what we want.
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
