"""Decides on the examples of a task: their splits, the labels, and reasons to refuse the task.

This is done in one place, from the facts of all files.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np

from beam_jobs.labelled.copies import contradictions, remove_leaks
from beam_jobs.labelled.facts import NAMED_PLACES, FileFacts, Noted
from beam_jobs.labelled.task_examples import SPLITS, Decided, TaskExamples, place_of, some
from corpus.labelled.labels import HARMLESS, ExampleProblem, ordered
from corpus.text.drops import BAD_FILE
from pipeline_config import TaskConfig
from pipeline_config.task import MIN_COMPARED_EXAMPLES, MIN_JUDGED_EXAMPLES, ONE_LABEL_ALONE
from pipeline_store.formats import TaskSplit

_RARE = 0.1


def decide(facts: Sequence[FileFacts], task: TaskConfig) -> Decided:
    """Divide a task's examples into splits and check them.

    :param facts: facts of every file, in order of their numbers.
    """
    examples = TaskExamples(facts, task)
    decided = Decided()
    if task.kind != "regression":
        decided.labels = task.labels or _training_labels(examples)
        _leave_out_unseen(examples, set(decided.labels))
    refused = _judge_unusable(examples, task, decided)
    remove_leaks(examples, task, decided)
    splits = _wanted_splits(examples)
    decided.label_counts = {split: examples.label_counts(split, decided.labels) for split in splits}
    decided.refusals += [
        *_empty(examples, splits, refused),
        *_nothing_to_learn(examples, task, decided),
        *_too_few_to_test(examples, refused, MIN_COMPARED_EXAMPLES, "to compare models on"),
    ]
    decided.warnings += [
        *contradictions(examples),
        *_unbalanced(examples, decided),
        *_too_few_to_test(examples, refused, MIN_JUDGED_EXAMPLES, "for a verdict on models"),
    ]
    decided.assigned = examples.assigned()
    decided.letters = examples.letters
    return decided


def _wanted_splits(examples: TaskExamples) -> list[TaskSplit]:
    has_predict = any(one.file.split is TaskSplit.PREDICT for one in examples.facts)
    return [split for split in SPLITS if split is not TaskSplit.PREDICT or has_predict]


def _training_labels(examples: TaskExamples) -> list[str]:
    codes = np.unique(examples.codes[examples.of(TaskSplit.TRAIN)[examples.owners]])
    return ordered({examples.names[code] for code in codes})


def _leave_out_unseen(examples: TaskExamples, known: set[str]) -> None:
    """Leave out examples with a label that is none of the task's: a model could not learn it."""
    if not np.any(examples.of(TaskSplit.TRAIN)):
        return
    unseen = np.array([name not in known for name in examples.names], bool)
    left_out = set()
    for entry in np.flatnonzero(unseen[examples.codes]).tolist():
        place = int(examples.owners[entry])
        if place not in left_out:
            left_out.add(place)
            split = SPLITS[examples.splits[place]]
            detail = f"no training example has the label of this {split} example"
            examples.leave_out(place, ExampleProblem.UNSEEN_LABEL, detail)


def _judge_unusable(examples: TaskExamples, task: TaskConfig, decided: Decided) -> set[TaskSplit]:
    """Refuse splits with too many unusable examples; warn of unusable examples in the others.

    :returns: the refused splits.
    """
    refused = set(SPLITS)
    for split in SPLITS:
        files = [one for one in examples.facts if one.file.split is split]
        late = examples.left_out.get(split, {})
        noted = _noted(files, late)
        decided.dropped.update({reason: one.count for reason, one in noted.items()})
        never_usable = _count(noted) - _count(late)
        total = sum(map(len, files)) + never_usable
        bad = {reason: one for reason, one in noted.items() if reason not in HARMLESS}
        if any(reason in BAD_FILE for reason in bad):
            decided.refusals.append(f"{split}: a file cannot be read: {_listed(bad)}")
        elif noted and not total - never_usable:
            decided.refusals.append(
                f"{split}: none of {total} examples can be used: {_listed(noted)}"
            )
        elif _count(bad) > task.max_bad_fraction * total:
            decided.refusals.append(
                f"{split}: {_count(bad)} of {total} examples cannot be used, over "
                f"max_bad_fraction={task.max_bad_fraction:g}: {_listed(bad)}"
            )
        else:
            refused.discard(split)
            if noted:
                decided.warnings.append(
                    f"{split}: {_count(noted)} of {total} examples are left out: {_listed(noted)}"
                )
    return refused


def _noted(facts: Sequence[FileFacts], late: Mapping[str, Noted]) -> dict[str, Noted]:
    """Return the unusable examples of several files by reason; the details name their places."""
    noted: dict[str, Noted] = {}
    for one in facts:
        for reason, found in one.unusable.items():
            into = noted.setdefault(reason, Noted())
            into.count += found.count
            into.first += [
                (line, f"{place_of(one.file, line)}: {detail}") for line, detail in found.first
            ]
    return noted | dict(late)


def _count(noted: Mapping[str, Noted]) -> int:
    return sum(one.count for one in noted.values())


def _listed(noted: Mapping[str, Noted]) -> str:
    parts = []
    for reason, one in noted.items():
        details = "; ".join(detail for _, detail in one.first[:NAMED_PLACES])
        more = "; …" if one.count > NAMED_PLACES else ""
        parts.append(f"{reason} {one.count} ({details}{more})")
    return ", ".join(parts)


def _empty(
    examples: TaskExamples, splits: Sequence[TaskSplit], refused: Collection[TaskSplit]
) -> Iterator[str]:
    for split in splits:
        share = examples.fractions.get(split)
        source = split if share is None else TaskSplit.TRAIN
        if source not in refused and not np.any(examples.of(split)):
            why = "" if share is None else f"; {split}_fraction is {share:g}"
            yield f"{split}: no example is left{why}. Add examples, or name files"


def _too_few_to_test(
    examples: TaskExamples, refused: Collection[TaskSplit], least: int, purpose: str
) -> Iterator[str]:
    count = np.count_nonzero(examples.of(TaskSplit.TEST))
    share = examples.fractions.get(TaskSplit.TEST)
    source = TaskSplit.TEST if share is None else TaskSplit.TRAIN
    if source not in refused and 0 < count < least:
        more = "add examples to its files"
        if share is not None:
            more = f"add examples, raise test_fraction={share:g}, or name files"
        yield (
            f"test: {count} {'example is' if count == 1 else 'examples are'} too few {purpose}, "
            f"at least {least} are needed; {more}"
        )


def _nothing_to_learn(examples: TaskExamples, task: TaskConfig, decided: Decided) -> Iterator[str]:
    values = examples.values[examples.of(TaskSplit.TRAIN)]
    if not len(values):
        return
    if task.kind == "regression":
        if np.all(values == values[0]):
            yield f"train: all {len(values)} examples have the same number"
        return
    counts = decided.label_counts[TaskSplit.TRAIN]
    if task.kind == "multi_label" and len(counts) == 1:
        yield f"train: {ONE_LABEL_ALONE}"
    elif len(counts) < 2:
        what = "the same label" if counts else "no label"
        yield f"train: all {len(values)} examples have {what}, so there is nothing to decide"
    least = task.min_examples_per_label
    if rare := [label for label, count in counts.items() if count < least]:
        named = some([f"{counts[label]} {_told(examples, decided, label)}" for label in rare])
        yield (
            f"train: {len(rare)} of {len(counts)} labels have fewer examples than "
            f"min_examples_per_label={least}: {named}"
        )


def _told(examples: TaskExamples, decided: Decided, label: str) -> str:
    """Refer to a label without quoting it: by an example of it, or else by its number."""
    place = examples.example_of(label)
    return (
        f"of number {decided.labels.index(label) + 1} of labels"
        if place is None
        else f"as at {place}"
    )


def _unbalanced(examples: TaskExamples, decided: Decided) -> Iterator[str]:
    counts = decided.label_counts[TaskSplit.TRAIN]
    if not counts:
        return
    most, least = max(counts.values()), min(counts.values())
    if least < _RARE * most:
        yield (
            f"train: labels are unbalanced: one has {most} examples, another {least}; look at "
            "macro_f1, or set finetuning.class_weights"
        )
    tested = decided.label_counts[TaskSplit.TEST]
    if missing := [_told(examples, decided, label) for label in counts if not tested[label]]:
        yield f"test: {len(missing)} labels have no example: {some(missing)}"
