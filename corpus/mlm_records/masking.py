"""Masking as in BERT (arXiv 1810.04805, section 3.1), drawn from a counter-based hash."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from corpus.mlm_records.hashing import U64, draw, splitmix64, unit_interval
from corpus.mlm_records.spans import FRAME, PAD_ID, corrupt_rows
from corpus.mlm_records.tokens import TokenTable
from corpus.mlm_records.units import Chosen, choose_spans, choose_tokens, choose_words

MaskingUnit = Literal["token", "word", "span", "sentinel"]

_MASK_SHARE = 0.8
_KEEP_SHARE = 0.1
# Keeps the arrays in use small enough for processor caches; no mask depends on it.
_TOKENS_AT_ONCE = 1 << 15


class _Settings(Protocol):
    """The section ``masking`` of a configuration, which is not imported here."""

    @property
    def masked_lm_prob(self) -> float: ...

    @property
    def random_seed(self) -> int: ...

    @property
    def unit(self) -> MaskingUnit: ...

    @property
    def max_span_words(self) -> int: ...

    def span_counts(self, tokens: int) -> tuple[int, int]: ...


@dataclass(frozen=True)
class MaskingRecipe:
    """How rows are masked; the settings of the same names in ``pipeline_config``.

    ``masked_lm_prob``: share of a row's real tokens to predict, at least one token.
    ``max_predictions_per_seq``: upper limit of predictions in a row. ``unit``: the tokens that are
    chosen together; ``max_span_words``: longest span. With ``unit`` sentinel,
    ``max_predictions_per_seq`` is the longest target, and ``span_counts`` returns, from a text's
    number of tokens, how many are hidden and in how many spans.
    """

    masked_lm_prob: float
    max_predictions_per_seq: int
    random_seed: int
    unit: MaskingUnit = "token"
    max_span_words: int = 10
    span_counts: Callable[[int], tuple[int, int]] | None = None

    @classmethod
    def of(cls, masking: _Settings, max_predictions_per_seq: int) -> MaskingRecipe:
        """Return the recipe of a configuration, for rows of this many predictions."""
        return cls(
            masked_lm_prob=masking.masked_lm_prob,
            max_predictions_per_seq=max_predictions_per_seq,
            random_seed=masking.random_seed,
            unit=masking.unit,
            max_span_words=masking.max_span_words,
            span_counts=masking.span_counts,
        )


class MaskedRows(NamedTuple):
    """R rows after masking; P = max_predictions_per_seq.

    ``input_ids`` [R, S] int32; ``positions`` [R, P] int32, ascending, zero-padded; ``ids`` [R, P]
    int32, the original tokens; ``weights`` [R, P] float32, 1 for a prediction and 0 for padding.

    With sentinels ``input_ids`` are shorter than the rows were, ``ids`` are the targets, and
    ``positions`` as :func:`corpus.mlm_records.spans.corrupt_rows` returns them.
    """

    input_ids: npt.NDArray[np.int32]
    positions: npt.NDArray[np.int32]
    ids: npt.NDArray[np.int32]
    weights: npt.NDArray[np.float32]


def mask_rows(
    tokens: npt.NDArray[np.int32],
    lengths: npt.NDArray[np.int32],
    keys: npt.NDArray[np.uint64],
    table: TokenTable,
    recipe: MaskingRecipe,
) -> MaskedRows:
    """Choose the tokens to predict and hide them: 80 % [MASK], 10 % kept, 10 % a random token.

    That is decided for each token by itself, or, with spans, for each span. For ``unit`` sentinel
    see :mod:`corpus.mlm_records.spans`.

    :param tokens: rows of token ids, padded, shape [R, S]; they are not changed.
    :param lengths: real tokens of each row, [CLS] and [SEP] included, shape [R].
    :param keys: :func:`corpus.mlm_records.row_keys` of the rows, shape [R].
    :returns: the masked rows. A row has no predictions if it has no maskable token, or if the
        budget is too small for any of its words.
    :raises IndexError: a token is not in the table.
    """
    rows, width = tokens.shape
    slots = (rows, recipe.max_predictions_per_seq)
    masked = MaskedRows(
        tokens.astype(np.int32, copy=True),
        np.zeros(slots, np.int32),
        np.zeros(slots, np.int32),
        np.zeros(slots, np.float32),
    )
    step = max(1, _TOKENS_AT_ONCE // width)
    for start in range(0, rows, step):
        part = slice(start, start + step)
        views = MaskedRows(
            masked.input_ids[part],
            masked.positions[part],
            masked.ids[part],
            masked.weights[part],
        )
        _mask(views, lengths[part], keys[part], table, recipe)
    return masked


def _mask(
    masked: MaskedRows,
    lengths: npt.NDArray[np.int32],
    keys: npt.NDArray[np.uint64],
    table: TokenTable,
    recipe: MaskingRecipe,
) -> None:
    """Mask a few rows in place; all slots are zero before."""
    tokens = masked.input_ids
    draws = draw(keys, np.arange(tokens.shape[1], dtype=U64), recipe.random_seed)
    if recipe.unit == "sentinel":
        _corrupt(masked, lengths, draws, table, recipe)
        return
    chosen = _choose(tokens, lengths, draws, table, recipe)
    rows, places = np.nonzero(chosen.flags)
    first = np.searchsorted(rows, np.arange(len(tokens)))
    slots = np.arange(len(rows)) - first[rows]
    originals = tokens[rows, places]
    masked.positions[rows, slots] = places
    masked.ids[rows, slots] = originals
    masked.weights[rows, slots] = 1.0

    mask_id = table.mask_id
    assert mask_id is not None  # noqa: S101 - only T5's vocabularies have none
    second = splitmix64(draws[rows, places])
    leaders = np.maximum.accumulate(np.where(chosen.leaders[rows, places], np.arange(len(rows)), 0))
    share = unit_interval(second)[leaders]
    drawn = splitmix64(second) % U64(len(table.replacement_ids))
    tokens[rows, places] = np.where(
        share < _MASK_SHARE,
        np.int32(mask_id),
        np.where(share < _MASK_SHARE + _KEEP_SHARE, originals, table.replacement_ids[drawn]),
    )


def _corrupt(
    masked: MaskedRows,
    lengths: npt.NDArray[np.int32],
    draws: npt.NDArray[np.uint64],
    table: TokenTable,
    recipe: MaskingRecipe,
) -> None:
    assert recipe.span_counts is not None  # noqa: S101 - unit sentinel has it
    different, which = np.unique(lengths - FRAME, return_inverse=True)
    counts = [recipe.span_counts(text) for text in different.tolist()]
    source, target, places = corrupt_rows(
        masked.input_ids,
        lengths.astype(np.int64),
        draws,
        np.array(counts, np.int64).reshape(-1, 2)[which],
        sentinels=table.sentinels,
        slots=recipe.max_predictions_per_seq,
    )
    masked.input_ids[:], masked.ids[:], masked.positions[:] = source, target, places
    # A target has the id of padding only after its end.
    masked.weights[:] = target != PAD_ID


def _choose(
    tokens: npt.NDArray[np.int32],
    lengths: npt.NDArray[np.int32],
    draws: npt.NDArray[np.uint64],
    table: TokenTable,
    recipe: MaskingRecipe,
) -> Chosen:
    maskable = table.maskable[tokens]
    wanted = np.rint(lengths * recipe.masked_lm_prob)
    budget = np.clip(wanted, 1, recipe.max_predictions_per_seq).astype(np.int64)
    if recipe.unit == "token":
        return choose_tokens(draws, maskable, budget)
    continues = table.continues_word[tokens]
    if recipe.unit == "word":
        return choose_words(draws, maskable, continues, budget)
    return choose_spans(draws, maskable, continues, budget, recipe.max_span_words)
