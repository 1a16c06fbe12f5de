"""The rows of the fine-tuning benchmark: the measurements, and the values computed from them."""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from scipy import stats

from local.commands import run_module
from local.demo.tasks.pretraining import Pretrained
from local.demo.tasks.trials import PRETRAINED, Recipe, Trials, plan
from pipeline_config.finetuning import RecipeConfig
from pipeline_store.formats import TaskSplit
from pipeline_store.layout import StoreLayout
from verification.benchmarks.finetune import work
from verification.benchmarks.results import Row
from verification.benchmarks.train.contest import TORCH_PYTHON, Measured, SideName, Sizes, contest
from verification.benchmarks.train.rows import contest_ratios, tuned
from verification.benchmarks.train.settings import speed_recipe
from verification.benchmarks.train.shapes import ROWS

PACKAGE = "verification.benchmarks.finetune.sides"
DROPOUT = 0.1
_SPEED_BATCHES = 64
_FORMAT = "hugging_face"
# Level of the two-sided test of whether the means of two sets of seeds differ by more than chance.
_LEVEL = 0.05


@dataclass(frozen=True)
class Bench:
    """The locations and settings of a benchmark run."""

    store: StoreLayout
    work: Path
    pretrained: Pretrained
    task: str
    threads: int
    sizes: Sizes
    random_seeds: Sequence[int]

    def forget(self) -> None:
        """Delete the working folder of both sides, so that it can be made again."""
        shutil.rmtree(self.work)
        self.work.mkdir()


def speed(bench: Bench) -> Row:
    """Compare the time of a step with the fastest of Hugging Face's variants."""
    recipe = speed_recipe(DROPOUT)
    trials = _planned(bench, Recipe(max_seq_length=recipe.max_seq_length))
    folder = _prepared(bench, "speed", trials, recipe, "--steps", str(_SPEED_BATCHES))
    ours = SideName("ours", dropout=DROPOUT, package=PACKAGE)
    eager = SideName("hugging_face", dropout=DROPOUT, package=PACKAGE)
    compiled = replace(eager, compiled=True)
    sides = [ours, eager, compiled, *tuned(compiled)]
    return speed_row(contest(sides, folder, bench.threads, bench.sizes), ours)


def speed_row(found: dict[SideName, Measured], ours: SideName) -> Row:
    """Return the row of a contest; ``ratio`` is the speed relative to the fastest peer.

    :raises ValueError: the sides train different numbers of weights.
    """
    counts = {str(name): measured.about["parameters"] for name, measured in found.items()}
    if len(set(counts.values())) > 1:
        raise ValueError(f"the sides train different numbers of weights: {counts}")
    mine, peers = found[ours], {name: side for name, side in found.items() if name != ours}
    peer = min(peers, key=lambda name: peers[name].seconds)
    other = peers[peer]
    return Row(
        "finetune_step_vs_hf",
        ROWS / mine.seconds,
        "examples/s",
        str(peer),
        **contest_ratios(mine, other),
        details={
            "peer_value": ROWS / other.seconds,
            "ms_per_step": mine.seconds * 1e3,
            "cpu_ms_per_step": mine.cpu_seconds * 1e3,
            "peer_ms_per_step": other.seconds * 1e3,
            "peer_cpu_ms_per_step": other.cpu_seconds * 1e3,
            "peers_ms_per_step": {str(name): side.seconds * 1e3 for name, side in peers.items()},
            "parameters": mine.about["parameters"],
            "rounds": len(mine.wall_s),
            "versions": mine.about["versions"] | other.about["versions"],
        },
    )


def metrics(bench: Bench) -> Row:
    """Fine-tune on both sides from the same encoder, in the same order, with each seed."""
    trials = _planned(bench, Recipe(random_seeds=bench.random_seeds))
    trials.train()
    results = trials.results(PRETRAINED)
    folder = _prepared(bench, "metrics", trials, trials.config.finetuning)
    _export(bench, folder)
    command = [
        str(TORCH_PYTHON),
        "-m",
        "verification.benchmarks.finetune.hugging_face_trials",
        str(folder),
    ]
    done = subprocess.run(
        [*command, "--threads", str(bench.threads)], check=True, stdout=subprocess.PIPE
    )
    theirs = [json.loads(line) for line in done.stdout.decode().splitlines()]
    row = metrics_row(
        [result.scores[TaskSplit.TEST].metrics["accuracy"] for result in results],
        [found["accuracy"] for found in theirs],
    )
    of = {"task": bench.task, "random_seeds": list(bench.random_seeds)}
    return replace(row, details=row.details | of)


def metrics_row(ours: Sequence[float], theirs: Sequence[float]) -> Row:
    """Return the row of accuracies by seed; ``t`` and ``p`` are from Welch's test of the means."""
    test = stats.ttest_ind(ours, theirs, equal_var=False)
    return Row(
        "finetune_accuracy_vs_hf",
        statistics.fmean(ours),
        "accuracy",
        "hugging face",
        details={
            "peer_value": statistics.fmean(theirs),
            "difference": statistics.fmean(ours) - statistics.fmean(theirs),
            "deviation": statistics.stdev(ours),
            "peer_deviation": statistics.stdev(theirs),
            "t": float(test.statistic),
            "p": float(test.pvalue),
            "within_seed_noise": bool(test.pvalue > _LEVEL),
            "values": list(ours),
            "peer_values": list(theirs),
        },
    )


def _planned(bench: Bench, recipe: Recipe) -> Trials:
    models = {PRETRAINED: bench.pretrained.encoder}
    return plan(bench.store, bench.task, bench.pretrained.lineage_id, models, recipe)


def _prepared(bench: Bench, name: str, trials: Trials, settings: RecipeConfig, *more: str) -> Path:
    """Return a folder for both sides; see :mod:`verification.benchmarks.finetune.work`."""
    folder = bench.work / name
    folder.mkdir()
    (folder / work.MANIFEST).write_text(bench.store.resolve(trials.plan.manifests[bench.task]))
    words = ("--recipe", settings.model_dump_json(), *more)
    # In a child process, so that this process does not load TensorFlow.
    run_module("verification.benchmarks.finetune.prepare", str(folder), *words)
    return folder


def _export(bench: Bench, folder: Path) -> None:
    """Export the encoder to the folder in Hugging Face's format, with the project's export."""
    line = run_module(
        "training.export_model",
        *("--model", str(bench.pretrained.encoder.uri), "--store", bench.store.root),
        *("--config", bench.pretrained.config, "--output", str(folder / "exports")),
        *("--format", _FORMAT),
    )
    Path(json.loads(line)[_FORMAT]["folder"]).rename(folder / work.ENCODER)


GROUPS: dict[str, Callable[[Bench], Row]] = {"speed": speed, "metrics": metrics}
