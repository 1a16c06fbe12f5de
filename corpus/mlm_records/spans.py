"""T5's span corruption (arXiv 1910.10683, section 3.1.4), drawn from a counter-based hash.

A row is a text in its frame: a token before it and one after it, which is ``</s>``. Each hidden
span of the text becomes one sentinel in the row; the target is the sentinels, each followed by the
tokens that it replaces, and ``</s>``. The hidden and the visible tokens are each divided into spans
at random, all divisions equally likely, as in ``random_spans_noise_mask`` of
google-research/text-to-text-transfer-transformer: a text begins with visible tokens and ends with
a hidden span.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from corpus.mlm_records.hashing import U64, splitmix64
from corpus.mlm_records.units import choose_tokens

Ids = npt.NDArray[np.int32]
Integers = npt.NDArray[np.int64]

FRAME = 2
"""Number of tokens of a row that are not text."""

PAD_ID = 0
"""The padding token's id in every T5 vocabulary."""

_HIDDEN = U64(0x9FB21C651E98DF25)


def corrupt_rows(
    tokens: Ids,
    lengths: Integers,
    draws: npt.NDArray[np.uint64],
    counts: Integers,
    *,
    sentinels: Ids,
    slots: int,
) -> tuple[Ids, Ids, Ids]:
    """Return R rows with sentinels for spans, and the targets with their places in the rows.

    :param tokens: rows with their frame, padded, [R, S].
    :param lengths: lengths of the rows with their frame, [R].
    :param draws: random bits of each position, [R, S].
    :param counts: tokens to hide and spans, [R, 2], as
        :func:`pipeline_config.row_shapes.span_counts`; at least a token is left for each span.
    :param sentinels: ids of the sentinels, in order.
    :param slots: tokens of a target, P.
    :returns: rows [R, S], targets [R, P], and the position of each of a target's tokens in the
        original row, [R, P]; it is 0, where the frame is, for sentinels and ``</s>``. Targets are
        padded with 0; a row without spans has an empty one.
    :raises ValueError: a target is longer than ``slots``, or there are too few sentinels.
    """
    rows, width = tokens.shape
    hidden, spans = counts[:, 0], counts[:, 1]
    left = lengths - FRAME - hidden
    used = hidden + spans + 1
    if int(used.max(initial=0)) > slots or int(spans.max(initial=0)) > len(sentinels):
        raise ValueError(
            f"rows of {width} tokens need targets of {int(used.max())} tokens and "
            f"{int(spans.max())} sentinels; there are {slots} and {len(sentinels)}"
        )
    most = max(int(spans.max(initial=0)), 1)
    kept_row, kept, kept_span, kept_before = _divided(draws, left, spans, most)
    hid_row, hid, hid_span, hid_before = _divided(splitmix64(draws ^ _HIDDEN), hidden, spans, most)

    source = np.full_like(tokens, PAD_ID)
    source[:, 0] = tokens[:, 0]
    target, places = (np.zeros((rows, slots), np.int32) for _ in range(2))
    # The visible text, each part of it followed by its sentinel.
    origin = 1 + kept + hid_before[kept_row, kept_span]
    source[kept_row, 1 + kept + kept_span] = tokens[kept_row, origin]
    row, number = np.nonzero(np.arange(most) < spans[:, None])
    source[row, 1 + kept_before[row, number + 1] + number] = sentinels[number]
    # The sentinels, each followed by its tokens.
    target[row, hid_before[row, number] + number] = sentinels[number]
    origin = 1 + hid + kept_before[hid_row, hid_span + 1]
    target[hid_row, 1 + hid + hid_span] = tokens[hid_row, origin]
    places[hid_row, 1 + hid + hid_span] = origin
    every = np.arange(rows)
    ends = tokens[every, lengths - 1]
    source[every, 1 + left + spans] = ends
    some = spans > 0
    target[every[some], (used - 1)[some]] = ends[some]
    return source, target, places


def _divided(
    draws: npt.NDArray[np.uint64], items: Integers, parts: Integers, most: int
) -> tuple[Integers, Integers, Integers, Integers]:
    """Divide each row's items into non-empty parts, all divisions equally likely.

    :param draws: random bits, [R, S].
    :param items: number of items of each row, [R]; at least as many as its parts.
    :param parts: number of parts of each row, [R]. If it is 0, all items belong to the first.
    :returns: of each item its row, number and part, [N]; and how many items are before each part,
        [R, most + 1].
    """
    rows, width = draws.shape
    numbers = np.arange(width)
    is_item = numbers < items[:, None]
    # A part ends after an item that is not the last.
    borders = choose_tokens(draws, numbers < items[:, None] - 1, np.maximum(parts - 1, 0)).flags
    part_of: Integers = np.cumsum(borders, axis=1) - borders
    row, item = np.nonzero(is_item)
    part: Integers = part_of[row, item]
    sizes = np.bincount(row * most + part, minlength=rows * most).reshape(rows, most)
    before = np.concatenate([np.zeros((rows, 1), np.int64), np.cumsum(sizes, axis=1)], axis=1)
    return row, item, part, before


def restore_rows(
    source: Ids, target: Ids, places: Ids, weights: npt.NDArray[np.float32], lengths: Integers
) -> Ids:
    """Return rows as they were before :func:`corrupt_rows`, [R, S].

    :param weights: 1 for the tokens of a target, [R, P].
    :param lengths: lengths of the original rows, [R].
    """
    rows = np.zeros_like(source)
    for number, (line, ids, origin) in enumerate(zip(source, target, places, strict=True)):
        real = weights[number] > 0
        hidden = real & (origin > 0)
        rows[number, origin[hidden]] = ids[hidden]
        # All tokens without a position but the last, which is </s>.
        sentinels = ids[real & (origin == 0)][:-1]
        length = int(lengths[number])
        free = np.setdiff1d(np.arange(length), origin[hidden])
        rest = line[~np.isin(line, sentinels)]
        rows[number, free] = rest[: len(free)]
    return rows
