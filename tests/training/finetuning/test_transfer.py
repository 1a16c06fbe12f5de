"""Whether a model may be measured on a task that has changed since it was trained."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline_store.formats import TaskInput, TaskManifest, TaskSplit
from trained_models.errors import UserError
from training.finetuning.transfer import check_splits


def manifest(inputs: dict[TaskSplit, list[str]] | None = None, **task: Any) -> TaskManifest:
    """Return a task's manifest.

    :param inputs: names of its files, whose content is another for each name.
    """
    files = inputs or {TaskSplit.TRAIN: ["train"]}
    return TaskManifest(
        name="things",
        key="k",
        task=task,
        task_kind="classification",
        compared_by="accuracy",
        labels=["a", "b"],
        vocabulary_sha256="0",
        max_seq_length=16,
        inputs={
            split: [TaskInput(uri=name, sha256=f"of {name}", bytes=1) for name in names]
            for split, names in files.items()
        },
        splits={},
        dropped={},
        dead_letter=None,
        warnings=[],
    )


FILES = {"validation": "validation.*", "test": "test.*"}
EXAM = {TaskSplit.TRAIN: ["train"], TaskSplit.TEST: ["exam"]}


@pytest.mark.parametrize(
    ("now", "then"),
    [
        (manifest(), manifest()),
        # Of more examples each old one is where it was.
        (manifest({TaskSplit.TRAIN: ["train", "more"]}), manifest()),
        (manifest(EXAM, test="exam.tsv"), manifest()),
        (manifest(test_fraction=0.3, **FILES), manifest(**FILES)),
        (manifest(text_column="body", **FILES), manifest(**FILES)),
        (manifest(max_bad_fraction=0.5), manifest()),
    ],
)
def test_a_task_that_held_out_the_same_examples_is_measured_on(
    now: TaskManifest, then: TaskManifest
) -> None:
    check_splits(now, then)


@pytest.mark.parametrize(
    ("now", "then", "message"),
    [
        (manifest(test_fraction=0.3), manifest(), "test_fraction is 0.3, and was 0.1 then"),
        (
            manifest(validation_fraction=0.2),
            manifest(),
            "validation_fraction is 0.2, and was 0.1 then",
        ),
        (manifest(), manifest(test="test.*"), "its test examples are drawn from the training"),
        (manifest(text_column="body"), manifest(), "text_column names another column than then"),
        (manifest(text_pair_column="b"), manifest(), "text_pair_column names another column"),
        (
            manifest({TaskSplit.TRAIN: ["new"], TaskSplit.TEST: ["train"]}, **FILES),
            manifest(**FILES),
            "train, a test file, was one of the training files then",
        ),
    ],
)
def test_a_task_that_may_hold_out_what_was_trained_on_is_refused(
    now: TaskManifest, then: TaskManifest, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        check_splits(now, then)
