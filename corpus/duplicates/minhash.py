"""MinHash signatures, which estimate from a few bytes per text how similar two texts are.

Broder, "On the resemblance and containment of documents" (1997). The sketches are those of
datasketch's scheme ``affine32``. They are computed here, as arrays: a Python call per shingle would
take most of the time, and importing that library, which imports SciPy, longer than the rest.

A short sketch is one byte of each of half of the numbers (b-bit minwise hashing: Li and König,
arXiv 0910.3349), an eighth of the size: enough to recognize a revised text, and cheap enough to be
made of every document.
"""

from __future__ import annotations

import functools
import re
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

# The standard deviation of the estimated share in common is then 0.035 at 0.8.
PERMUTATIONS = 128
# Here it is 0.05. Equal bytes by chance add 0.004 times the share that is not in common.
SHORT_PERMUTATIONS = 64
# Part of the key of files with sketches. Raise it when a text gets another sketch than before.
SKETCH_VERSION = 1
SHINGLE_WORDS = 5
# In scripts without spaces every character counts as a word.
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]|\w+")
_ASCII_WORD = re.compile(rb"\w+")
_MULTIPLIERS = np.array(
    [0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0xD6E8FEB86659FD93, 1], np.uint64
)

Sketches = npt.NDArray[np.unsignedinteger[Any]]
"""Whole ones, uint32 [N, 128], or short ones, uint8 [N, 64]."""


def sketches_of(texts: Sequence[str]) -> Sketches:
    """Return the MinHash of each text's five-word shingles, uint32 [N, 128].

    Case and punctuation make no difference. A text of fewer than five words is one shingle.
    """
    return _minima(texts, PERMUTATIONS)


def short_sketches_of(texts: Sequence[str]) -> Sketches:
    """Return the texts' short sketches, uint8 [N, 64]."""
    return _bytes(_minima(texts, SHORT_PERMUTATIONS))


def comparable(first: Sketches, second: Sketches) -> tuple[Sketches, Sketches]:
    """Return both in the same form: whole sketches if both are whole, else short ones."""
    if first.dtype == second.dtype:
        return first, second
    return _shortened(first), _shortened(second)


def _shortened(sketches: Sketches) -> Sketches:
    if sketches.dtype == np.uint8:
        return sketches
    return _bytes(sketches[:, :SHORT_PERMUTATIONS].astype(np.uint32))


def _bytes(minima: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint8]:
    # The lowest byte as it is would be equal in all places or in none for texts of one shingle, as
    # the permutations are affine; the highest is 0 for long texts.
    return _mixed(minima).astype(np.uint8)


def _minima(texts: Sequence[str], permutations: int) -> npt.NDArray[np.uint32]:
    minima = np.empty((permutations, len(texts)), np.uint32)
    if not len(texts):
        return minima.T
    shingles, begins = _shingles(texts)
    mixed = _mixed(shingles)
    for row, multiplier, summand in zip(minima, *_permutations(), strict=False):
        np.minimum.reduceat(mixed * multiplier + summand, begins, out=row)
    return np.ascontiguousarray(minima.T)


def _mixed(hashes: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Return the hashes after the last steps of MurmurHash3, which spread similar values."""
    mixed = hashes ^ hashes >> np.uint32(16)
    mixed *= np.uint32(0x85EBCA6B)
    mixed ^= mixed >> np.uint32(13)
    mixed *= np.uint32(0xC2B2AE35)
    mixed ^= mixed >> np.uint32(16)
    return mixed


def _shingles(texts: Sequence[str]) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
    """Return a hash of every five consecutive words, one text after the other.

    :returns: hashes [S], and the index of each text's first one, [N].
    """
    words: list[bytes] = []
    sizes = []
    for text in texts:
        found = _words(text)
        # Zeros after the last word, so that a short text has a shingle as well.
        found += [b""] * (SHINGLE_WORDS - len(found))
        words += found
        sizes.append(len(found))
    hashes = np.fromiter(map(zlib.crc32, words), np.uint64, len(words))
    count = len(hashes) - SHINGLE_WORDS + 1
    mixed = np.zeros(count, np.uint64)
    for place, multiplier in enumerate(_MULTIPLIERS):
        mixed += hashes[place : place + count] * multiplier
        mixed ^= mixed >> np.uint64(29)
    shingles = (mixed * _MULTIPLIERS[1] >> np.uint64(32)).astype(np.uint32)
    lengths = np.array(sizes, np.int64)
    ends = np.cumsum(lengths)
    is_within = np.ones(count, bool)
    for place in range(1, SHINGLE_WORDS):
        is_within[ends[:-1] - place] = False
    begins = ends - lengths - (SHINGLE_WORDS - 1) * np.arange(len(lengths))
    return shingles[is_within], begins


def _words(text: str) -> list[bytes]:
    text = text.lower()
    if text.isascii():
        return _ASCII_WORD.findall(text.encode())
    return [word.encode() for word in _WORD.findall(text)]


@functools.cache
def _permutations() -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
    """Return the multipliers and the summands of all permutations."""
    draw = np.random.RandomState(1)  # whose numbers numpy keeps the same forever
    multipliers = draw.randint(0, 1 << 31, PERMUTATIONS, dtype=np.uint32) * np.uint32(2)
    return multipliers + np.uint32(1), draw.randint(0, 1 << 32, PERMUTATIONS, dtype=np.uint32)
