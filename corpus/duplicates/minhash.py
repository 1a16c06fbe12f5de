"""MinHash signatures: how alike two texts are, from a few hundred bytes each.

Broder, "On the resemblance and containment of documents" (1997). The sketches are datasketch's;
the shingles are hashed here, as arrays, because a Python call per shingle would take most of the
time.
"""

from __future__ import annotations

import functools
import re
import zlib
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from datasketch import MinHash

# The estimated share in common is then off by 0.035 (one standard deviation) at 0.8.
PERMUTATIONS = 128
# Part of the key of files with sketches. Raise it when a text gets another sketch than before.
SKETCH_VERSION = 1
SHINGLE_WORDS = 5
# In scripts without spaces every character counts as a word.
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]|\w+")
_SHINGLES_AT_ONCE = 4096
_MULTIPLIERS = np.array(
    [0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0xD6E8FEB86659FD93, 1], np.uint64
)

Sketch = npt.NDArray[np.uint32]


def sketch_of(text: str) -> Sketch:
    """Return the MinHash of a text's five-word shingles, shape [128].

    Case and punctuation make no difference. A text of fewer than five words is one shingle.
    """
    sketch = _empty_sketch().copy()
    shingles = _shingles(text)
    for start in range(0, len(shingles), _SHINGLES_AT_ONCE):
        sketch.update_batch(shingles[start : start + _SHINGLES_AT_ONCE].tolist())
    values: Sketch = sketch.hashvalues
    return values


def _shingles(text: str) -> npt.NDArray[np.uint32]:
    """Return a 32-bit hash of every five words in a row."""
    words = _WORD.findall(text.lower())
    hashes = np.fromiter((zlib.crc32(word.encode()) for word in words), np.uint64, len(words))
    # Zeros after the last word, so that a short text has a shingle as well.
    hashes = np.pad(hashes, (0, max(0, SHINGLE_WORDS - len(hashes))))
    count = len(hashes) - SHINGLE_WORDS + 1
    mixed = np.zeros(count, np.uint64)
    for place, multiplier in enumerate(_MULTIPLIERS):
        mixed += hashes[place : place + count] * multiplier
        mixed ^= mixed >> np.uint64(29)
    return (mixed * _MULTIPLIERS[1] >> np.uint64(32)).astype(np.uint32)


@functools.cache
def _empty_sketch() -> MinHash:
    # Imported here, as with SciPy it takes longer than all else and is rarely needed.
    from datasketch import MinHash

    return MinHash(num_perm=PERMUTATIONS, seed=1, hashfunc=_identity, scheme="affine32")


def _identity(value: int) -> int:
    return value
