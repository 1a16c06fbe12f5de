"""Which documents of a shard are used, and on which side of the split."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from corpus.text.content import Content, split_of
from corpus.text.drops import DropReason
from corpus.text.shard_contents import DocumentCounts
from pipeline_store.formats import ShardDecisions, Split


def decided(
    contents: Iterable[Content],
    decisions: ShardDecisions,
    validation_fraction: float,
    counts: DocumentCounts,
) -> Iterator[tuple[Content, Split]]:
    """Yield the documents that are used with their sides, in order.

    :param decisions: what becomes of documents because of other ones.
    :param counts: those that are left out are counted here.
    :raises ValueError: a document that is decided on is not there.
    """
    fates: dict[int, DropReason | Split] = {
        **dict.fromkeys(decisions.train, Split.TRAIN),
        **dict.fromkeys(decisions.validation, Split.VALIDATION),
        **dict.fromkeys(decisions.near_duplicates, DropReason.NEAR_DUPLICATE),
        **dict.fromkeys(decisions.duplicates, DropReason.DUPLICATE),
    }
    for content in contents:
        fate = fates.pop(content.ordinal, None)
        if isinstance(fate, DropReason):
            counts.drop(fate)
        else:
            yield content, fate or split_of(content.sha256, validation_fraction)
    if fates:
        raise ValueError(
            f"{len(fates)} documents are decided on but cannot be used, the first is number "
            f"{min(fates)} of {counts.documents}: the decisions are of another file or setting."
        )
