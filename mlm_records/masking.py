"""Masking as in BERT (arXiv 1810.04805, section 3.1), drawn from a counter-based hash.

Every random choice is a pure function of (document content, row within the document, copy, seed,
position). It therefore does not matter in which order, batch, process or retry a row is masked.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

U64 = np.uint64
# Odd constants that spread small counters over 64 bits: the golden ratio (also splitmix64's own
# increment) and two large primes.
_GOLDEN = U64(0x9E3779B97F4A7C15)
_ROW = U64(0xD6E8FEB86659FD93)
_COPY = U64(0xA0761D6478BD642F)
_MASK_SHARE = 0.8
_KEEP_SHARE = 0.1


class MaskedRows(NamedTuple):
    """R rows after masking; P = max_predictions_per_seq.

    ``input_ids`` [R, S] int32; ``positions`` [R, P] int32, ascending, zero-padded; ``ids`` [R, P]
    int32, the original tokens; ``weights`` [R, P] float32, 1 for a prediction and 0 for padding.
    """

    input_ids: npt.NDArray[np.int32]
    positions: npt.NDArray[np.int32]
    ids: npt.NDArray[np.int32]
    weights: npt.NDArray[np.float32]


def document_key(content_sha256: bytes) -> np.uint64:
    """Return the 64-bit key of a document: the first bytes of the SHA-256 of its content."""
    return U64(int.from_bytes(content_sha256[:8], "little"))


def row_keys(
    documents: npt.NDArray[np.uint64], rows: npt.NDArray[np.uint64], copy: int
) -> npt.NDArray[np.uint64]:
    """Return one key per row.

    :param documents: :func:`document_key` of each row's document, shape [R].
    :param rows: each row's number within its document, from 0, shape [R].
    :param copy: which of the dupe_factor copies this is, from 0.
    """
    # Arrays, because numpy wraps their arithmetic silently, as intended, and warns for scalars.
    counter = np.array([copy + 1], U64) * _COPY
    return _splitmix64(documents ^ (rows + U64(1)) * _ROW ^ counter)


def _splitmix64(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Mix 64-bit integers (Steele, Lea and Flood, OOPSLA 2014)."""
    mixed = values + _GOLDEN
    mixed = (mixed ^ (mixed >> U64(30))) * U64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> U64(27))) * U64(0x94D049BB133111EB)
    return mixed ^ (mixed >> U64(31))


def _unit(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """Return numbers in [0, 1) from the upper 53 bits."""
    return (values >> U64(11)).astype(np.float64) * 2.0**-53


def mask_rows(
    tokens: npt.NDArray[np.int32],
    lengths: npt.NDArray[np.int32],
    maskable: npt.NDArray[np.bool_],
    keys: npt.NDArray[np.uint64],
    *,
    masked_lm_prob: float,
    max_predictions_per_seq: int,
    mask_token_id: int,
    replacement_ids: npt.NDArray[np.int32],
    random_seed: int,
) -> MaskedRows:
    """Choose the tokens to predict and hide them: 80 % [MASK], 10 % kept, 10 % a random token.

    :param tokens: rows of token ids, zero-padded, shape [R, S].
    :param lengths: real tokens of each row, [CLS] and [SEP] included, shape [R].
    :param maskable: which positions may be chosen (no [CLS], [SEP] or padding), shape [R, S].
    :param keys: :func:`row_keys` of the rows, shape [R].
    :param masked_lm_prob: share of a row's real tokens to predict; at least one is.
    :param max_predictions_per_seq: upper limit of predictions in a row.
    :param replacement_ids: tokens that may stand in for another; no special tokens.
    :returns: the masked rows; rows without a maskable position have no predictions.
    """
    rows, width = tokens.shape
    positions_key = np.arange(width, dtype=U64) * _GOLDEN + U64(random_seed)
    draws = _splitmix64(keys[:, None] ^ _splitmix64(positions_key)[None, :])
    # One bit of the score says "not maskable", so those sort behind every other position.
    scores = (draws >> U64(1)) | (~maskable).astype(U64) << U64(63)

    wanted = np.clip(np.rint(lengths * masked_lm_prob), 1, max_predictions_per_seq)
    counts = np.minimum(wanted.astype(np.int64), maskable.sum(axis=1))
    order = np.argsort(scores, axis=1, kind="stable")[:, :max_predictions_per_seq]
    slots = np.arange(order.shape[1])[None, :] < counts[:, None]

    # Unused slots take position `width`, so that sorting moves them to the end.
    chosen = np.sort(np.where(slots, order, width), axis=1)
    used = chosen < width
    positions = np.where(used, chosen, 0)

    row_index = np.arange(rows)[:, None]
    originals = tokens[row_index, positions]
    second = _splitmix64(draws[row_index, positions])
    share = _unit(second)
    random_ids = replacement_ids[_splitmix64(second) % U64(len(replacement_ids))]
    hidden = np.where(
        share < _MASK_SHARE,
        np.int32(mask_token_id),
        np.where(share < _MASK_SHARE + _KEEP_SHARE, originals, random_ids),
    )
    masked = tokens.copy()
    row_of_slot = np.broadcast_to(row_index, positions.shape)
    masked[row_of_slot[used], positions[used]] = hidden[used]
    return MaskedRows(
        input_ids=masked,
        positions=_pad(positions, max_predictions_per_seq, np.int32),
        ids=_pad(np.where(used, originals, 0), max_predictions_per_seq, np.int32),
        weights=_pad(used, max_predictions_per_seq, np.float32),
    )


def _pad(values: npt.NDArray, width: int, dtype: type) -> npt.NDArray:
    """Widen the last axis with zeros: rows may be shorter than the number of slots."""
    return np.pad(values, ((0, 0), (0, width - values.shape[1]))).astype(dtype)
