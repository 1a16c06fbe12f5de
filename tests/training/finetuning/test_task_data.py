"""Reading a prepared task: what verifies is read as it was written, anything else is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pipeline_config.task import TaskKind
from pipeline_store.formats import FormatError, TaskSplit
from tests.training.corpora import TinyStore
from tests.training.finetuning.tasks import KINDS, LENGTH, labels_of, rows, write_task
from trained_models.errors import BadDataError, UserError
from training.finetuning import task_data
from training.finetuning.task_data import Task


@pytest.mark.parametrize("kind", KINDS)
def test_arrays_are_what_was_written(
    tiny: TinyStore, kind: TaskKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_data, "_RECORDS_AT_ONCE", 7)
    examples = Task.load(write_task(tiny, kind=kind)).examples(TaskSplit.TRAIN)
    written = rows(48, seed=0)
    assert len(examples) == 48
    for name, ours in task_data.TOKEN_FEATURES.items():
        assert examples.inputs[ours].dtype == np.int32
        np.testing.assert_array_equal(examples.inputs[ours], written[name])
    labels = labels_of(kind, written)
    labels = labels if kind == "multi_label" else labels[:, 0]
    np.testing.assert_array_equal(examples.known_labels, labels)
    assert examples.known_labels.dtype == (np.int32 if kind == "classification" else np.float32)


def test_examples_to_predict_have_no_labels(tiny: TinyStore) -> None:
    task = Task.load(write_task(tiny, examples={TaskSplit.PREDICT: 5}))
    examples = task.examples(TaskSplit.PREDICT)
    assert (len(examples), examples.labels) == (5, None)
    with pytest.raises(ValueError, match="no labels"):
        _ = examples.known_labels
    with pytest.raises(UserError, match="has no train examples"):
        task.examples(TaskSplit.TRAIN)


def test_a_damaged_file_is_named(tiny: TinyStore) -> None:
    uri = write_task(tiny)
    data = Path(uri).with_name("train.tfrecord")
    content = bytearray(data.read_bytes())
    content[100] ^= 1
    data.write_bytes(content)
    with pytest.raises(FormatError, match=r"train.tfrecord is damaged"):
        Task.load(uri).examples(TaskSplit.TRAIN)
    data.unlink()
    with pytest.raises(FormatError, match=r"train.tfrecord is missing"):
        Task.load(uri).examples(TaskSplit.TRAIN)


def test_an_index_of_another_file_is_refused(tiny: TinyStore) -> None:
    task = Task.load(write_task(tiny))
    train, test = (task.manifest.splits[split] for split in (TaskSplit.TRAIN, TaskSplit.TEST))
    mixed = train.model_copy(update={"index": test.index})
    manifest = task.manifest.model_copy(update={"splits": {TaskSplit.TRAIN: mixed}})
    with pytest.raises(BadDataError, match="25 offsets that do not cut"):
        Task(task.uri, manifest).examples(TaskSplit.TRAIN)


def test_a_label_that_cannot_be_is_refused_with_its_example(tiny: TinyStore) -> None:
    labels = np.array([[0], [2], [3], [1]])
    counts = {TaskSplit.TRAIN: 4}
    uri = write_task(tiny, examples=counts, label_ids={TaskSplit.TRAIN: labels})
    with pytest.raises(BadDataError, match=r"train example 2 has the label \[3\]"):
        Task.load(uri).examples(TaskSplit.TRAIN)


def test_records_of_another_length_are_refused(tiny: TinyStore) -> None:
    task = Task.load(write_task(tiny, max_seq_length=LENGTH + 1))
    with pytest.raises(BadDataError, match="do not hold what the manifest says"):
        task.examples(TaskSplit.TRAIN)


def test_more_than_fits_into_memory_is_refused_before_it_is_read(
    tiny: TinyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = Task.load(write_task(tiny))
    size = 48 * 4 * (3 * LENGTH + 3)
    monkeypatch.setattr(task_data, "MAX_BYTES", size)
    assert len(task.examples(TaskSplit.TRAIN)) == 48
    monkeypatch.setattr(task_data, "MAX_BYTES", size - 1)
    with pytest.raises(UserError, match=f"take {size:,} bytes"):
        task.examples(TaskSplit.TRAIN)
