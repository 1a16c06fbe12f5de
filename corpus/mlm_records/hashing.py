"""A counter-based hash, which makes every random choice a pure function of its inputs.

Choices are drawn from (document content, row within the document, copy or epoch, seed, position),
so it does not matter in which order, batch, process or retry they are made.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

U64 = np.uint64
# Odd constants that spread small counters over 64 bits: the golden ratio (also splitmix64's own
# increment) and two large primes.
GOLDEN = U64(0x9E3779B97F4A7C15)
_ROW = U64(0xD6E8FEB86659FD93)
_COPY = U64(0xA0761D6478BD642F)


def document_key(content_sha256: bytes) -> np.uint64:
    """Return the 64-bit key of a document: the first bytes of the SHA-256 of its content."""
    return U64(int.from_bytes(content_sha256[:8], "little"))


def row_keys(
    documents: npt.NDArray[np.uint64],
    rows: npt.NDArray[np.uint64],
    copy: int | npt.NDArray[np.uint64],
) -> npt.NDArray[np.uint64]:
    """Return one key per row, from which its masks are drawn.

    :param documents: :func:`document_key` of each row's document, shape [R].
    :param rows: each row's number within its document, from 0, shape [R].
    :param copy: which of the dupe_factor copies this is, from 0; or, for rows that are masked while
        training, the epoch, from 0: one for all rows or one for each, shape [R].
    """
    # Arrays, because numpy wraps their arithmetic silently, as intended, and warns for scalars.
    counter = (np.atleast_1d(np.asarray(copy, U64)) + U64(1)) * _COPY
    return splitmix64(documents ^ (rows + U64(1)) * _ROW ^ counter)


def splitmix64(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Mix 64-bit integers (Steele, Lea and Flood, OOPSLA 2014)."""
    mixed = values + GOLDEN
    # In place: on large arrays the memory traffic costs more than the arithmetic.
    shifted = mixed >> U64(30)
    mixed ^= shifted
    mixed *= U64(0xBF58476D1CE4E5B9)
    np.right_shift(mixed, U64(27), out=shifted)
    mixed ^= shifted
    mixed *= U64(0x94D049BB133111EB)
    np.right_shift(mixed, U64(31), out=shifted)
    mixed ^= shifted
    return mixed


def draw(
    keys: npt.NDArray[np.uint64], counters: npt.NDArray[np.uint64], random_seed: int
) -> npt.NDArray[np.uint64]:
    """Return 64 random bits for every key and counter, shape [R, C].

    :param keys: :func:`row_keys`, shape [R].
    :param counters: counters of the draws, such as positions, shape [C].
    """
    spread = splitmix64(counters * GOLDEN + U64(random_seed))
    return splitmix64(keys[:, None] ^ spread[None, :])


def unit_interval(draws: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """Return numbers in [0, 1) from the upper 53 bits."""
    return (draws >> U64(11)).astype(np.float64) * 2.0**-53
