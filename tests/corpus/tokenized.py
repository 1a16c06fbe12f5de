"""Tokenized documents made up of numbers, and what came of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from corpus.rows.packing import Packer
from corpus.rows.plans import Documents, RowBuilder, RowPlan, Rows

PAD, CLS, SEP = 0, 101, 102
FIRST = 1000


def documents(lengths: Sequence[Sequence[int]], first: int = 0) -> Documents:
    """Return documents given by the lengths of their sentences.

    Their tokens are 1000, 1001, ...; each document has the key of its number.

    :param first: number of the first document, after others of as many tokens as it says.
    """
    flat = np.array([length for document in lengths for length in document], np.int64)
    sizes = np.array([sum(document) for document in lengths], np.int64)
    ends = np.cumsum(sizes)
    return Documents(
        ids=np.arange(FIRST, FIRST + int(sizes.sum()), dtype=np.int32),
        starts=ends - sizes,
        ends=ends,
        keys=np.arange(first, first + len(lengths), dtype=np.uint64),
        sentence_ends=np.cumsum(flat)[flat > 0],
    )


def part(whole: Documents, start: int, stop: int) -> Documents:
    """Return some documents as a batch of their own, with other ones before and behind in it."""
    low = int(whole.starts[start])
    ends = whole.sentence_ends
    return Documents(
        whole.ids[low:],
        whole.starts[start:stop] - low,
        whole.ends[start:stop] - low,
        whole.keys[start:stop],
        ends[ends > low] - low,
    )


class Row(NamedTuple):
    """A row as plain numbers; two segments if there is a label."""

    tokens: list[int]
    document: int
    number: int
    first_length: int | None
    random_next: int | None


def plain(rows: Rows) -> list[Row]:
    """Return rows without their padding, which is checked."""
    found = []
    for row, length in enumerate(rows.lengths.tolist()):
        assert not rows.tokens[row, length:].any()
        found.append(
            Row(
                rows.tokens[row, :length].tolist(),
                int(rows.documents[row]),
                int(rows.numbers[row]),
                None if rows.first_lengths is None else int(rows.first_lengths[row]),
                None if rows.random_next is None else int(rows.random_next[row]),
            )
        )
    return found


def pack(
    packer: Packer, batches: Sequence[Documents], max_seq_length: int, rows_at_once: int = 7
) -> list[Row]:
    """Return all rows of the documents."""
    builder = RowBuilder(max_seq_length, cls_id=CLS, sep_id=SEP, pad_id=0)
    plans: list[RowPlan] = [*(packer.add(batch) for batch in batches), packer.finish()]
    return [
        row for plan in plans for rows in builder.build(plan, rows_at_once) for row in plain(rows)
    ]


def batches_of(whole: Documents, sizes: Sequence[int]) -> list[Documents]:
    """Divide documents into batches of these sizes, repeated as long as there are documents."""
    batches: list[Documents] = []
    start = 0
    while start < len(whole.keys):
        stop = min(start + sizes[len(batches) % len(sizes)], len(whole.keys))
        batches.append(part(whole, start, stop))
        start = stop
    return batches
