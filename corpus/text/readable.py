"""Checks whether enough of some input files can be read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pydantic import BaseModel

from corpus.errors import BadDataError
from corpus.text.drops import HARMLESS, DropReason, count_bad, is_rejected_file
from corpus.text.inputs import COMPRESSED_SUFFIXES
from corpus.text.reading import MAX_LINE_BYTES

_NAMED_FILES = 3
# Compressed files hold several times as much text as bytes; an estimate.
_COMPRESSION_FACTOR = 3


class Tally(BaseModel):
    """How much of one input file could be used."""

    input_uri: str
    input_bytes: int
    documents: int
    dropped: dict[str, int]

    @property
    def lost_bytes(self) -> int:
        """Return at least how many bytes are lost, in rejected files and in endless documents.

        An endless document is one in the count of documents, and may be nearly all of the text.
        """
        if is_rejected_file(self.dropped):
            return self.input_bytes
        lost = self.dropped.get(DropReason.TOO_LONG, 0) * MAX_LINE_BYTES
        if self.input_uri.lower().endswith((*COMPRESSED_SUFFIXES, ".parquet")):
            lost //= _COMPRESSION_FACTOR
        return min(self.input_bytes, lost)


def check_readable(tallies: Sequence[Tally], max_bad_fraction: float) -> None:
    """Refuse a partition of which too much is unreadable.

    Two shares are checked: of the documents, and of the bytes, because a rejected file or an
    endless document has no meaningful count of documents.

    :raises BadDataError: one of them is above ``corpus.max_bad_fraction``.
    """
    documents = sum(item.documents for item in tallies)
    bad = sum(count_bad(item.dropped) for item in tallies)
    lost_files = [item for item in tallies if item.lost_bytes]
    lost_bytes = sum(item.lost_bytes for item in lost_files)
    all_bytes = sum(item.input_bytes for item in tallies)
    limit = max_bad_fraction
    if lost_bytes > limit * all_bytes:
        share = f"{len(lost_files)} of {len(tallies)} files ({lost_bytes / all_bytes:.1%} of "
        raise BadDataError(f"{share}the bytes) cannot be read, {_over(limit)}: {_worst(tallies)}")
    if bad > limit * documents:
        share = f"{bad} of {documents} documents ({bad / documents:.1%})"
        raise BadDataError(f"{share} cannot be read, {_over(limit)}: {_worst(tallies)}")


def _over(limit: float) -> str:
    return f"over corpus.max_bad_fraction={limit}"


def _worst(tallies: Sequence[Tally]) -> str:
    reasons: Counter[str] = Counter()
    for item in tallies:
        reasons.update({k: n for k, n in item.dropped.items() if k not in HARMLESS})
    by_bad = sorted(tallies, key=lambda item: (-count_bad(item.dropped), item.input_uri))
    files = [
        f"{item.input_uri} ({count_bad(item.dropped)} of {item.documents})"
        for item in by_bad[:_NAMED_FILES]
        if count_bad(item.dropped)
    ]
    by_reason = ", ".join(f"{reason} {count}" for reason, count in reasons.most_common())
    return f"{by_reason}; worst files: {', '.join(files)}."
