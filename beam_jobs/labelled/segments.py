"""Lays out tokens of one or two texts in rows, as google-research/bert's ``run_classifier.py``.

``[CLS] a [SEP]`` or ``[CLS] a [SEP] b [SEP]``; for byte-level BPE ``<s> a </s></s> b </s>``, as in
RoBERTa, where nothing else tells the segments apart. Texts that are too long are cut token by
token: always the longer one, or the second if both are equally long (``_truncate_seq_pair``).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from corpus.tokens.vocabulary import CLS, PAD, SEP, Vocabulary

Ids = npt.NDArray[np.int32]
Lengths = npt.NDArray[np.int64]


class SegmentRows(NamedTuple):
    """R rows of S tokens: ``input_ids`` int32, ``input_mask`` and ``segment_ids`` uint8, [R, S].

    ``truncated`` bool [R]: whether something was cut.
    """

    input_ids: Ids
    input_mask: npt.NDArray[np.uint8]
    segment_ids: npt.NDArray[np.uint8]
    truncated: npt.NDArray[np.bool_]


class Frame(NamedTuple):
    """The ids of the tokens around texts; ``between``: number of separators between two texts."""

    cls_id: int
    sep_id: int
    pad_id: int = 0
    between: int = 1

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> Frame:
        """Return the frame that a vocabulary's models are used with."""
        ids = vocabulary.ids
        return cls(ids[CLS], ids[SEP], ids[PAD], 2 if vocabulary.kind == "bpe" else 1)


def truncated_lengths(first: Lengths, second: Lengths, room: int) -> tuple[Lengths, Lengths]:
    """Return how many tokens of each text are kept, [R] each, so that both fit into ``room``."""
    too_long = first + second > room
    # While both are cut they stay equally long; if the room is odd, the first has one token more.
    kept = np.minimum(first, np.maximum(room - second, room - room // 2))
    return np.where(too_long, kept, first), np.where(too_long, room - kept, second)


def lay_out(
    ids: Ids, lengths: Lengths, texts: int, *, max_seq_length: int, frame: Frame
) -> SegmentRows:
    """Return the rows of some examples.

    :param ids: tokens of all texts, one after the other.
    :param lengths: of the texts, [R * texts]; the two texts of an example are adjacent.
    :param texts: 1 or 2.
    """
    by_example = lengths.reshape(-1, texts)
    starts = (np.cumsum(lengths) - lengths).reshape(-1, texts)
    if texts == 1:
        kept = [np.minimum(by_example[:, 0], max_seq_length - 2)]
    else:
        room = max_seq_length - 2 - frame.between
        kept = list(truncated_lengths(by_example[:, 0], by_example[:, 1], room))
    rows = len(by_example)
    input_ids = np.full((rows, max_seq_length), frame.pad_id, np.int32)
    segment_ids = np.zeros((rows, max_seq_length), np.uint8)
    numbers = np.arange(rows)
    input_ids[:, 0] = frame.cls_id
    ends = np.ones(rows, np.int64)
    for text, sizes in enumerate(kept):
        for _ in range(frame.between - 1 if text else 0):
            input_ids[numbers, ends] = frame.sep_id
            ends += 1
        row = np.repeat(numbers, sizes)
        within = np.arange(len(row)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        input_ids[row, ends[row] + within] = ids[starts[row, text] + within]
        input_ids[numbers, ends + sizes] = frame.sep_id
        if text:
            columns: npt.NDArray[Any] = np.arange(max_seq_length)
            segment_ids[(columns >= ends[:, None]) & (columns <= (ends + sizes)[:, None])] = 1
        ends += sizes + 1
    input_mask = (np.arange(max_seq_length) < ends[:, None]).astype(np.uint8)
    total = np.sum(kept, axis=0)
    return SegmentRows(input_ids, input_mask, segment_ids, total < by_example.sum(axis=1))
