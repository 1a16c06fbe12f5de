"""Measures the training step, its peers and the machine's own limit, in turns.

    python -m verification.benchmarks.train [--quick] [--only NAME] [--state-dir .local]

Prints one JSON object a line on stdout, progress and a table on stderr. What the rows mean is in
docs/training-speed.md. Needs the environment of PyTorch: `make bench-train` makes it.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from verification.benchmarks.commands import contest_parser, say
from verification.benchmarks.train import machine
from verification.benchmarks.train.contest import SideFailedError, Sizes
from verification.benchmarks.train.prepare import prepare
from verification.benchmarks.train.rows import GROUPS, Bench, Row

QUICK = Sizes(rounds=3, steps=2, warm_up=(1, 1))


def main(argv: list[str] | None = None) -> int:
    """Run the benchmark; return the exit status: 1 if a row could not be measured."""
    quick = "few steps; minutes, and much less certain"
    parser = contest_parser("python -m verification.benchmarks.train", __doc__, GROUPS, quick)
    options = parser.parse_args(argv)
    # A store's address is absolute.
    state_dir = options.state_dir.resolve()
    state_dir.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    status = 0
    with tempfile.TemporaryDirectory(prefix="bench-train-", dir=state_dir) as folder:
        say("preparing records …")
        prepare(Path(folder))
        bench = Bench(Path(folder), options.threads, QUICK if options.quick else Sizes())
        for name in options.only or GROUPS:
            say(f"{name} …")
            try:
                for row in GROUPS[name](bench):
                    _print(row, options.threads)
                    rows.append(row)
            except SideFailedError as error:
                say(f"{name}: {error}")
                status = 1
    _print_table(rows)
    return status


def _print(row: Row, threads: int) -> None:
    where = {
        "machine": f"{machine.processor()}, Python {platform.python_version()}",
        "cores": os.cpu_count(),
        "threads": threads,
        "load": round(os.getloadavg()[0], 1),
    }
    print(json.dumps(row.to_json() | where), flush=True)


def _print_table(rows: list[Row]) -> None:
    columns = ("name", "value", "unit", "ratio", "cpu_ratio", "utilization", "peer")
    table = Table(*columns)
    for row in rows:
        shown = row.to_json()
        cells = [shown.get(column) for column in columns]
        table.add_row(*("" if cell is None else str(cell) for cell in cells))
    Console(stderr=True).print(table)


if __name__ == "__main__":
    sys.exit(main())
