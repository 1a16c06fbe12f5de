"""Finds examples of equal text in several splits, or with different labels."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from beam_jobs.labelled.facts import NAMED_PLACES
from beam_jobs.labelled.task_examples import Decided, Places, TaskExamples, some
from corpus.labelled.labels import ExampleProblem
from pipeline_config import TaskConfig
from pipeline_store.formats import TaskSplit

_HELD_OUT = (TaskSplit.VALIDATION, TaskSplit.TEST)


def remove_leaks(examples: TaskExamples, task: TaskConfig, decided: Decided) -> None:
    """Report texts of validation and test examples that are also in another split.

    Training examples whose text is held out are left out.
    """
    for split in _HELD_OUT:
        mine = examples.of(split)
        others = {TaskSplit.TRAIN, *_HELD_OUT} - {split}
        elsewhere = np.flatnonzero(examples.of(*others))
        leaked = np.flatnonzero(mine & np.isin(examples.groups, examples.groups[elsewhere]))
        if not len(leaked):
            continue
        total = np.count_nonzero(mine)
        found = (
            f"{split}: {len(leaked)} of {total} examples have a text that is also in another split "
            f"({_twins(examples, leaked, elsewhere)})"
        )
        if len(leaked) > task.max_leak_fraction * total:
            decided.refusals.append(f"{found}, over max_leak_fraction={task.max_leak_fraction:g}")
        else:
            decided.warnings.append(f"{found}; copies in train are left out")
    held_out = examples.groups[examples.of(*_HELD_OUT)]
    copies = np.flatnonzero(examples.of(TaskSplit.TRAIN) & np.isin(examples.groups, held_out))
    for place in copies.tolist():
        examples.leave_out(place, ExampleProblem.LEAKED, "its text is held out")
    if len(copies):
        decided.dropped[ExampleProblem.LEAKED] = len(copies)


def _twins(examples: TaskExamples, leaked: Places, elsewhere: Places) -> str:
    """Return the places of the first leaked examples, each with another place of its text."""
    groups = examples.groups
    pairs = []
    for place in leaked[:NAMED_PLACES].tolist():
        twin = int(elsewhere[np.argmax(groups[elsewhere] == groups[place])])
        pairs.append(f"{examples.place(place)} = {examples.place(twin)}")
    return some(pairs, len(leaked))


def contradictions(examples: TaskExamples) -> Iterator[str]:
    """Yield a line if training examples of equal text have different labels."""
    train = np.flatnonzero(examples.of(TaskSplit.TRAIN))
    pairs = np.stack([examples.groups[train], _signatures(examples)[train]], axis=1)
    groups, labels = np.unique(np.unique(pairs, axis=0)[:, 0], return_counts=True)
    places = train[np.isin(examples.groups[train], groups[labels > 1])]
    if len(places):
        by_text = places[np.argsort(examples.groups[places], kind="stable")]
        yield (
            f"train: {len(places)} examples have the text of another one with another label "
            f"({examples.places(by_text)})"
        )


def _signatures(examples: TaskExamples) -> Places:
    """Return int64 [M], equal for examples of equal labels or numbers.

    A set of labels is identified by the sum of a random number per label; the sums of two different
    sets are practically never equal.
    """
    draws = np.random.default_rng(0).integers(1 << 62, size=len(examples.names))
    sums = np.unique(examples.values, return_inverse=True)[1].astype(np.int64)
    np.add.at(sums, examples.owners, draws[examples.codes])
    return sums
