"""Reads documents of TFRecord files that another program made for BERT: rows, masked or not.

Each record is a ``tf.train.Example`` as google-research/bert and tf-models write it. Masked tokens
are restored, so a document is the tokens of a row, and copies of a row with other masks are copies
of a document.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from corpus.text.compression import read_blocks
from corpus.text.drops import DropReason, Rejected, RejectedFileError
from corpus.tfrecords import FramingError, frames

# google-research/bert's names, and tf-models' for the same.
_IDS = ("input_ids", "input_word_ids")
_SEGMENTS = ("segment_ids", "input_type_ids")
_LARGEST_ID = 10_000_000
_FLOATS, _INTEGERS = 2, 3
_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5
_VARINT_BITS = 70
_FIXED = {_FIXED_64: 8, _FIXED_32: 4}

Ids = npt.NDArray[np.int32]
Features = dict[str, npt.NDArray[Any]]


class RowTokens(NamedTuple):
    """The tokens of a document that was read from a row.

    ``pieces``: the text without special tokens, cut at [SEP], int32 each. ``frame``: ids of the
    first and last token of the row. ``shown``: the row's tokens at the positions to predict.
    """

    pieces: list[Ids]
    frame: tuple[int, int]
    shown: npt.NDArray[np.int64]

    @property
    def sha256(self) -> bytes:
        """Hash of the tokens, wherever they are cut."""
        return hashlib.sha256(np.concatenate(self.pieces).astype("<i4").tobytes()).digest()

    @property
    def texts(self) -> list[str]:
        """The pieces as words, one for each token, by which similar documents are found."""
        return [" ".join(map(str, piece.tolist())) for piece in self.pieces]


def record_documents(stream: BinaryIO) -> Iterator[RowTokens | Rejected]:
    """Yield the documents of a plain or compressed file in order.

    A row whose second segment is a random one (``next_sentence_labels`` 1) is two documents.

    :raises RejectedFileError: it is no TFRecord file, or a damaged one.
    """
    try:
        for offset, record in frames(read_blocks(stream)):
            try:
                yield from _documents(_features(record))
            except (ValueError, LookupError) as error:
                detail = error.args[0] if isinstance(error, _RowError) else "no tf.train.Example"
                yield Rejected(DropReason.INVALID_RECORD, detail, offset, 0)
    except FramingError as error:
        reason = DropReason.CORRUPT_TFRECORD if error.offset else DropReason.WRONG_FORMAT
        detail = f"{error}; it is read as TFRecords, see corpus.input_format"
        raise RejectedFileError(reason, detail, error.offset) from error


class _RowError(ValueError):
    """A record is an Example, but no row for BERT."""


def _documents(features: Features) -> Iterator[RowTokens]:
    ids = _first_of(features, _IDS).copy()
    real = features.get("input_mask", ids != 0)
    length = int(np.count_nonzero(real))
    if len(real) != len(ids) or length < 2 or not np.all(real[:length]):
        raise _RowError("its real tokens are fewer than two, or not the first ones")
    shown = _unmask(ids, features)
    segments = np.zeros(len(ids), np.int64)
    if any(name in features for name in _SEGMENTS):
        segments = _first_of(features, _SEGMENTS)
    if len(segments) != len(ids):
        raise _RowError("it has not as many segment ids as tokens")
    if ids.min() < 0 or ids.max() > _LARGEST_ID:
        raise _RowError(f"a token's id is below 0 or above {_LARGEST_ID}")
    tokens = ids.astype(np.int32)
    frame = int(tokens[0]), int(tokens[length - 1])
    by_segment: dict[int, list[Ids]] = {}
    begin = 1
    for end in np.flatnonzero(tokens[1:length] == frame[1]) + 1:
        if end > begin:
            by_segment.setdefault(int(segments[begin]), []).append(tokens[begin:end])
        begin = int(end) + 1
    if not by_segment:
        raise _RowError("it has no token but special ones")
    if features.get("next_sentence_labels", np.zeros(1)).any():
        yield from (RowTokens(pieces, frame, shown) for pieces in by_segment.values())
    else:
        pieces = [piece for parts in by_segment.values() for piece in parts]
        yield RowTokens(pieces, frame, shown)


def _unmask(ids: npt.NDArray[np.int64], features: Features) -> npt.NDArray[np.int64]:
    """Restore the masked tokens of a row; return the tokens that were in their places."""
    if "masked_lm_ids" not in features:
        return ids[:0]
    labels = _integers(features, "masked_lm_ids")
    positions = _integers(features, "masked_lm_positions")
    weights = features.get("masked_lm_weights", labels)
    if not len(labels) == len(positions) == len(weights):
        raise _RowError("it has not as many masked positions and weights as masked tokens")
    is_used = weights != 0
    places = positions[is_used]
    if len(places) and not 0 <= places.min() <= places.max() < len(ids):
        raise _RowError("a masked position is outside of the row")
    shown = ids[places]
    ids[places] = labels[is_used]
    return shown


def _first_of(features: Features, names: tuple[str, ...]) -> npt.NDArray[np.int64]:
    for name in names:
        if name in features:
            return _integers(features, name)
    raise _RowError(f"it has no feature {names[0]}")


def _integers(features: Features, name: str) -> npt.NDArray[np.int64]:
    found = features.get(name, np.zeros(0, np.int64))
    if found.dtype != np.int64:
        raise _RowError(f"the values of {name} are no int64")
    return found


def _features(record: bytes) -> Features:
    """Return the numbers of a serialized ``tf.train.Example`` by name, int64 or float32.

    The wire format is that of :mod:`corpus.rows.examples`, in any order, packed or not.

    :raises ValueError: it is no such message.
    """
    found: Features = {}
    for _, features in _fields(record, {1}):
        for _, entry in _fields(features, {1}):
            parts = dict(_fields(entry, {1, 2}))
            for kind, values in _fields(parts[2], {_FLOATS, _INTEGERS}):
                found[parts[1].decode()] = _numbers(kind, values)
    return found


def _numbers(kind: int, values: bytes) -> npt.NDArray[Any]:
    payload = b"".join(value for _, value in _fields(values, {1}))
    if kind == _FLOATS:
        return np.frombuffer(payload, "<f4")
    octets = np.frombuffer(payload, np.uint8)
    is_last = octets < 0x80
    if not len(octets):
        return np.zeros(0, np.int64)
    if not is_last[-1]:
        raise ValueError("a number is cut short")
    ends = np.flatnonzero(is_last)
    starts = np.concatenate([[0], ends[:-1] + 1])
    shifts = 7 * (np.arange(len(octets)) - np.repeat(starts, ends - starts + 1))
    groups = (octets & 0x7F).astype(np.uint64) << shifts.astype(np.uint64)
    return np.add.reduceat(groups, starts).view(np.int64)


def _fields(data: bytes, wanted: set[int]) -> Iterator[tuple[int, bytes]]:
    """Yield the wanted fields of a message; a number is yielded as its encoded bytes."""
    place = 0
    while place < len(data):
        key, place = _varint(data, place)
        begin = place
        if key & 7 == _BYTES:
            size, begin = _varint(data, place)
            place = begin + size
        elif key & 7 == _VARINT:
            _, place = _varint(data, place)
        else:
            place += _FIXED[key & 7]
        if place > len(data):
            raise ValueError("a field is cut short")
        if key >> 3 in wanted:
            yield key >> 3, data[begin:place]


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        octet = data[place]
        place += 1
        value |= (octet & 0x7F) << shift
        if octet < 0x80:
            return value, place
        shift += 7
        if shift >= _VARINT_BITS:
            raise ValueError("a number has no end")
