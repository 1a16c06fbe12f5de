"""Fine-tuning runs: a configuration, a plan, and the command under test."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pipeline_config import FinetuningConfig
from pipeline_store.formats import EncoderSource, FinetuningPlan, Trial, TrialResult
from pipeline_store.layout import RunLayout
from tests.training.corpora import TinyStore
from tests.training.finetuning.tasks import RECIPE
from trained_models.artifacts import model_files
from training import finetune as finetune_command

TASK = "kind-of-thing"


def write_run(
    store: TinyStore,
    key: str,
    *,
    model: str | EncoderSource,
    manifest_uri: str,
    seeds: tuple[int, ...] = (1, 2),
    **recipe: Any,
) -> RunLayout:
    """Write a run's configuration and plan.

    :param model: training folder or version of ours, or what the plan is to say.
    """
    run = store.layout.run(key)
    settings = RECIPE.model_copy(update=recipe)
    Path(run.config).parent.mkdir(parents=True)
    Path(run.config).write_bytes(FinetuningConfig(finetuning=settings).to_bytes())
    if isinstance(model, str):
        model = EncoderSource(uri=model, version_id=None, files_sha256=model_files(model).sha256)
    trials = [
        Trial(
            trial_id=f"{TASK}.model.0.003.{seed}",
            task=TASK,
            model="model",
            learning_rate=3e-3,
            random_seed=seed,
        )
        for seed in seeds
    ]
    FinetuningPlan(
        lineage_id=store.config.model.lineage_id,
        models={"model": model},
        manifests={TASK: manifest_uri},
        trials=trials,
        created=datetime.now(UTC),
    ).write(run.finetuning_plan)
    return run


def words(store: TinyStore, run: RunLayout, *options: str) -> list[str]:
    """Return the command's arguments."""
    return ["--run", run.root, "--store", store.layout.root, *options]


def finetune(store: TinyStore, run: RunLayout, *options: str) -> int:
    """Run the command in this process and return its exit code."""
    return finetune_command.main(words(store, run, *options))


def results(run: RunLayout) -> list[TrialResult]:
    """Return the results of all trials that are done, in the plan's order."""
    plan = FinetuningPlan.load(run.finetuning_plan)
    found = (TrialResult.load_or_none(run.trial(t.trial_id).result) for t in plan.trials)
    return [result for result in found if result is not None]
