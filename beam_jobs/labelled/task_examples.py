"""All examples of a task as one list, each with its split."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from beam_jobs.labelled.facts import NAMED_PLACES, FileFacts, Noted, TaskFile
from corpus.labelled.labels import ExampleProblem, Unusable
from pipeline_config import TaskConfig
from pipeline_store.formats import TaskSplit

SPLITS = tuple(TaskSplit)
LEFT_OUT = -1

Places = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass
class Decided:
    """The decisions on a task's examples.

    ``assigned``: by number of the file, int8 [N], the index in ``SPLITS`` of each usable example,
    or ``LEFT_OUT``. ``labels``: in order of their ids. ``refusals``: reasons to refuse the task.
    """

    assigned: dict[int, npt.NDArray[np.int8]] = field(default_factory=dict)
    labels: list[str] = field(default_factory=list)
    label_counts: dict[TaskSplit, dict[str, int]] = field(default_factory=dict)
    refusals: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)
    letters: list[tuple[TaskFile, Unusable]] = field(default_factory=list)


class TaskExamples:
    """The M usable examples of all files, in order.

    ``splits`` int8 [M]: indexes in ``SPLITS``, or ``LEFT_OUT``. ``groups`` int64 [M]: equal for
    examples of equal text. ``values`` float64 [M]: the numbers of a regression. Example
    ``owners[k]`` has the label ``names[codes[k]]``. ``left_out``: examples left out after reading,
    by the split of their file and by reason.

    :param facts: facts of every file, in order of their numbers.
    """

    def __init__(self, facts: Sequence[FileFacts], task: TaskConfig) -> None:
        self.facts = facts
        self._files = np.repeat(np.arange(len(facts)), [len(one) for one in facts])
        self._lines = np.concatenate([one.lines for one in facts])
        digests = np.concatenate([one.digests for one in facts])
        self.fractions = _fractions(task)
        self.splits = self._divided(digests)
        self.groups = _groups(digests)
        self.values = np.concatenate([one.values for one in facts])
        counts = np.concatenate([one.label_counts for one in facts])
        self.owners = np.repeat(np.arange(len(counts)), counts)
        numbers: dict[str, int] = {}
        codes = [
            np.array([numbers.setdefault(n, len(numbers)) for n in one.label_names], np.int64)
            for one in facts
        ]
        pairs = zip(codes, facts, strict=True)
        self.codes = np.concatenate([known[one.label_codes] for known, one in pairs])
        self.names = list(numbers)
        self.left_out: dict[TaskSplit, dict[str, Noted]] = {}
        self.letters: list[tuple[TaskFile, Unusable]] = []

    def _divided(self, digests: npt.NDArray[np.uint8]) -> npt.NDArray[np.int8]:
        """Return the split of each example: its file's, or one drawn from the hash of its text.

        So equal texts are in the same split, and adding examples moves none of the existing ones.
        """
        given = np.array([SPLITS.index(one.file.split) for one in self.facts], np.int8)
        splits = given[self._files]
        draws = np.ascontiguousarray(digests[:, :8]).view("<u8")[:, 0] / 2.0**64
        is_train = splits == SPLITS.index(TaskSplit.TRAIN)
        begin = 0.0
        for split, fraction in self.fractions.items():
            mine = is_train & (draws >= begin) & (draws < begin + fraction)
            splits[mine] = SPLITS.index(split)
            begin += fraction
        return splits

    def of(self, *splits: TaskSplit) -> Flags:
        """Return which examples are in these splits, [M]."""
        return np.isin(self.splits, [SPLITS.index(split) for split in splits])

    def assigned(self) -> dict[int, npt.NDArray[np.int8]]:
        """Return the splits by number of the file."""
        return {
            one.file.number: self.splits[self._files == number]
            for number, one in enumerate(self.facts)
        }

    def label_counts(self, split: TaskSplit, labels: Sequence[str]) -> dict[str, int]:
        """Return how many examples of a split have each label."""
        counts = np.bincount(self.codes[self.of(split)[self.owners]], minlength=len(self.names))
        by_name = dict(zip(self.names, counts.tolist(), strict=True))
        return {label: by_name.get(label, 0) for label in labels}

    def leave_out(self, place: int, reason: ExampleProblem, detail: str) -> None:
        """Take an example out of its split."""
        file = self._file(place)
        line = int(self._lines[place])
        self.splits[place] = LEFT_OUT
        self.letters.append((file, Unusable(reason, detail, line)))
        noted = self.left_out.setdefault(file.split, {}).setdefault(str(reason), Noted())
        noted.add(line, f"{self.place(place)}: {detail}")

    def example_of(self, label: str) -> str | None:
        """Return the place of a label's first example, so a message need not quote the label."""
        if label not in self.names:
            return None
        return self.place(int(self.owners[np.argmax(self.codes == self.names.index(label))]))

    def place(self, place: int) -> str:
        """Return the place of an example as text for messages."""
        return place_of(self._file(place), int(self._lines[place]))

    def places(self, places: Places) -> str:
        """Return the places of the first of some examples as text for messages."""
        return some([self.place(place) for place in places[:NAMED_PLACES].tolist()], len(places))

    def _file(self, place: int) -> TaskFile:
        return self.facts[self._files[place]].file


def _fractions(task: TaskConfig) -> dict[TaskSplit, float]:
    """Return the fraction of training examples for each split that has no files of its own."""
    fractions = {}
    if task.test is None:
        fractions[TaskSplit.TEST] = task.test_fraction
    if task.validation is None:
        fractions[TaskSplit.VALIDATION] = task.validation_fraction
    return fractions


def _groups(digests: npt.NDArray[np.uint8]) -> Places:
    words = np.ascontiguousarray(digests).view("<u8")
    _, groups = np.unique(words, axis=0, return_inverse=True)
    return groups.reshape(-1).astype(np.int64)


def place_of(file: TaskFile, line: int) -> str:
    """Return a place in a file as text for messages; line 0 is the file as a whole."""
    name = file.uri.rpartition("/")[2]
    return f"{name} line {line}" if line else name


def some(named: Sequence[str], count: int | None = None) -> str:
    """Return the first of some names in one line, with an ellipsis if there are more.

    :param count: how many there are in all; by default as many as are named.
    """
    more = len(named) if count is None else count
    return ", ".join(named[:NAMED_PLACES]) + (", …" if more > NAMED_PLACES else "")
