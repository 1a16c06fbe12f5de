"""Compares our fine-tuning with that of PyTorch and transformers: its speed and its metrics.

    python -m verification.benchmarks.finetune [--quick] [--only speed] [--state-dir .local]

Prints one JSON object per line on stdout, progress on stderr. docs/evidence/finetuning-speed.md
explains the rows. Needs the PyTorch environment, which `make bench-finetune` creates.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from local.demo.tasks import docstrings, examples
from local.demo.tasks.modules import harvest
from local.demo.tasks.pretraining import STEPS, pretrain, store_of
from verification.benchmarks.commands import contest_parser, say
from verification.benchmarks.finetune.rows import GROUPS, Bench
from verification.benchmarks.noise import measure, report
from verification.benchmarks.results import Result, Row
from verification.benchmarks.train.contest import SideFailedError, Sizes

_QUICK_SIZES = Sizes(rounds=3, steps=2, warm_up=(1, 1))
_QUICK_STEPS = 200
_RANDOM_SEEDS = (1, 2, 3, 4, 5)
_QUICK_SEEDS = (1, 2)


def main(argv: list[str] | None = None) -> int:
    """Run the benchmark; return the exit status: 1 if a row was not measured or was disturbed."""
    quick = "few steps, two seeds, a hardly trained encoder"
    parser = contest_parser("python -m verification.benchmarks.finetune", __doc__, GROUPS, quick)
    options = parser.parse_args(argv)
    state_dir = options.state_dir.resolve()
    # The demo's store, so that its model is reused if there is one.
    store = store_of(state_dir)
    harvested = harvest()
    task = docstrings.build(harvested)
    examples.write(task, Path(store.task(task.name).root))
    pretrained = pretrain(store, harvested, say, steps=_QUICK_STEPS if options.quick else STEPS)
    results: list[Result] = []
    status = 0
    with tempfile.TemporaryDirectory(prefix="bench-finetune-", dir=state_dir) as folder:
        bench = Bench(
            store,
            Path(folder),
            pretrained,
            task.name,
            options.threads,
            _QUICK_SIZES if options.quick else Sizes(),
            _QUICK_SEEDS if options.quick else _RANDOM_SEEDS,
        )
        for name in options.only or GROUPS:
            say(f"{name} …")
            try:
                found = measure("finetune", partial(_rows, name, bench), bench.forget)
            except (SideFailedError, subprocess.CalledProcessError) as error:
                say(f"{name}: {error}")
                status = 1
                continue
            for result in found:
                print(result.model_dump_json(), flush=True)
            results += found
    return max(status, report(results))


def _rows(name: str, bench: Bench) -> list[Row]:
    return [GROUPS[name](bench)]


if __name__ == "__main__":
    sys.exit(main())
