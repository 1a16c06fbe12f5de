"""Scores of documents over the rows of both lengths that a model is trained on: what is judged.

Each length covers the same text once, so both count about the same where they are added up.
"""

from __future__ import annotations

from pipeline_store.formats import DocumentSetScore


def judged(
    scores: DocumentSetScore, reference: DocumentSetScore
) -> tuple[DocumentSetScore, DocumentSetScore]:
    """Return the scores of two models as they are compared: over the lengths that both have.

    An older evaluation has the main length alone; then that is compared.
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
