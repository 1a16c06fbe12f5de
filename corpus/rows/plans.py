"""Rows before masking: the places of their text, and their tokens with ``[CLS]`` and ``[SEP]``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int32]
Places = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]


class Documents(NamedTuple):
    """D tokenized documents of one side of the split, none of them empty.

    ``ids`` [T]: tokens, maybe of other documents too. ``starts``, ``ends`` [D]: places in ``ids``.
    ``keys`` [D]: :func:`corpus.mlm_records.document_key`. ``sentence_ends`` [N]: the place after
    each non-empty sentence, of all documents in ``ids``.
    """

    ids: Ids
    starts: Places
    ends: Places
    keys: Keys
    sentence_ends: Places

    def select(self, chosen: npt.NDArray[np.bool_]) -> Documents:
        """Return some of the documents; ``chosen`` has shape [D]."""
        return self._replace(
            starts=self.starts[chosen], ends=self.ends[chosen], keys=self.keys[chosen]
        )


class Rows(NamedTuple):
    """R rows of ``S = max_seq_length`` tokens.

    ``tokens`` [R, S] int32, padded; ``lengths`` [R] int32, ``[CLS]`` and ``[SEP]`` included;
    ``documents`` [R] uint64, key of the row's (first) document; ``numbers`` [R] uint64, the row's
    number among those of this document, from 0. With two segments ``first_lengths`` [R] int32 is
    the length of the first one, ``[CLS]`` and its ``[SEP]`` included, and ``random_next`` [R] uint8
    is 1 if the second is from elsewhere.
    """

    tokens: Ids
    lengths: npt.NDArray[np.int32]
    documents: Keys
    numbers: Keys
    first_lengths: npt.NDArray[np.int32] | None
    random_next: npt.NDArray[np.uint8] | None


class Segments(NamedTuple):
    """Second segments of R rows: places in ``ids``, and :attr:`Rows.random_next`."""

    starts: Places
    sizes: Places
    random_next: npt.NDArray[np.uint8]


@dataclass(frozen=True)
class RowPlan:
    """R rows as pieces of ``ids`` [T]: the first segments, and the second ones if there are any."""

    ids: Ids
    starts: Places
    sizes: Places
    documents: Keys
    numbers: Keys
    second: Segments | None = None

    def __len__(self) -> int:
        return len(self.starts)

    @classmethod
    def empty(cls) -> RowPlan:
        """Return a plan without rows."""
        places, keys = np.empty(0, np.int64), np.empty(0, np.uint64)
        return cls(np.empty(0, np.int32), places, places, keys, keys)


def join_plans(plans: Sequence[RowPlan]) -> RowPlan:
    """Return the rows of several plans, in order; all of them have second segments."""
    if len(plans) < 2:
        return plans[0] if plans else RowPlan.empty()
    begins = np.cumsum([0, *(len(plan.ids) for plan in plans[:-1])])
    seconds = [plan.second for plan in plans if plan.second is not None]
    return RowPlan(
        np.concatenate([plan.ids for plan in plans]),
        np.concatenate([plan.starts + begin for plan, begin in zip(plans, begins, strict=True)]),
        np.concatenate([plan.sizes for plan in plans]),
        np.concatenate([plan.documents for plan in plans]),
        np.concatenate([plan.numbers for plan in plans]),
        Segments(
            np.concatenate([s.starts + begin for s, begin in zip(seconds, begins, strict=True)]),
            np.concatenate([second.sizes for second in seconds]),
            np.concatenate([second.random_next for second in seconds]),
        ),
    )


class RowBuilder:
    """Turns plans into rows."""

    def __init__(self, max_seq_length: int, *, cls_id: int, sep_id: int, pad_id: int) -> None:
        self._width = max_seq_length
        self._pad_id = pad_id
        self._cls_id = cls_id
        self._sep_id = sep_id

    def build(self, plan: RowPlan, rows_at_once: int) -> Iterator[Rows]:
        """Yield the rows in order, at most ``rows_at_once`` at a time."""
        if not len(plan):
            return
        # Every row is a window of the text, wherever in the row the text begins.
        padded = np.pad(plan.ids, self._width)
        windows = np.lib.stride_tricks.sliding_window_view(padded, self._width)
        for start in range(0, len(plan), rows_at_once):
            yield self._part(windows, plan, slice(start, start + rows_at_once))

    def _part(self, windows: Ids, plan: RowPlan, part: slice) -> Rows:
        columns = np.arange(self._width)
        rows = np.arange(len(plan.starts[part]))
        first_lengths = plan.sizes[part] + 2
        tokens = windows[plan.starts[part] - 1 + self._width]
        lengths, random_next = first_lengths, None
        if plan.second is not None:
            begins = plan.second.starts[part] - first_lengths
            tokens = np.where(
                columns < first_lengths[:, None], tokens, windows[begins + self._width]
            )
            tokens[rows, first_lengths - 1] = self._sep_id
            lengths = first_lengths + plan.second.sizes[part] + 1
            random_next = plan.second.random_next[part]
        tokens[:, 0] = self._cls_id
        tokens[rows, lengths - 1] = self._sep_id
        short = np.flatnonzero(lengths < self._width)
        tokens[short] = np.where(columns < lengths[short, None], tokens[short], self._pad_id)
        return Rows(
            tokens,
            lengths.astype(np.int32),
            plan.documents[part],
            plan.numbers[part],
            first_lengths.astype(np.int32) if plan.second is not None else None,
            random_next,
        )
