"""Whether enough of some input files can be read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pydantic import BaseModel

from beam_jobs.errors import BadDataError
from beam_jobs.text.drops import HARMLESS, count_bad, is_rejected_file

_NAMED_FILES = 3


class Tally(BaseModel):
    """How much of one input file could be used."""

    input_uri: str
    input_bytes: int
    documents: int
    dropped: dict[str, int]


def check_readable(tallies: Sequence[Tally], max_bad_fraction: float) -> None:
    """Refuse a partition of which too much is unreadable.

    Two shares are looked at: of the documents, and, as a file that is given up whole has no honest
    count of documents, of the bytes.

    :raises BadDataError: one of them is above ``corpus.max_bad_fraction``.
    """
    documents = sum(item.documents for item in tallies)
    bad = sum(count_bad(item.dropped) for item in tallies)
    rejected = [item for item in tallies if is_rejected_file(item.dropped)]
    rejected_bytes = sum(item.input_bytes for item in rejected)
    all_bytes = sum(item.input_bytes for item in tallies)
    limit = max_bad_fraction
    if rejected_bytes > limit * all_bytes:
        share = f"{len(rejected)} of {len(tallies)} files ({rejected_bytes / all_bytes:.1%} of "
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
