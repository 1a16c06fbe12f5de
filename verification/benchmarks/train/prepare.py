"""Makes the training records: text of the installed packages, prepared by the data job.

    python -m verification.benchmarks.train.prepare FOLDER

For sides that read no records, it also saves the first batches of our input pipeline.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from local.commands import run_module
from pipeline_config.command_line import command_parser
from verification.benchmarks.train import shapes
from verification.benchmarks.train.settings import settings

PARTITION = "2026-01-01"
BATCH_COUNT = 16
_MEGABYTES = 3


def prepare(folder: Path) -> None:
    """Fill an empty folder; see :mod:`verification.benchmarks.train.shapes`.

    :raises subprocess.CalledProcessError: a command fails; its messages are on stderr.
    """
    store, config = folder / shapes.STORE, folder / "config.json"
    config.write_bytes(settings().to_bytes())
    corpus = ("--output", str(store / "corpus"), "--partitions", PARTITION)
    run_module("local.demo.corpus", *corpus, "--max-mb", str(_MEGABYTES))
    job = ("--config", str(config), "--store", str(store), "--partition", PARTITION)
    run_module("beam_jobs.train_vocabulary", *job)
    prepared = json.loads(run_module("beam_jobs.prepare_corpus", *job))
    (folder / shapes.MANIFEST).write_text(prepared["manifest"])
    # In a child process, so that this process does not load TensorFlow.
    run_module("verification.benchmarks.train.prepare", str(folder), "--batches-only")


def _save_batches(folder: Path) -> None:
    from training.runtime.strategies import create_strategy
    from verification.benchmarks.train.sides.ours import batches

    config = settings()
    strategy = create_strategy(config, [config.training.global_batch_size])
    iterator = batches(strategy, config, folder)
    drawn = [next(iterator)[0] for _ in range(BATCH_COUNT)]
    stacked = {name: np.stack([batch[name].numpy() for batch in drawn]) for name in drawn[0]}
    np.savez(folder / shapes.BATCHES, allow_pickle=False, **stacked)


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = command_parser("verification.benchmarks.train.prepare", __doc__)
    parser.add_argument("folder", type=Path, help="an empty folder")
    parser.add_argument(
        "--batches-only", action="store_true", help="the records are there; only draw the batches"
    )
    options = parser.parse_args(argv)
    if not options.batches_only:
        prepare(options.folder)
    else:
        _save_batches(options.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
