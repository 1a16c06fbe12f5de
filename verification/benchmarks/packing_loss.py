"""Compares the effect of ways of packing rows on the model: equal steps, equal held-out rows.

    python -m verification.benchmarks.packing_loss [--steps 400] [--seeds 1,2,3]

Trains the smoke model on one day of the demo's corpus, packed as doc_sentences and as
full_sentences, and scores each on the same held-out documents with the same masks. Prints one JSON
object per line; a loss is in nats per masked token.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from pathlib import Path

from local.commands import run_module
from pipeline_config import load_preset, with_overrides
from pipeline_config.command_line import command_parser
from pipeline_store.formats import EvaluationReport
from verification.benchmarks.commands import print_result

PARTITION = "day1"
PACKINGS = ("doc_sentences", "full_sentences")


def main(argv: list[str] | None = None) -> int:
    """Run the benchmark; return the exit status."""
    parser = command_parser("verification.benchmarks.packing_loss", __doc__)
    parser.add_argument("--steps", type=int, default=400, help="steps of each training")
    parser.add_argument("--seeds", default="1,2,3", help="seeds of the trainings")
    options = parser.parse_args(argv)
    seeds = [int(seed) for seed in options.seeds.split(",")]
    with tempfile.TemporaryDirectory(prefix="packing-loss-") as folder:
        store = Path(folder)
        run_module("local.demo.corpus", "--output", str(store / "corpus"))
        (store / "corpus").joinpath(sorted_days(store)[0]).rename(store / "corpus" / PARTITION)
        losses = {
            packing: [held_out_loss(store, packing, seed, options.steps) for seed in seeds]
            for packing in PACKINGS
        }
    for packing, values in losses.items():
        print_result(
            name=f"held_out_loss_{packing}",
            value=round(statistics.mean(values), 4),
            unit="nats per masked token",
            seeds=[round(value, 4) for value in values],
            steps=options.steps,
            peer=PACKINGS[0],
            ratio=round(statistics.mean(values) / statistics.mean(losses[PACKINGS[0]]), 4),
        )
    return 0


def sorted_days(store: Path) -> list[str]:
    """Return the names of the corpus's partitions."""
    return sorted(path.name for path in (store / "corpus").iterdir() if path.is_dir())


def held_out_loss(store: Path, packing: str, seed: int, steps: int) -> float:
    """Prepare, train and score once; return the candidate's loss on the held-out documents."""
    run = store / "runs" / f"{packing}-{seed}"
    run.mkdir(parents=True)
    config = with_overrides(
        load_preset("smoke"),
        {
            "masking.packing": packing,
            "training.random_seed": seed,
            "training.train_steps": steps,
            "training.checkpoint_interval": steps,
        },
    )
    (run / "config.json").write_bytes(config.to_bytes())
    job = ("--config", str(run / "config.json"), "--store", str(store), "--partition", PARTITION)
    run_module("beam_jobs.train_vocabulary", *job)
    prepared = json.loads(run_module("beam_jobs.prepare_corpus", *job))
    print(
        f"{packing}, seed {seed}: row fill {prepared['row_fill']}, training {steps} steps",
        file=sys.stderr,
        flush=True,
    )
    manifest, place = prepared["manifest"], ("--store", str(store))
    run_module("training.train", "--run", str(run), *place, "--manifest", manifest)
    run_module(
        "training.evaluate",
        *place,
        *("--config", str(run / "config.json"), "--current-set", PARTITION),
        *("--set", f"{PARTITION}={manifest}", "--model", f"candidate={run / 'training'}"),
        *("--output", str(run / "evaluation.json")),
    )
    [score] = EvaluationReport.load(str(run / "evaluation.json")).models[0].sets
    return sum(score.loss_sums) / sum(score.token_counts)


if __name__ == "__main__":
    sys.exit(main())
