"""Measures whether texts give their labels away: how well a search for label names guesses them.

A column that was put into the text by mistake, or ``__label__spam`` in front of it, makes any model
look perfect.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from corpus.labelled.labels import Label
from pipeline_config import TaskConfig

_WORD = re.compile(r"[^\W_]+")
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
# With fewer examples the measure says nothing.
MIN_EXAMPLES = 20

Counts = Counter[tuple[str, ...]]


class LabelSearch:
    """A search for labels in texts: whole words, ignoring case; the longest match counts.

    Counts can be added up over files.

    :param labels: the task's labels; none for a regression.
    """

    def __init__(self, task: TaskConfig, labels: Sequence[str]) -> None:
        self._kind = task.kind
        self._by_words = {words: label for label in labels if (words := _words(label))}
        # By word: the lengths in words of the labels that begin with it, longest first.
        self._sizes: dict[str, list[int]] = {}
        for first, size in sorted({(words[0], len(words)) for words in self._by_words}):
            self._sizes.setdefault(first, []).insert(0, size)
        self.counts: Counts = Counter()

    def add(self, texts: Sequence[str], label: Label) -> None:
        """Count one example."""
        joined = "\n".join(texts)
        if isinstance(label, float):
            numbers = _NUMBER.findall(joined)
            self.counts["first", str(bool(numbers) and float(numbers[0]) == label)] += 1
            self.counts["last", str(bool(numbers) and float(numbers[-1]) == label)] += 1
            return
        found = self._found(joined)
        if self._kind == "classification":
            self.counts[label[0], found.pop() if len(found) == 1 else ""] += 1
            return
        own = set(label)
        for name, part in (("right", found & own), ("found", found), ("own", own)):
            self.counts[(name,)] += len(part)
        self.counts[("examples",)] += 1

    def _found(self, text: str) -> set[str]:
        words = _words(text)
        found = set()
        end = 0
        for place in [number for number, word in enumerate(words) if word in self._sizes]:
            if place < end:
                continue
            for size in self._sizes[words[place]]:
                label = self._by_words.get(words[place : place + size])
                if label is not None:
                    found.add(label)
                    end = place + size
                    break
        return found


def _words(text: str) -> tuple[str, ...]:
    return tuple(_WORD.findall(text.casefold()))


def told_by_label(counts: Counts, task: TaskConfig) -> float | None:
    """Return how well labels can be guessed by their names in the text, from 0 to 1.

    classification: mean over labels of the share guessed right, where the guess is the only label
    found in an example or, if there is not exactly one, the label that is best for all of those.
    multi_label: micro-averaged F1 of the labels found. regression: share of examples whose first
    number is theirs, or whose last one is, whichever is larger.

    :param counts: counts over all examples.
    :returns: None for fewer than 20 examples.
    """
    if task.kind == "regression":
        examples = counts["first", "True"] + counts["first", "False"]
        right = max(counts["first", "True"], counts["last", "True"])
        return right / examples if examples >= MIN_EXAMPLES else None
    if task.kind == "multi_label":
        both = counts[("found",)] + counts[("own",)]
        enough = both and counts[("examples",)] >= MIN_EXAMPLES
        return 2 * counts[("right",)] / both if enough else None
    examples = sum(counts.values())
    if examples < MIN_EXAMPLES:
        return None
    sizes: Counter[str] = Counter()
    for (label, _), count in counts.items():
        sizes[label] += count
    named = sum(counts[label, label] / size for label, size in sizes.items())
    guessed = max(counts[label, ""] / size for label, size in sizes.items())
    return (named + guessed) / len(sizes)
