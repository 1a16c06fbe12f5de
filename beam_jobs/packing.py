"""Token streams to rows: several sentences of one document per row, ``[CLS] ... [SEP]``.

As the DOC-SENTENCES layout of RoBERTa (arXiv 1907.11692, section 4.2), except that a sentence may
continue in the next row where ending the row before it would leave much of the row empty: padding
costs as much TPU time as text.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

# A row ends with a whole sentence if that leaves at most an eighth of it empty.
_LEAST_FILL = 7 / 8


class Rows(NamedTuple):
    """R rows of ``S = max_seq_length`` tokens.

    ``tokens`` [R, S] int32, zero-padded; ``lengths`` [R] int32, ``[CLS]`` and ``[SEP]`` included;
    ``documents`` [R] int64, index of the row's document in the batch; ``numbers`` [R] uint64, the
    row's number within its document, from 0.
    """

    tokens: npt.NDArray[np.int32]
    lengths: npt.NDArray[np.int32]
    documents: npt.NDArray[np.int64]
    numbers: npt.NDArray[np.uint64]

    def select(self, chosen: npt.NDArray[np.bool_] | slice) -> Rows:
        """Return some of the rows, in order; an array of choices has shape [R]."""
        return Rows(
            self.tokens[chosen],
            self.lengths[chosen],
            self.documents[chosen],
            self.numbers[chosen],
        )


def pack_rows(
    ids: npt.NDArray[np.int32],
    sentence_ends: Sequence[npt.NDArray[np.int64]],
    *,
    max_seq_length: int,
    cls_id: int,
    sep_id: int,
) -> Rows:
    """Cut documents into rows. Every token is in exactly one row, in order.

    :param ids: tokens of all documents, one document after the other.
    :param sentence_ends: for each document, where in ``ids`` each of its sentences ends.
    """
    room = max_seq_length - 2
    starts, stops, documents, numbers = [], [], [], []
    begin = 0
    for document, ends in enumerate(sentence_ends):
        for number, (start, stop) in enumerate(_spans(begin, ends.tolist(), room)):
            starts.append(start)
            stops.append(stop)
            documents.append(document)
            numbers.append(number)
        begin = stops[-1] if stops else 0
    start_of, stop_of = np.array(starts, np.int64), np.array(stops, np.int64)
    return Rows(
        tokens=_matrix(ids, start_of, stop_of - start_of, (room, cls_id, sep_id)),
        lengths=(stop_of - start_of + 2).astype(np.int32),
        documents=np.array(documents, np.int64),
        numbers=np.array(numbers, np.uint64),
    )


def _spans(start: int, ends: list[int], room: int) -> Iterator[tuple[int, int]]:
    """Yield where each row of one document starts and stops."""
    end = ends[-1] if ends else start
    while start < end:
        stop = min(start + room, end)
        whole = bisect_right(ends, stop)
        if stop < end and whole and ends[whole - 1] - start >= _LEAST_FILL * room:
            stop = ends[whole - 1]
        yield start, stop
        start = stop


def _matrix(
    ids: npt.NDArray[np.int32],
    starts: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.int64],
    layout: tuple[int, int, int],
) -> npt.NDArray[np.int32]:
    room, cls_id, sep_id = layout
    tokens = np.zeros((len(starts), room + 2), np.int32)
    tokens[:, 0] = cls_id
    places = np.arange(room)
    inside = places < sizes[:, None]
    # Reads past a span's end are clipped into the array and then not used.
    sources = np.minimum(starts[:, None] + places, max(len(ids) - 1, 0))
    tokens[:, 1:-1] = np.where(inside, ids[sources] if len(ids) else 0, 0)
    tokens[np.arange(len(starts)), sizes + 1] = sep_id
    return tokens
