"""The table of what happened to each weight when a model was loaded, which is logged and stored."""

from __future__ import annotations

from typing import NamedTuple

from pipeline_store.formats import InitialWeights
from trained_models.weight_names import NEXT_SENTENCE


class LoadedWeights(NamedTuple):
    """Names of variables by what happened to them when a model was loaded.

    :param dropped: names of variables that are not used; only the number of those unknown here.
    :param allowed: names that may be new or dropped besides a next-sentence head, because this is
        known and was asked for.
    :param notes: other remarks on these weights, a sentence each.
    """

    loaded: list[str]
    new: list[str]
    dropped: list[str]
    mismatched: list[str]
    allowed: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        """Return whether the model may be used: nothing is wrong except for a next-sentence head.

        Such a head is two small variables that only pretraining uses. A lineage may train on pairs
        at some times and not at others, so a head may begin with random weights, and one that
        nothing trains is dropped.
        """
        return not (self.unexpected or self.mismatched)

    @property
    def unexpected(self) -> list[str]:
        """Return the names that are new or dropped and must not be."""
        changed = (*self.new, *self.dropped)
        return [n for n in changed if n not in self.allowed and not _is_next_sentence_head(n)]

    @property
    def has_next_sentence_head(self) -> bool:
        """Return whether a next-sentence head was loaded."""
        return any(map(_is_next_sentence_head, self.loaded))

    def record(self, uri: str) -> InitialWeights:
        """Return the table in the form in which it is stored."""
        return InitialWeights(
            uri=uri,
            loaded=self.loaded,
            new=self.new,
            dropped=self.dropped,
            notes=list(self.notes),
        )

    def __str__(self) -> str:
        head = (
            f"{len(self.loaded)} variables loaded, {len(self.new)} new, {len(self.dropped)} "
            f"dropped, {len(self.mismatched)} of another shape"
        )
        lines = [head]
        lines += [f"  new        {name}" for name in self.new]
        lines += [f"  dropped    {name}" for name in self.dropped]
        lines += [f"  mismatched {name}" for name in self.mismatched]
        lines += self.notes
        if self.fits and any(map(_is_next_sentence_head, self.new)):
            lines.append(
                "It was trained without next-sentence prediction: the weights of that head are not "
                "from there, and the pooler has had no gradient."
            )
        missed = [name for name in self.dropped if name not in self.allowed]
        if self.fits and any(map(_is_next_sentence_head, missed)):
            lines.append("Next sentences are not predicted here: head dropped, pooler not trained.")
        return "\n".join(lines)


def _is_next_sentence_head(name: str) -> bool:
    return f"/{NEXT_SENTENCE}/" in f"/{name}"
