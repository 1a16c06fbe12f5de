"""Small prepared tasks, written through the contract's formats, and trials on them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pipeline_config.finetuning import RecipeConfig
from pipeline_config.task import METRICS, TaskKind
from pipeline_store.formats import (
    EncoderSource,
    FileDigest,
    TaskManifest,
    TaskRecords,
    TaskSplit,
    Trial,
    TrialResult,
)
from pipeline_store.layout import TrialLayout
from tests.training.corpora import CLS, FIRST_WORD, SEP, TinyStore
from trained_models.commit import CommitGuard
from training.runtime.job import StopRequest

if TYPE_CHECKING:
    from training.finetuning.trial import TrialJob

Array = npt.NDArray[Any]
LENGTH = 16
WORDS = 40
LABELS = ("animal", "mineral", "plant")
KINDS: tuple[TaskKind, ...] = ("classification", "multi_label", "regression")

RECIPE = RecipeConfig(
    max_seq_length=LENGTH,
    num_train_epochs=3.0,
    global_batch_size=8,
    eval_batch_size=16,
    learning_rates=[3e-3],
    steps_per_loop=2,
    distribution_strategy="one_device",
)


def rows(count: int, seed: int) -> dict[str, Array]:
    """Return rows of words at random, of different lengths."""
    draw = np.random.default_rng(seed)
    lengths = draw.integers(LENGTH // 2, LENGTH + 1, (count, 1))
    columns = np.arange(LENGTH)
    mask = columns < lengths
    words = draw.integers(FIRST_WORD, FIRST_WORD + WORDS, (count, LENGTH)) * mask
    words[:, 0] = CLS
    words[np.arange(count), lengths[:, 0] - 1] = SEP
    return {
        "input_ids": words,
        "input_mask": mask.astype(np.int64),
        "segment_ids": np.zeros((count, LENGTH), np.int64),
    }


def labels_of(kind: TaskKind, features: Mapping[str, Array]) -> Array:
    """Return labels that the words decide: of which third of them there are most."""
    words = features["input_ids"]
    thirds = (words - FIRST_WORD) * len(LABELS) // WORDS
    real = words >= FIRST_WORD
    shares = np.stack([((thirds == n) & real).sum(axis=1) for n in range(len(LABELS))], axis=1)
    if kind == "classification":
        return np.argmax(shares, axis=1)[:, None]
    if kind == "multi_label":
        return (shares > shares.mean(axis=1, keepdims=True)).astype(np.int64)
    return (shares[:, :1] / real.sum(axis=1, keepdims=True)).astype(np.float32)


def write_task(
    store: TinyStore,
    name: str = "kind-of-thing",
    *,
    kind: TaskKind = "classification",
    examples: Mapping[TaskSplit, int] | None = None,
    label_ids: Mapping[TaskSplit, Array] | None = None,
    **changes: Any,
) -> str:
    """Write a prepared task and return the URI of its manifest.

    :param examples: how many there are, by split.
    :param label_ids: instead of those that the words decide.
    :param changes: fields of the manifest that are to lie.
    """
    counts = examples or {TaskSplit.TRAIN: 48, TaskSplit.VALIDATION: 20, TaskSplit.TEST: 24}
    layout = store.layout.task(name)
    folder = Path(layout.preparation("k1"))
    folder.mkdir(parents=True)
    splits = {}
    for number, (split, count) in enumerate(counts.items()):
        features = rows(count, seed=number)
        if split is not TaskSplit.PREDICT:
            given = (label_ids or {}).get(split)
            features["label_ids"] = labels_of(kind, features) if given is None else given
        features["example_id"] = np.arange(count)[:, None]
        splits[split] = _write_records(folder, split, features)
    fields: dict[str, Any] = {
        "name": name,
        "key": "k1",
        "task": {},
        "task_kind": kind,
        "compared_by": METRICS[kind][0],
        "labels": [] if kind == "regression" else list(LABELS),
        "vocabulary_sha256": store.vocabulary_sha256,
        "max_seq_length": LENGTH,
        "inputs": {},
        "splits": splits,
        "dropped": {},
        "dead_letter": None,
        "warnings": [],
    }
    TaskManifest(**fields | changes).write(layout.manifest("k1"))
    return layout.manifest("k1")


def _write_records(folder: Path, split: TaskSplit, features: Mapping[str, Array]) -> TaskRecords:
    import tensorflow as tf

    data, index = folder / f"{split}.tfrecord", folder / f"{split}.index"
    sizes = [0]
    with tf.io.TFRecordWriter(str(data)) as writer:
        for row in range(len(features["example_id"])):
            example = tf.train.Example()
            for name, values in features.items():
                feature = example.features.feature[name]
                real = np.issubdtype(values.dtype, np.floating)
                target = feature.float_list if real else feature.int64_list
                target.value.extend(values[row].tolist())
            serialized = example.SerializeToString()
            writer.write(serialized)
            sizes.append(12 + len(serialized) + 4)
    index.write_bytes(np.cumsum(np.array(sizes, np.uint64)).astype("<u8").tobytes())
    records = len(sizes) - 1
    sources = folder / f"{split}.sources"
    lines = np.stack([np.zeros(records), np.arange(1, records + 1)], axis=1)
    sources.write_bytes(lines.astype("<i8").tobytes())
    return TaskRecords(
        data=_digest(data),
        index=_digest(index),
        sources=_digest(sources),
        records=records,
        labels={},
        truncated=0,
        tokens=int(features["input_mask"].sum()),
    )


def _digest(path: Path) -> FileDigest:
    return FileDigest.of(path.name, path.read_bytes())


def trial_job(
    store: TinyStore,
    manifest_uri: str,
    folder: str = "trial",
    *,
    init: str | None = None,
    rate: float = 3e-3,
    seed: int = 1,
    **recipe: Any,
) -> TrialJob:
    """Return a trial on a task.

    :param folder: name of its own below the runs.
    :param init: training folder or version of the encoder; None: random weights.
    :param recipe: settings other than :data:`RECIPE`.
    """
    from training.finetuning.trial import TrialJob

    return TrialJob(
        trial=Trial(
            trial_id=f"task.model.{rate:g}.{seed}",
            task="kind-of-thing",
            model="model",
            learning_rate=rate,
            random_seed=seed,
        ),
        encoder=EncoderSource(uri=init, version_id=None),
        manifest_uri=manifest_uri,
        recipe=RECIPE.model_copy(update=recipe),
        model=store.config.model,
        tpu=store.config.tpu,
        store=store.layout,
        layout=TrialLayout(f"{store.layout.root}/trials/{folder}"),
    )


class StopAfter(StopRequest):
    """A stop request that arrives after some loops of steps."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self._looks = looks

    @property
    def requested(self) -> bool:
        self._looks -= 1
        return self._looks < 0


def do(job: TrialJob, stop: StopRequest | None = None) -> TrialResult:
    """Do a trial in this process."""
    from training.finetuning.trial import make_strategy, train_trial

    return train_trial(
        job,
        strategy=make_strategy(job.recipe, job.model, job.tpu),
        guard=CommitGuard.from_environment(),
        stop=stop or StopRequest(),
    )
