"""The sets that models are compared on: a bounded, stable panel of held-out document sets.

Documents are scored in rows of both lengths that a model is trained on. Each length covers the same
text once, so both have about the same weight when they are added up.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from typing import TypeVar

from pipeline_store.formats import BestScores, DocumentSetScore

Value = TypeVar("Value")


def scored_sets(
    found: Mapping[str, Value],
    always: Collection[str],
    most: int,
    left: Collection[str] = (),
) -> dict[str, Value]:
    """Return the values of the sets that models are scored on, in order of their names.

    Besides the sets that are always scored, these are the sets whose names have the smallest
    hashes: an even sample of the lineage's history, which a new partition seldom enters, and to
    which none that has left returns. So the same sets are compared from update to update.

    :param found: values of all sets, by name.
    :param always: names of sets that are always scored; some need not be in ``found``.
    :param most: how many may be scored, including ``always``.
    :param left: names of the sets that have left.
    """
    others = found.keys() - {*always, *left}
    ranked = sorted(others, key=lambda name: hashlib.sha256(name.encode()).digest())
    kept = {*always, *ranked[: max(0, most - len({*always}))]}
    return {name: value for name, value in sorted(found.items()) if name in kept}


def bounded(best: BestScores, scored: Collection[str], most: int) -> BestScores:
    """Return the best scores of the panel's sets alone, and which sets have left it.

    :param scored: names of the sets that were scored last.
    """
    sets = scored_sets(best.sets, scored, most, best.left)
    retrieval = {name: found for name, found in best.retrieval.items() if name in sets}
    left = sorted({*best.left, *(best.sets.keys() - sets.keys())} - sets.keys())
    return best.model_copy(update={"sets": sets, "retrieval": retrieval, "left": left})


def judged(
    scores: DocumentSetScore, reference: DocumentSetScore
) -> tuple[DocumentSetScore, DocumentSetScore]:
    """Return the scores of two models as they are compared: over the lengths that both have.

    An older evaluation has the main length alone; then only that is compared.
    """
    if both_lengths(scores, reference):
        return _added(scores), _added(reference)
    return scores, reference


def both_lengths(scores: DocumentSetScore, reference: DocumentSetScore) -> bool:
    """Return whether two models were scored on rows of the same second length."""
    mine, theirs = scores.extra, reference.extra
    return mine is not None and theirs is not None and mine.max_seq_length == theirs.max_seq_length


def extra_length(scores: DocumentSetScore) -> DocumentSetScore:
    """Return the scores of the second length in place of those of the main one.

    :raises ValueError: there are none.
    """
    if scores.extra is None:
        raise ValueError(f"Set {scores.set_name!r} has no scores of a second row length.")
    sums = scores.extra
    return scores.model_copy(
        update={"loss_sums": sums.loss_sums, "token_counts": sums.token_counts}
    )


def _added(scores: DocumentSetScore) -> DocumentSetScore:
    extra = extra_length(scores)
    return scores.model_copy(
        update={
            name: [a + b for a, b in zip(one, other, strict=True)]
            for name, one, other in (
                ("loss_sums", scores.loss_sums, extra.loss_sums),
                ("token_counts", scores.token_counts, extra.token_counts),
            )
        }
    )
