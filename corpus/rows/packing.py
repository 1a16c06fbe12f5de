"""Packs documents into rows of one segment, as in RoBERTa (arXiv 1907.11692, section 4.2).

There a row ends with a sentence. Here it ends where it is full, as padding costs as much TPU time
as text: every row of a document but its last has ``max_seq_length`` tokens.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from corpus.rows.plans import Documents, Ids, Keys, Places, RowPlan


class Packer(Protocol):
    """Lays the documents of a shard out in rows; one for each record file.

    The rows do not depend on how the documents are divided among the calls.
    """

    def add(self, documents: Documents) -> RowPlan:
        """Return the rows that are complete with these documents."""
        ...

    def finish(self) -> RowPlan:
        """Return the rows that are left when the shard ends."""
        ...


class DocumentPacker:
    """``doc_sentences``: a row has text of one document; its last one may be short."""

    def __init__(self, max_seq_length: int) -> None:
        self._room = max_seq_length - 2

    def add(self, documents: Documents) -> RowPlan:
        """See :class:`Packer`."""
        counts = -(-(documents.ends - documents.starts) // self._room)
        before = np.cumsum(counts) - counts
        numbers = np.arange(int(counts.sum())) - np.repeat(before, counts)
        starts = np.repeat(documents.starts, counts) + numbers * self._room
        sizes = np.minimum(np.repeat(documents.ends, counts) - starts, self._room)
        keys = np.repeat(documents.keys, counts)
        return RowPlan(documents.ids, starts, sizes, keys, numbers.astype(np.uint64))

    def finish(self) -> RowPlan:
        """See :class:`Packer`."""
        return RowPlan.empty()


class StreamPacker:
    """``full_sentences``: documents follow each other, ``[SEP]`` between those that share a row.

    A document begins a new row if nothing but the ``[SEP]`` would fit into the one before; that row
    is one token short. The row that is not yet full is kept for the next documents.
    """

    def __init__(self, max_seq_length: int, sep_id: int) -> None:
        self._room = max_seq_length - 2
        self._sep_id = sep_id
        self._open: Ids = np.empty(0, np.int32)
        self._open_key, self._open_number = np.uint64(0), 0

    def add(self, documents: Documents) -> RowPlan:
        """See :class:`Packer`."""
        if not len(documents.keys):
            return RowPlan.empty()
        sizes = documents.ends - documents.starts
        starts = self._starts(sizes)
        stream, short = self._stream(documents, starts)
        begins = np.arange(0, len(stream), self._room)
        keys, numbers = self._first_documents(documents.keys, starts, begins)
        ends = np.minimum(begins + self._room, len(stream))
        ends[short] -= 1
        complete = len(stream) // self._room
        self._open = stream[complete * self._room :]
        if len(self._open):
            self._open_key, self._open_number = keys[-1], int(numbers[-1])
        done = slice(complete)
        return RowPlan(stream, begins[done], (ends - begins)[done], keys[done], numbers[done])

    def finish(self) -> RowPlan:
        """See :class:`Packer`."""
        if not len(self._open):
            return RowPlan.empty()
        return RowPlan(
            self._open,
            np.zeros(1, np.int64),
            np.array([len(self._open)]),
            np.array([self._open_key], np.uint64),
            np.array([self._open_number], np.uint64),
        )

    def _starts(self, sizes: Places) -> Places:
        """Return where each document begins in the stream that the open row begins."""
        starts = []
        end = len(self._open)
        for size in sizes.tolist():
            # Between two documents there is a place for a [SEP], but not where a row begins.
            start = end + (end % self._room != 0)
            starts.append(start)
            end = start + size
        return np.array(starts, np.int64)

    def _stream(self, documents: Documents, starts: Places) -> tuple[Ids, Places]:
        """Return the tokens of all rows, and which rows end before a [SEP] that is left out."""
        sizes = documents.ends - documents.starts
        stream = np.full(starts[-1] + sizes[-1], self._sep_id, np.int32)
        stream[: len(self._open)] = self._open
        before = np.cumsum(sizes) - sizes
        numbers = np.arange(int(sizes.sum()))
        targets = numbers + np.repeat(starts - before, sizes)
        stream[targets] = documents.ids[numbers + np.repeat(documents.starts - before, sizes)]
        gaps = np.concatenate([[starts[0] > len(self._open)], starts[1:] > (starts + sizes)[:-1]])
        new_rows = gaps & (starts % self._room == 0)
        return stream, starts[new_rows] // self._room - 1

    def _first_documents(self, keys: Keys, starts: Places, begins: Places) -> tuple[Keys, Keys]:
        """Return each row's first document, and the row's number among those that it begins."""
        first = np.searchsorted(starts, begins, side="right") - 1
        numbers = np.arange(len(begins)) - np.searchsorted(first, first)
        documents = keys[first]
        if first[0] < 0:
            documents[0] = self._open_key
            numbers[0] = self._open_number
        return documents, numbers.astype(np.uint64)
