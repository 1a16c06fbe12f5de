"""Finished trials as the trainer leaves them in the store, with outputs that a test decides."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline_config.task import METRICS, TaskKind
from pipeline_store import uris
from pipeline_store.formats import (
    EncoderSource,
    FileDigest,
    TaskManifest,
    TaskRecords,
    TaskSplit,
    Trial,
    TrialResult,
    TrialScores,
)
from pipeline_store.layout import TrialLayout
from trained_models.downstream import metrics
from trained_models.downstream.trials import FinishedTrial

LABELS = ("animal", "mineral", "plant")
NOTHING = FileDigest(path="x", bytes=0, sha256="0" * 64)
Arrays = tuple[npt.NDArray[Any], npt.NDArray[Any]]


def task_manifest(
    name: str = "things",
    *,
    kind: TaskKind = "classification",
    train: Mapping[str, int] | None = None,
    labels: Sequence[str] = LABELS,
    warnings: Sequence[str] = (),
) -> TaskManifest:
    """Return the manifest of a task whose records nobody reads.

    :param train: training examples by label.
    """
    counts = dict(train or {"animal": 10, "mineral": 50, "plant": 20})
    records = TaskRecords(
        data=NOTHING,
        index=NOTHING,
        sources=NOTHING,
        records=sum(counts.values()),
        labels={} if kind == "regression" else counts,
        truncated=0,
        tokens=1,
    )
    return TaskManifest(
        name=name,
        key="k1",
        task={},
        task_kind=kind,
        compared_by=METRICS[kind][0],
        labels=[] if kind == "regression" else list(labels),
        vocabulary_sha256="0" * 64,
        max_seq_length=16,
        inputs={},
        splits=dict.fromkeys((TaskSplit.TRAIN, TaskSplit.VALIDATION, TaskSplit.TEST), records),
        dropped={},
        dead_letter=None,
        warnings=list(warnings),
    )


def write_trial(
    folder: str,
    manifest: TaskManifest,
    splits: Mapping[TaskSplit, Arrays],
    *,
    model: str = "model",
    rate: float = 1e-3,
    seed: int = 1,
) -> FinishedTrial:
    """Write a trial's result and predictions below a folder of trials.

    :param splits: right labels and outputs by split.
    """
    trial_id = f"{manifest.name}.{model}.{rate:g}.{seed}"
    place = TrialLayout(uris.join(folder, trial_id))
    result = TrialResult(
        trial=Trial(
            trial_id=trial_id,
            task=manifest.name,
            model=model,
            learning_rate=rate,
            random_seed=seed,
        ),
        task_manifest_sha256=manifest.content_sha256,
        encoder=EncoderSource(uri=None, version_id=None),
        settings={},
        train_examples=80,
        train_steps=10,
        train_steps_total=10,
        train_loss=0.5,
        weights_sha256="0" * 64,
        resumed_from=[],
        seconds=1.0,
        examples_per_second=80.0,
        scores={
            split: _scores(place, manifest, split, *arrays) for split, arrays in splits.items()
        },
    )
    result.write(place.result)
    return FinishedTrial(place, result)


def _scores(
    place: TrialLayout,
    manifest: TaskManifest,
    split: TaskSplit,
    labels: npt.NDArray[Any],
    outputs: npt.NDArray[Any],
) -> TrialScores:
    kind, stream = manifest.label_kind, io.BytesIO()
    np.savez(stream, labels=labels, outputs=outputs)
    data, path = stream.getvalue(), f"outputs/abc/predictions-{split}.npz"
    uris.write(uris.join(place.root, path), data)
    return TrialScores(
        examples=len(labels),
        loss=float(metrics.example_losses(kind, labels, outputs).mean()),
        metrics=metrics.scores(kind, labels, outputs),
        per_label=metrics.per_label(kind, labels, outputs, manifest.labels),
        confusion=metrics.confusion(labels, outputs) if kind == "classification" else [],
        predictions=FileDigest.of(path, data),
    )


def guesses(labels: npt.NDArray[Any], right: float, seed: int, count: int = 3) -> Arrays:
    """Return the labels, and outputs that are right for a share of them."""
    random = np.random.default_rng(seed)
    wrong = (labels + random.integers(1, count, len(labels))) % count
    chosen = np.where(random.random(len(labels)) < right, labels, wrong)
    return labels, np.eye(count)[chosen]
