"""Fine-tunes a pretrained and an untrained encoder on a task, with the project's own commands."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt

from local.commands import run_module, run_watched
from local.demo.tasks.examples import Task
from local.demo.tasks.modules import Use
from local.demo.tasks.pretraining import Pretrained
from local.demo.tasks.results import Result
from model_registry.finetuning_plans import planned_trials
from pipeline_config import FinetuningConfig, load_finetuning_preset, with_overrides
from pipeline_store import uris
from pipeline_store.formats import (
    EncoderSource,
    FinetuningPlan,
    TaskManifest,
    TaskSplit,
    TrialResult,
)
from pipeline_store.layout import RunLayout, StoreLayout

# The model that is fine-tuned, and what its lineage began with: random weights here.
PRETRAINED, UNTRAINED = "model", "start"
_NAMES = {PRETRAINED: "pre-trained BERT", UNTRAINED: "randomly initialized BERT"}


@dataclass(frozen=True)
class Recipe:
    """The recipe's settings that differ from the preset."""

    learning_rate: float = 5e-4
    epochs: float = 5.0
    random_seeds: Sequence[int] = (1, 2, 3)
    max_seq_length: int = 64


@dataclass(frozen=True)
class Trials:
    """A run in the store whose trials are planned, and possibly trained."""

    store: StoreLayout
    run: RunLayout
    plan: FinetuningPlan
    config: FinetuningConfig

    def train(self) -> None:
        """Train the trials that are not trained yet.

        :raises subprocess.CalledProcessError: the trainer fails; its messages are on stderr.
        """
        run_watched("training.finetune", "--run", self.run.root, "--store", self.store.root)

    def results(self, model: str) -> list[TrialResult]:
        """Return the results of one model's trials, in the order of the plan."""
        trials = [trial.trial_id for trial in self.plan.trials if trial.model == model]
        return [TrialResult.load(self.run.trial(trial).result) for trial in trials]


def plan(
    store: StoreLayout, task: str, lineage_id: str, models: dict[str, EncoderSource], recipe: Recipe
) -> Trials:
    """Prepare a task in the store, and plan a training of each model with each seed.

    The same arguments yield the same run.

    :raises subprocess.CalledProcessError: the preparation fails; its messages are on stderr.
    """
    config = _config(task, lineage_id, recipe)
    job = _written(store, f"prepare-{task}", config)
    arguments = ("--config", job.config, "--store", store.root, "--task", task)
    manifest = json.loads(run_module("beam_jobs.prepare_task", *arguments))["manifest"]
    run = _written(store, _key(config, manifest, models), config)
    planned = FinetuningPlan(
        lineage_id=lineage_id,
        models=models,
        manifests={task: manifest},
        trials=planned_trials(config, [task], list(models)),
        created=datetime.now(UTC),
    )
    planned.create(run.finetuning_plan)
    return Trials(store, run, planned, config)


def finetune(
    store: StoreLayout,
    task: Task,
    pretrained: Pretrained,
    recipe: Recipe,
    say: Callable[[str], None],
) -> dict[str, Result]:
    """Return the results of a pretrained and an untrained encoder on a task in the store.

    Trainings of an earlier call are reused.

    :raises subprocess.CalledProcessError: a command fails; its messages are on stderr.
    :raises ValueError: the store's test split is not the task's.
    """
    models = {
        PRETRAINED: pretrained.encoder,
        UNTRAINED: EncoderSource(uri=None, version_id=None),
    }
    trials = plan(store, task.name, pretrained.lineage_id, models, recipe)
    say(f"fine-tuning: {len(trials.plan.trials)} trainings of {recipe.epochs:g} epochs")
    trials.train()
    labels = TaskManifest.load(store.resolve(trials.plan.manifests[task.name])).labels
    expected = [labels.index(example.label) for example in task.splits[Use.TEST]]
    return {model: _result(trials, model, expected) for model in models}


def _config(task: str, lineage_id: str, recipe: Recipe) -> FinetuningConfig:
    own = {
        "encoder.lineage_id": lineage_id,
        "finetuning.tasks": [task],
        "finetuning.max_seq_length": recipe.max_seq_length,
        "finetuning.num_train_epochs": recipe.epochs,
        "finetuning.learning_rates": [recipe.learning_rate],
        "finetuning.random_seeds": list(recipe.random_seeds),
    }
    return with_overrides(load_finetuning_preset("finetuning_smoke"), own)


def _key(config: FinetuningConfig, manifest: str, models: dict[str, EncoderSource]) -> str:
    encoders = sorted((name, source.files_sha256) for name, source in models.items())
    content = f"{config.sha256} {manifest} {encoders}"
    return hashlib.sha256(content.encode()).hexdigest()[:12]


def _written(store: StoreLayout, key: str, config: FinetuningConfig) -> RunLayout:
    """Return the run with a key, after writing its settings."""
    run = store.run(key)
    Path(run.root).mkdir(parents=True, exist_ok=True)
    Path(run.config).write_bytes(config.to_bytes())
    return run


def _result(trials: Trials, model: str, labels: list[int]) -> Result:
    """Return the result of one model's trials.

    :param labels: ids of the test examples' labels, in the order of the task's file.
    :raises ValueError: the trials were measured on other examples.
    """
    results = trials.results(model)
    metrics = [result.scores[TaskSplit.TEST].metrics for result in results]
    right = [right_ones(_predictions(trials.run, result), labels) for result in results]
    return Result(
        _NAMES[model],
        [found["accuracy"] for found in metrics],
        [found["macro_f1"] for found in metrics],
        np.mean(right, axis=0),
    )


def _predictions(run: RunLayout, result: TrialResult) -> str:
    path = result.scores[TaskSplit.TEST].predictions.path
    return uris.join(run.trial(result.trial.trial_id).root, path)


def right_ones(uri: str, labels: list[int]) -> npt.NDArray[np.bool_]:
    """Return which of the stored predictions are correct.

    :param uri: the predictions, as described in :class:`pipeline_store.formats.TrialScores`.
    :param labels: the expected label ids.
    :raises ValueError: the predictions are for other examples.
    """
    with np.load(io.BytesIO(uris.read(uri))) as stored:
        expected, outputs = stored["labels"], stored["outputs"]
    if expected.tolist() != labels:
        raise ValueError(f"{uri} is about other examples than the task's test split.")
    right: npt.NDArray[np.bool_] = outputs.argmax(axis=1) == expected
    return right
