"""Makes the result of a trial, and checks whether an existing one matches the request.

It needs no TensorFlow.
"""

from __future__ import annotations

import uuid

from pydantic import JsonValue

from pipeline_config.finetuning import RecipeConfig
from pipeline_store import uris
from pipeline_store.formats import (
    EncoderSource,
    TaskManifest,
    TaskSplit,
    TrainingResult,
    Trial,
    TrialResult,
    TrialScores,
)
from pipeline_store.layout import TrialLayout
from trained_models.errors import UserError

# Settings that a trial's weights do not depend on, or that the trial itself records.
_ELSEWHERE = {
    *("mode", "source_run", "tasks", "learning_rates", "random_seeds", "parallel_tpus"),
    *("export_formats", "steps_per_loop", "eval_batch_size", "distribution_strategy"),
    "max_seq_length",
}


def recipe_settings(recipe: RecipeConfig) -> dict[str, JsonValue]:
    """Return the settings that a trial's weights depend on, by their full names."""
    settings = recipe.model_dump(mode="json", exclude=_ELSEWHERE)
    return {f"finetuning.{name}": value for name, value in settings.items()}


def require_same(
    found: TrialResult,
    uri: str,
    *,
    trial: Trial,
    encoder: EncoderSource,
    manifest: TaskManifest,
    recipe: RecipeConfig,
) -> None:
    """Refuse the result of a trial that was trained with other settings than requested.

    :param found: the existing result, at ``uri``.
    :raises UserError: the message lists every difference.
    """
    now = _facts(trial, encoder, manifest.content_sha256, recipe)
    _refuse(_facts_of(found), now, uri)


def require_same_model(
    found: TrialResult, uri: str, source: TrialResult, manifest: TaskManifest
) -> None:
    """Refuse scores of another model, or on another task, than requested.

    :param found: the existing result, at ``uri``.
    :param source: the trial whose model is scored.
    :raises UserError: the message lists every difference.
    """
    now = _facts_of(source) | {"the task's manifest": manifest.content_sha256}
    _refuse(
        _facts_of(found) | {"the model": found.weights_sha256},
        now | {"the model": source.weights_sha256},
        uri,
    )


def new_outputs(layout: TrialLayout) -> str:
    """Return a path relative to a trial's folder for the files of this attempt alone."""
    return layout.attempt_files(uuid.uuid4().hex[:8]).removeprefix(uris.join(layout.root, ""))


def result_of(
    training: TrainingResult,
    *,
    trial: Trial,
    encoder: EncoderSource,
    manifest: TaskManifest,
    recipe: RecipeConfig,
    train_examples: int,
    scores: dict[TaskSplit, TrialScores],
) -> TrialResult:
    """Return the result of a trained and scored trial.

    :param train_examples: number of examples that it was trained on.
    """
    steps = training.steps_done or training.train_steps
    return TrialResult(
        trial=trial,
        task_manifest_sha256=manifest.content_sha256,
        encoder=encoder,
        settings=recipe.model_dump(mode="json"),
        train_examples=train_examples,
        train_steps=training.train_steps,
        train_steps_total=steps,
        train_loss=training.final_loss,
        weights_sha256=training.weights_sha256,
        resumed_from=training.resumed_from,
        seconds=training.seconds,
        examples_per_second=steps * recipe.global_batch_size / max(training.seconds, 1e-3),
        scores=scores,
    )


def _facts_of(result: TrialResult) -> dict[str, JsonValue]:
    recipe = RecipeConfig.model_validate(result.settings)
    return _facts(result.trial, result.encoder, result.task_manifest_sha256, recipe)


def _facts(
    trial: Trial, encoder: EncoderSource, manifest_sha256: str, recipe: RecipeConfig
) -> dict[str, JsonValue]:
    return {
        "the learning rate": trial.learning_rate,
        "the random seed": trial.random_seed,
        "the encoder": encoder.files_sha256 or encoder.uri,
        "the task's manifest": manifest_sha256,
        **recipe_settings(recipe),
    }


def _refuse(before: dict[str, JsonValue], now: dict[str, JsonValue], uri: str) -> None:
    differences = [
        f"{name} was {before[name]!r} and is {asked!r}"
        for name, asked in now.items()
        if before[name] != asked
    ]
    if differences:
        raise UserError(
            f"{uri} is there already, but of another trial: {'; '.join(differences)}. Restore what "
            "differs, delete the trial's folder to do it again, or start a new run."
        )
