"""Checks whether a trained classifier may be scored on a task as it is now."""

from __future__ import annotations

from collections.abc import Iterator

from pipeline_config import TaskConfig
from pipeline_store.formats import TaskManifest, TaskSplit
from trained_models.errors import UserError
from training.finetuning.trained import TrainedTrial

_HELD_OUT = (TaskSplit.VALIDATION, TaskSplit.TEST)


def check_fits(manifest: TaskManifest, trained: TrainedTrial) -> None:
    """Refuse a task whose inputs or outputs differ from a model's.

    :raises UserError: the message lists every difference.
    """
    pairs = {
        "kind": (manifest.label_kind, trained.kind),
        "labels": (manifest.labels, trained.labels),
        "vocabulary": (manifest.vocabulary_sha256, trained.inputs.vocabulary_sha256),
        "finetuning.max_seq_length": (manifest.max_seq_length, trained.max_seq_length),
    }
    problems = [
        f"its {name} are others than the model's"  # not which: they stand in somebody's files
        if name == "labels"
        else f"its {name} is {ours!r}, the model's {theirs!r}"
        for name, (ours, theirs) in pairs.items()
        if ours != theirs
    ]
    if problems:
        raise UserError(
            f"Task {manifest.name!r} is not what the model was trained for: "
            f"{'; '.join(problems)}. Give the task those, or train on it."
        )


def check_splits(manifest: TaskManifest, trained_on: TaskManifest) -> None:
    """Refuse a task whose validation or test examples the model may have been trained on.

    Splits that are drawn from the training files by a hash of the texts have to be drawn as they
    were for training; additional training examples change nothing. A split may get files of its
    own, but none that were trained on.

    :param manifest: manifest of the task to score on.
    :param trained_on: manifest of the task that the model was trained on.
    :raises UserError: the message lists every difference.
    """
    if problems := [*_drawn_otherwise(manifest, trained_on), *_trained_files(manifest, trained_on)]:
        raise UserError(
            f"Task {manifest.name!r}: the model may have been trained on the examples that are to "
            f"measure it: {'; '.join(problems)}. Restore that in its task.toml and prepare it "
            "again, or train on the task as it is now."
        )


def _drawn_otherwise(manifest: TaskManifest, trained_on: TaskManifest) -> Iterator[str]:
    now, then = (TaskConfig.model_validate(one.task) for one in (manifest, trained_on))
    drawn = [split for split in _HELD_OUT if getattr(now, split) is None]
    for split in drawn:
        name = f"{split}_fraction"
        if getattr(then, split) is not None:
            yield f"its {split} examples are drawn from the training files, and had files then"
        elif getattr(now, name) != getattr(then, name):
            yield f"{name} is {getattr(now, name):g}, and was {getattr(then, name):g} then"
    # Splits are drawn by the hash of these columns.
    for name in ("text_column", "text_pair_column") if drawn else ():
        if getattr(now, name) != getattr(then, name):
            yield f"{name} names another column than then"


def _trained_files(manifest: TaskManifest, trained_on: TaskManifest) -> Iterator[str]:
    trained = {file.sha256 for file in trained_on.inputs.get(TaskSplit.TRAIN, [])}
    for split in _HELD_OUT:
        for file in manifest.inputs.get(split, []):
            if file.sha256 in trained:
                yield f"{file.uri}, a {split} file, was one of the training files then"
