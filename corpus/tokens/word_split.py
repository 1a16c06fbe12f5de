"""Cuts UTF-8 text into words by the class of each byte, in whole arrays at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

# Classes of bytes. The values are such that "a word begins here" is one comparison, see below.
SEPARATOR, INSIDE_WORD, ALONE = 0, 1, 2

KEY_BYTES = 32
_NEWLINE = 10
# Little-endian masks that keep the first n bytes of an integer.
_FIRST_BYTES = np.array([(1 << 8 * n) - 1 for n in range(9)], np.uint64)


@dataclass(frozen=True)
class ByteRules:
    """Rules to clean and cut text. Bytes from 128 on, of non-ASCII characters, are no borders.

    :param replace: 256 bytes, what each byte becomes.
    :param delete: bytes that are left out.
    :param classes: 256 classes, of the bytes after replacement; those of ``\\n`` and space are
        ``SEPARATOR``.
    """

    replace: bytes
    delete: bytes
    classes: bytes


class Words(NamedTuple):
    """The words of several pieces of text, one after the other."""

    text: bytes
    starts: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]
    piece_ends: npt.NDArray[np.int64]
    """For each piece the number of words up to its end."""

    def spellings(self, numbers: npt.NDArray[np.int64]) -> list[bytes]:
        """Return some of the words."""
        starts = self.starts[numbers]
        ends = starts + self.lengths[numbers]
        text = self.text
        return [text[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]

    def keys(self, numbers: npt.NDArray[np.int64] | slice, width: int) -> npt.NDArray[np.uint64]:
        """Return the first ``8 * width`` bytes of words as integers, zeros after their end.

        :returns: ``[width, n]``.
        """
        starts, lengths = self.starts[numbers], self.lengths[numbers]
        keys = np.empty((width, len(starts)), np.uint64)
        for column in range(width):
            # Eight bytes from any place: an array whose elements overlap.
            windows: npt.NDArray[np.uint64] = np.ndarray(
                (len(self.text) - KEY_BYTES,), "<u8", self.text, offset=8 * column, strides=(1,)
            )
            keys[column] = windows[starts]
            keys[column] &= _FIRST_BYTES.take(lengths - 8 * column, mode="clip")
        return keys


def split_words(pieces: Sequence[bytes], rules: ByteRules) -> Words:
    """Return the words of all pieces; none of them holds a newline.

    A word is a run of bytes of the class ``INSIDE_WORD``, or one byte of the class ``ALONE``.
    """
    joined = b"\n".join([b"", *pieces, b""])
    text = joined.translate(rules.replace, rules.delete) + bytes(KEY_BYTES)
    size = len(text) - KEY_BYTES
    classes = np.frombuffer(text[:size].translate(rules.classes), np.uint8)
    before, here = classes[:-1], classes[1:]
    # 2 > 1 and 2 > 0 and 1 > 0: a byte that stands alone, or the first byte inside a word; and the
    # same from the other side.
    starts = np.flatnonzero(here > (before & 1)) + 1
    ends = np.flatnonzero(before > (here & 1)) + 1
    newlines = np.flatnonzero(np.frombuffer(text, np.uint8, size) == _NEWLINE)
    return Words(text, starts, ends - starts, np.searchsorted(starts, newlines[1:]))


def keys_of(spellings: Sequence[bytes], width: int) -> npt.NDArray[np.uint64]:
    """Return words of at most ``8 * width`` bytes as :meth:`Words.keys` does."""
    padded = b"".join([word.ljust(8 * width, b"\0") for word in spellings])
    return np.ascontiguousarray(np.frombuffer(padded, "<u8").reshape(-1, width).T)
