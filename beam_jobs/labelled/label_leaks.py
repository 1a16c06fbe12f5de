"""Whether a text gives its label away: how well one could tell labels by looking for their names.

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
# Of fewer examples nothing can be told.
MIN_EXAMPLES = 20

Counts = Counter[tuple[str, ...]]


class LabelSearch:
    """Looks for labels in texts: as whole words, whatever their case; the longest one counts.

    Counts can be added up over files.

    :param labels: of the task; of a regression none.
    """

    def __init__(self, task: TaskConfig, labels: Sequence[str]) -> None:
        self._kind = task.kind
        self._by_words = {words: label for label in labels if (words := _words(label))}
        # How long the labels are that begin with a word, longest first.
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
    """Return how well labels can be told by their names in the text, from 0 to 1.

    classification: mean over labels of the share that is right, where an example is said to have
    the only label found in it, and else one label that is the best for all of those. multi_label:
    micro-averaged F1 of the labels found. regression: share of examples whose first, or whose last,
    number is theirs.

    :param counts: of all examples.
    :returns: None of fewer than 20 examples.
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
