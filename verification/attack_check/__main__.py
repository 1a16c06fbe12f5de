"""Tries attacks on the store and the registry, and controls with a safeguard disabled.

Copy-paste: ``python -m verification.attack_check --only "full disk"``. Prints a line of JSON for
each row; results for the same code are reused. It needs root, to mount its own disks.

Exit code: 0 if no attack did harm or lost data, and each control did harm; 1 otherwise.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import traceback
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import TextIO

from local.commands import import_path
from verification.attack_check.rows import Journal, Result, Row, try_row
from verification.checks import add_state_dir, code_version


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    options = _parser().parse_args(argv)
    # Some rows run tasks, whose operators are in a folder that only Airflow adds by itself.
    sys.path[:0] = import_path().split(os.pathsep)
    from verification.attack_check.catalogue import ROWS

    journal = Journal(options.state_dir / "results.jsonl", code_version())
    rows = [row for row in ROWS if not options.only or row.name in options.only]
    if unknown := {*options.only} - {row.name for row in ROWS}:
        names = "; ".join(row.name for row in ROWS)
        print(f"error: no row {', '.join(sorted(unknown))}. There are: {names}", file=sys.stderr)
        return 1
    done = {} if options.fresh else journal.read()
    passed = {row.name: found for row in rows if (found := done.get(row.name)) and found.passed}
    left = [row for row in rows if row.name not in passed]
    results = list(passed.values())
    with _lines() as lines:
        for result in results:
            print(result.line, file=lines, flush=True)
        for result in _tried(left, options.jobs):
            journal.add(result)
            print(result.line, file=lines, flush=True)
            results.append(result)
    return 0 if all(result.passed for result in results) else 1


def _tried(rows: Sequence[Row], jobs: int) -> Iterator[Result]:
    """Yield the results of rows as they arrive.

    Each row has a process of its own, forked from this one, which tries none: rows fork as well,
    and in a process in which others have started threads a child may wait for a lock forever.

    :param jobs: rows tried at once.
    """
    context, left = get_context("fork"), deque(rows)
    under_way: dict[Connection, tuple[Row, ForkProcess]] = {}
    while left or under_way:
        while left and len(under_way) < jobs:
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(target=_send, args=(left[0], sender))
            process.start()
            sender.close()
            under_way[receiver] = left.popleft(), process
        wait([*under_way])
        for receiver in [one for one in under_way if one.poll()]:
            row, process = under_way.pop(receiver)
            try:
                result: Result = receiver.recv()
            except EOFError:
                process.join()
                result = Result(row.name, 0, 1, 0, 0, [f"exit code {process.exitcode}"])
            process.join()
            yield result


def _send(row: Row, sender: Connection) -> None:
    sender.send(_try(row))


def _try(row: Row) -> Result:
    folder = Path(tempfile.mkdtemp(prefix="attack-check-"))
    try:
        return try_row(row, folder)
    except Exception as error:  # noqa: BLE001 - the other rows can be tried
        traceback.print_exc()
        return Result(row.name, 0, 1, 0, 0, [f"It cannot be tried: {error!r}"])
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _lines() -> Iterator[TextIO]:
    """Yield the real stdout for the rows; all other output to stdout goes to stderr meanwhile.

    Airflow logs to stdout.
    """
    saved = os.dup(1)
    os.dup2(2, 1)
    try:
        with os.fdopen(saved, "w", closefd=False) as lines:
            yield lines
    finally:
        os.dup2(saved, 1)
        os.close(saved)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="verification.attack_check", description=__doc__)
    parser.add_argument("--only", nargs="*", default=[], metavar="ROW", help="these rows alone")
    parser.add_argument("--fresh", action="store_true", help="try again what has passed")
    parser.add_argument(
        "--jobs",
        type=int,
        default=min(2, os.cpu_count() or 1),
        help="rows tried at once",
    )
    add_state_dir(parser, "attack-check", "where results are kept")
    return parser


if __name__ == "__main__":
    sys.exit(main())
