"""Reads the examples of text-to-text tasks, splits and checks them. It needs no TensorFlow."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from corpus.errors import JobError as CorpusError
from corpus.labelled.labels import HARMLESS, Unusable
from corpus.labelled.reading import (
    FORMATS,
    TRIED_FILES,
    Example,
    file_format,
    read_pairs,
    why_unusable,
)
from corpus.text.drops import RejectedFileError
from corpus.text.inputs import list_inputs
from pipeline_config.text_to_text import TextTask
from pipeline_store import request_paths
from pipeline_store.formats import TaskSplit
from pipeline_store.layout import StoreLayout
from trained_models.errors import BadDataError, UserError

_NAMED = 3
_HELD_OUT = (TaskSplit.VALIDATION, TaskSplit.TEST)


class Pair(NamedTuple):
    """A text, its target, and the file and line of both."""

    text: str
    target: str
    uri: str
    line: int

    @property
    def place(self) -> str:
        """Return its file and line in readable form."""
        return f"{self.uri.rpartition('/')[2]} line {self.line}"


@dataclass
class TaskText:
    """A task's examples.

    :param splits: examples by split.
    :param files: files that were read, by the split that names them.
    :param left_out: number of unused examples by reason.
    :param truncated: number of examples whose text or target is cut, set when rows are made.
    """

    task: TextTask
    splits: dict[TaskSplit, list[Pair]] = field(default_factory=dict)
    files: dict[TaskSplit, list[str]] = field(default_factory=dict)
    left_out: Counter[str] = field(default_factory=Counter)
    truncated: Counter[TaskSplit] = field(default_factory=Counter)

    @property
    def labels(self) -> list[str]:
        """Return the targets of the training examples, sorted, each once."""
        return sorted({pair.target for pair in self.splits[TaskSplit.TRAIN]})


def read_task(task: TextTask, folder: str) -> TaskText:
    """Return a task's examples.

    :param folder: folder that its patterns are relative to.
    :raises UserError: a pattern names no file, or a split has no example.
    :raises BadDataError: more examples than the task allows are unusable or in two splits.
    """
    found = TaskText(task)
    for split, pattern in _patterns(task).items():
        found.files[split] = _files(task, split, pattern, folder)
        found.splits[split] = list(_read_split(found, split))
    _divide(found)
    _refuse_leaks(found)
    return checked(found)


def checked(found: TaskText) -> TaskText:
    """Check that a task's examples are suitable for training and scoring; return them.

    :raises UserError: a split has no example, or there is only one label.
    :raises BadDataError: a label is in no training example.
    """
    task = found.task
    for split, pairs in found.splits.items():
        if not pairs:
            raise UserError(
                f"task {task.name}: there is no {split} example. Name files with some, or, of a "
                f"split that is to be left out, set {split}_fraction to 0."
            )
    if task.target == "label":
        _check_labels(found)
    return found


def _patterns(task: TextTask) -> dict[TaskSplit, str]:
    given = {
        TaskSplit.TRAIN: task.train,
        TaskSplit.VALIDATION: task.validation,
        TaskSplit.TEST: task.test,
    }
    return {split: pattern for split, pattern in given.items() if pattern is not None}


def first_problems(task: TextTask, folder: str) -> Iterator[str]:
    """Yield a line for every quickly detectable reason why a task cannot be read.

    Of each split's first files, only the examples up to the first usable one are read.
    """
    found = TaskText(task)
    for split, pattern in _patterns(task).items():
        try:
            found.files[split] = _files(task, split, pattern, folder)
        except UserError as error:
            yield str(error)
            continue
        for uri in found.files[split][:TRIED_FILES]:
            read = partial(read_pairs, input_format=file_format(uri, task), task=task)
            if reason := why_unusable(uri, read):
                yield f"task {task.name}: {split}: {uri}: {reason}."


def _files(task: TextTask, split: TaskSplit, pattern: str, folder: str) -> list[str]:
    where = f"task {task.name}: {split}"
    try:
        files = list_inputs(pattern, "", StoreLayout(folder), where)
    except CorpusError as error:
        raise UserError(str(error)) from None
    for uri in files:
        if file_format(uri, task) not in FORMATS:
            raise UserError(
                f"{where}: {uri} ends in none of .{', .'.join(FORMATS)}; set input_format, or "
                "name a narrower pattern."
            )
    return files


def _read_split(found: TaskText, split: TaskSplit) -> Iterator[Pair]:
    """Yield the usable examples of a split's files; refuse too many unusable ones."""
    task, unusable, count = found.task, [], 0
    for item, uri in _items(found, split):
        if isinstance(item, Example):
            count += 1
            text, target = item.texts
            yield Pair(text, target.strip(), uri, item.line)
            continue
        found.left_out[item.reason] += 1
        if item.reason not in HARMLESS:
            unusable.append(f"{uri.rpartition('/')[2]} line {item.line}: {item.detail}")
    total = count + len(unusable)
    if len(unusable) > task.max_bad_fraction * total:
        raise BadDataError(
            f"task {task.name}: {len(unusable):,} of {total:,} {split} examples cannot be used, "
            f"and max_bad_fraction is {task.max_bad_fraction:g}: {_some(unusable)}."
        )


def _items(found: TaskText, split: TaskSplit) -> Iterator[tuple[Example | Unusable, str]]:
    """Yield the usable and unusable examples of a split's files, each with the URI of its file."""
    task = found.task
    for uri in found.files[split]:
        with request_paths.open_stream(uri) as stream:
            try:
                for item in read_pairs(stream, file_format(uri, task), task):
                    yield item, uri
            except RejectedFileError as error:
                raise BadDataError(
                    f"task {task.name}: {split}: {uri} cannot be read: {error.detail}."
                ) from None


def _divide(found: TaskText) -> None:
    """Draw splits without files of their own from the training examples, by hash of the text."""
    task = found.task
    drawn = {TaskSplit.TEST: task.test_fraction, TaskSplit.VALIDATION: task.validation_fraction}
    drawn = {split: share for split, share in drawn.items() if share and split not in found.splits}
    examples = found.splits.pop(TaskSplit.TRAIN)
    parts: dict[TaskSplit, list[Pair]] = {TaskSplit.TRAIN: [], **{split: [] for split in drawn}}
    for pair in examples:
        place, begin, chosen = _draw(pair.text), 0.0, TaskSplit.TRAIN
        for split, share in drawn.items():
            if begin <= place < begin + share:
                chosen = split
            begin += share
        parts[chosen].append(pair)
    found.splits = {**parts, **found.splits}


def _draw(text: str) -> float:
    """Return a number from 0 to 1 that depends only on the text."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") / 2.0**64


def _refuse_leaks(found: TaskText) -> None:
    """Refuse too many texts that are in two splits; remove the others from the training split."""
    task = found.task
    texts = {split: {pair.text for pair in pairs} for split, pairs in found.splits.items()}
    leaked: set[str] = set()
    for split in _HELD_OUT:
        pairs = found.splits.get(split, [])
        others = set().union(*(known for other, known in texts.items() if other is not split))
        twice = [pair for pair in pairs if pair.text in others]
        if len(twice) > task.max_leak_fraction * len(pairs):
            raise BadDataError(
                f"task {task.name}: the texts of {len(twice):,} of {len(pairs):,} {split} examples "
                "are also in another split, so that remembering would count as knowing: "
                f"{_some([pair.place for pair in twice])}. Take them out of one, or allow them by "
                "max_leak_fraction: then the training split goes without."
            )
        leaked.update(pair.text for pair in twice)
    train = found.splits[TaskSplit.TRAIN]
    found.splits[TaskSplit.TRAIN] = [pair for pair in train if pair.text not in leaked]
    if removed := len(train) - len(found.splits[TaskSplit.TRAIN]):
        found.left_out["leaked"] += removed


def _check_labels(found: TaskText) -> None:
    name, known = found.task.name, set(found.labels)
    if len(known) < 2:
        raise UserError(
            f"task {name}: all training examples have one target, which leaves nothing to decide. "
            "Add examples of another, or set target to 'text'."
        )
    for split in _HELD_OUT:
        strange = [pair.place for pair in found.splits.get(split, []) if pair.target not in known]
        if strange:
            raise BadDataError(
                f"task {name}: {len(strange):,} {split} examples have a target that no training "
                f"example has: {_some(strange)}. Correct them, or set target to 'text'."
            )


def _some(places: Sequence[str]) -> str:
    return ", ".join(places[:_NAMED]) + (", …" if len(places) > _NAMED else "")
