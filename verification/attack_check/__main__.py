"""Tries attacks on the store and the registry, and controls in which a mend is switched off.

Copy-paste: ``python -m verification.attack_check --only "full disk"``. Prints a line of JSON for
each row; what is done with the same code is kept. It needs root, for disks of its own.

Exit code: 0 nothing was bad or lost, and each control was bad; 1 otherwise.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from local.commands import import_path
from verification.attack_check.rows import Journal, Result, Row, try_row
from verification.checks import add_state_dir, code_version


def main(argv: Sequence[str] | None = None) -> int:
    """Try what the command line says; return the exit code."""
    options = _parser().parse_args(argv)
    # Some rows run tasks, whose operators are where only Airflow looks by itself.
    sys.path[:0] = import_path().split(os.pathsep)
    from verification.attack_check.catalogue import ROWS

    journal = Journal(options.state_dir / "results.jsonl", code_version())
    rows = [row for row in ROWS if not options.only or row.name in options.only]
    if unknown := {*options.only} - {row.name for row in ROWS}:
        names = "; ".join(row.name for row in ROWS)
        print(f"error: no row {', '.join(sorted(unknown))}. There are: {names}", file=sys.stderr)
        return 1
    done = {} if options.fresh else journal.read()
    with _lines() as lines:
        results = [_result(row, done.get(row.name), journal, lines) for row in rows]
    return 0 if all(result.passed for result in results) else 1


def _result(row: Row, earlier: Result | None, journal: Journal, lines: TextIO) -> Result:
    """Return and print the result of a row, of an earlier call if it has passed in that."""
    result = earlier
    if result is None or not result.passed:
        folder = Path(tempfile.mkdtemp(prefix="attack-check-"))
        try:
            result = try_row(row, folder)
        except Exception as error:  # noqa: BLE001 - the other rows can be tried
            traceback.print_exc()
            result = Result(row.name, 0, 1, 0, 0, [f"It cannot be tried: {error!r}"])
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        journal.add(result)
    print(result.line, file=lines, flush=True)
    return result


@contextmanager
def _lines() -> Iterator[TextIO]:
    """Yield where rows are printed; for so long, all else that goes there goes to the errors.

    Airflow logs to the standard output.
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
    add_state_dir(parser, "attack-check", "where results are kept")
    return parser


if __name__ == "__main__":
    sys.exit(main())
