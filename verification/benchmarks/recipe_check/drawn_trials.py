"""Makes trials of models with a given accuracy, stored as the trainer stores them."""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline_store import uris
from pipeline_store.formats import (
    EncoderSource,
    FileDigest,
    TaskManifest,
    TaskSplit,
    Trial,
    TrialResult,
    TrialScores,
)
from pipeline_store.layout import TrialLayout
from trained_models.downstream import metrics
from trained_models.downstream.trials import FinishedTrial


@dataclass(frozen=True)
class DrawnModel:
    """A model of a classification task.

    :ivar encoder: the encoder it was trained from.
    :ivar right: probability that it is right, for each of the N test examples, shape [N].
    :ivar seed: seed of the draws; each trial adds its own.
    """

    name: str
    encoder: EncoderSource
    right: npt.NDArray[np.float64]
    seed: int


def write_trial(
    folder: str,
    manifest: TaskManifest,
    labels: npt.NDArray[np.int64],
    model: DrawnModel,
    random_seed: int,
) -> FinishedTrial:
    """Store a trial's result and its predictions of the test split below a folder of trials.

    :param labels: the correct labels, by ``example_id``, shape [N].
    """
    trial = Trial(
        trial_id=f"{manifest.name}.{model.name}.0.{random_seed}",
        task=manifest.name,
        model=model.name,
        learning_rate=0,
        random_seed=random_seed,
    )
    place = TrialLayout(uris.join(folder, trial.trial_id))
    outputs = _outputs(labels, len(manifest.labels), model, random_seed)
    result = TrialResult(
        trial=trial,
        task_manifest_sha256=manifest.content_sha256,
        encoder=model.encoder,
        settings={},
        train_examples=manifest.splits[TaskSplit.TRAIN].records,
        train_steps=0,
        train_steps_total=0,
        train_loss=0,
        weights_sha256=hashlib.sha256().hexdigest(),
        resumed_from=[],
        seconds=0,
        examples_per_second=0,
        scores={TaskSplit.TEST: _scores(place, manifest, labels, outputs)},
    )
    result.write(place.result)
    return FinishedTrial(place, result)


def _outputs(
    labels: npt.NDArray[np.int64], count: int, model: DrawnModel, random_seed: int
) -> npt.NDArray[np.float64]:
    """Return drawn outputs, each largest at the correct label or at another one, shape [N, L]."""
    random = np.random.default_rng((model.seed, random_seed))
    wrong = (labels + random.integers(1, count, len(labels))) % count
    is_right = random.random(len(labels)) < model.right
    return np.eye(count)[np.where(is_right, labels, wrong)]


def _scores(
    place: TrialLayout,
    manifest: TaskManifest,
    labels: npt.NDArray[np.int64],
    outputs: npt.NDArray[Any],
) -> TrialScores:
    stream, path = io.BytesIO(), f"predictions-{TaskSplit.TEST}.npz"
    np.savez(stream, labels=labels, outputs=outputs)
    data, kind = stream.getvalue(), manifest.label_kind
    uris.write(uris.join(place.root, path), data)
    return TrialScores(
        examples=len(labels),
        loss=float(metrics.example_losses(kind, labels, outputs).mean()),
        metrics=metrics.scores(kind, labels, outputs),
        predictions=FileDigest.of(path, data),
    )
