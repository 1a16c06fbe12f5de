"""Compares our fine-tuning with that of PyTorch and transformers: its speed, and what comes out.

    python -m verification.benchmarks.finetune [--quick] [--only speed] [--state-dir .local]

Prints one JSON object a line on stdout, progress on stderr. What the rows mean is in
docs/finetuning-speed.md. Needs the environment of PyTorch: `make bench-finetune` makes it.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from local.demo.tasks import docstrings, examples
from local.demo.tasks.modules import harvest
from local.demo.tasks.pretraining import STEPS, pretrain, store_of
from verification.benchmarks.commands import contest_parser, say
from verification.benchmarks.finetune.rows import GROUPS, Bench
from verification.benchmarks.train import machine
from verification.benchmarks.train.contest import SideFailedError, Sizes

_QUICK_SIZES = Sizes(rounds=3, steps=2, warm_up=(1, 1))
_QUICK_STEPS = 200
_RANDOM_SEEDS = (1, 2, 3, 4, 5)
_QUICK_SEEDS = (1, 2)


def main(argv: list[str] | None = None) -> int:
    """Run the benchmark; return the exit status: 1 if a row could not be measured."""
    quick = "few steps, two seeds, a hardly trained encoder"
    parser = contest_parser("python -m verification.benchmarks.finetune", __doc__, GROUPS, quick)
    options = parser.parse_args(argv)
    state_dir = options.state_dir.resolve()
    # The same store as the demo's, so that its model is found if it is there.
    store = store_of(state_dir)
    found = harvest()
    task = docstrings.build(found)
    examples.write(task, Path(store.task(task.name).root))
    pretrained = pretrain(store, found, say, steps=_QUICK_STEPS if options.quick else STEPS)
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
                _print(GROUPS[name](bench), options.threads)
            except (SideFailedError, subprocess.CalledProcessError) as error:
                say(f"{name}: {error}")
                status = 1
    return status


def _print(row: dict[str, Any], threads: int) -> None:
    where = {
        "machine": f"{machine.processor()}, Python {platform.python_version()}",
        "cores": os.cpu_count(),
        "threads": threads,
        "load": round(os.getloadavg()[0], 1),
    }
    print(json.dumps(row | where), flush=True)


if __name__ == "__main__":
    sys.exit(main())
