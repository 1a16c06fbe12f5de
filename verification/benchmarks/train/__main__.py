"""Measures the training step, its peers and the machine's own limit, in turns.

    python -m verification.benchmarks.train [--quick] [--only NAME] [--state-dir .local]

Prints one JSON object per line on stdout, progress and a table on stderr.
docs/evidence/training-speed.md explains the rows. Needs the PyTorch environment, which
`make bench-train` creates.
"""

from __future__ import annotations

import sys
import tempfile
from functools import partial
from pathlib import Path

from verification.benchmarks.commands import contest_parser, say
from verification.benchmarks.noise import measure, report
from verification.benchmarks.results import Result
from verification.benchmarks.train.contest import SideFailedError, Sizes, tcmalloc
from verification.benchmarks.train.prepare import prepare
from verification.benchmarks.train.rows import GROUPS, Bench

QUICK = Sizes(rounds=3, steps=2, warm_up=(1, 1))


def main(argv: list[str] | None = None) -> int:
    """Run the benchmark; return the exit status: 1 if a row was not measured or was disturbed."""
    quick = "few steps; minutes, and much less certain"
    parser = contest_parser("python -m verification.benchmarks.train", __doc__, GROUPS, quick)
    options = parser.parse_args(argv)
    # The address of a store is absolute.
    state_dir = options.state_dir.resolve()
    state_dir.mkdir(parents=True, exist_ok=True)
    if tcmalloc() is None:
        say("no tcmalloc on this machine: PyTorch is measured at its defaults only; see the docs")
    results: list[Result] = []
    status = 0
    with tempfile.TemporaryDirectory(prefix="bench-train-", dir=state_dir) as folder:
        say("preparing records …")
        prepare(Path(folder))
        bench = Bench(Path(folder), options.threads, QUICK if options.quick else Sizes())
        for name in options.only or GROUPS:
            say(f"{name} …")
            try:
                found = measure("train", partial(GROUPS[name], bench), lambda: None)
            except SideFailedError as error:
                say(f"{name}: {error}")
                status = 1
                continue
            for result in found:
                print(result.model_dump_json(), flush=True)
            results += found
    return max(status, report(results))


if __name__ == "__main__":
    sys.exit(main())
