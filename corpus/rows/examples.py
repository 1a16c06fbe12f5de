"""Serializes ``tf.train.Example`` messages directly, without building message objects.

Building them costs more than everything else in the data job together.

Wire format: https://protobuf.dev/programming-guides/encoding and tensorflow/core/example/*.proto
::

    Example   = 0x0a length features
    features  = (0x0a length entry)*                    map<string, Feature>
    entry     = 0x0a length name  0x12 length feature
    feature   = 0x1a length list (Int64List)  |  0x12 length list (FloatList)
    list      = 0x0a length payload                     packed varints or little-endian float32

The entries of a map have no order. Those whose size is the same in all rows come last, so that a
whole batch of them is one matrix of bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

_BYTES = b"\x0a"
_VALUE = b"\x12"
_FLOAT_LIST = b"\x12"
_INT64_LIST = b"\x1a"
_GROUP_BITS = 7
_NARROW_GROUPS = 4


class NamedFeature(Protocol):
    """A feature of a record, such as :class:`corpus.mlm_records.Feature`."""

    @property
    def name(self) -> str:
        """Its name in the record."""
        ...

    @property
    def dtype(self) -> str:
        """``int64`` or ``float32``."""
        ...


def serialize_examples(
    features: Sequence[NamedFeature], arrays: Mapping[str, npt.NDArray[Any]]
) -> list[bytes]:
    """Return one serialized ``tf.train.Example`` per row.

    :param arrays: the values of every feature, [R, length]:
        :func:`corpus.mlm_records.feature_arrays`.
        Integers of type uint8 have to be below 128.
    """
    varying: list[list[bytes]] = []
    fixed: list[npt.NDArray[np.uint8]] = []
    for feature in features:
        name, values = feature.name, arrays[feature.name]
        if feature.dtype == "float32":
            payload = np.ascontiguousarray(values, "<f4").view(np.uint8)
            fixed += [_constant(_entry_head(name, _FLOAT_LIST, payload.shape[1]), payload), payload]
        elif values.dtype == np.uint8:
            # A number below 128 is its own varint.
            if values.size and values.max() >> _GROUP_BITS:
                raise ValueError(f"{name} has a uint8 of {values.max()}, which is over 127")
            fixed += [_constant(_entry_head(name, _INT64_LIST, values.shape[1]), values), values]
        else:
            payloads = packed_varints(values)
            varying += [[_entry_head(name, _INT64_LIST, len(one)) for one in payloads], payloads]
    if fixed:
        varying.append(_rows(np.concatenate(fixed, axis=1)))
    bodies = map(b"".join, zip(*varying, strict=True))
    return [_example_head(len(body)) + body for body in bodies]


def varint(value: int) -> bytes:
    """Return a non-negative integer as a base-128 varint."""
    octets = bytearray()
    while value > 0x7F:
        octets.append(value & 0x7F | 0x80)
        value >>= _GROUP_BITS
    octets.append(value)
    return bytes(octets)


def packed_varints(values: npt.NDArray[np.integer]) -> list[bytes]:
    """Return each row's integers as varints, one after the other.

    :param values: shape [R, K]; a negative number takes ten bytes, as in any int64 field.
    """
    narrow = values.size and values.min() >= 0 and values.max() < 1 << _GROUP_BITS * _NARROW_GROUPS
    # Four bytes at once are several times faster, and enough for every token.
    octets, sizes = _narrow_varints(values) if narrow else _wide_varints(values)
    kept = _kept(octets.shape[-1]).take(sizes, axis=0)
    # Flat, because numpy takes single bytes by index four times faster than by mask.
    payload = octets.ravel().take(np.flatnonzero(kept)).tobytes()
    ends = [0, *np.cumsum(sizes.sum(axis=1, dtype=np.int64)).tolist()]
    return [payload[start:stop] for start, stop in pairwise(ends)]


def _narrow_varints(
    values: npt.NDArray[np.integer],
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Return the bytes [R, K, 4] of numbers below 2**28, and how many of them count [R, K]."""
    numbers = values.astype(np.uint32)
    words = numbers & np.uint32(0x7F)
    sizes = np.ones(numbers.shape, np.uint8)
    for group in range(1, _NARROW_GROUPS):
        first = 1 << _GROUP_BITS * group
        longer = numbers >= np.uint32(first)
        if not longer.any():
            break
        sizes += longer
        words |= longer.astype(np.uint32) << np.uint32(8 * group - 1)
        words |= (numbers & np.uint32(0x7F * first)) << np.uint32(group)
    return words.astype("<u4").view(np.uint8).reshape(*numbers.shape, 4), sizes


def _wide_varints(
    values: npt.NDArray[np.integer],
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Return the bytes [R, K, 10] of any integers, and how many of them count [R, K]."""
    numbers = values.astype(np.int64).view(np.uint64)
    width = len(varint(2**64 - 1))
    sizes = np.ones(numbers.shape, np.uint8)
    for group in range(1, width):
        sizes += numbers >= np.uint64(1 << _GROUP_BITS * group)
    shifts = (_GROUP_BITS * np.arange(width)).astype(np.uint64)
    octets = ((numbers[..., None] >> shifts) & np.uint64(0x7F)).astype(np.uint8)
    octets |= (np.arange(width) < sizes[..., None] - 1).astype(np.uint8) << np.uint8(7)
    return octets, sizes


@cache
def _kept(width: int) -> npt.NDArray[np.bool_]:
    """Return for each size up to ``width`` which bytes count, [width + 1, width]."""
    return np.tri(width + 1, width, -1, bool)


def _constant(octets: bytes, beside: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Return the same bytes for each row of ``beside``."""
    row = np.frombuffer(octets, np.uint8)
    return np.broadcast_to(row, (len(beside), len(row)))


def _rows(octets: npt.NDArray[np.uint8]) -> list[bytes]:
    size = octets.shape[1]
    flat = octets.tobytes()
    return [flat[start : start + size] for start in range(0, len(flat), size)]


@cache
def _entry_head(name: str, list_tag: bytes, size: int) -> bytes:
    """Return everything before the payload; it depends on nothing but the payload's size."""
    numbers = _BYTES + varint(size)
    feature = list_tag + varint(len(numbers) + size) + numbers
    key = name.encode()
    entry = _BYTES + varint(len(key)) + key + _VALUE + varint(len(feature) + size) + feature
    return _BYTES + varint(len(entry) + size) + entry


@cache
def _example_head(size: int) -> bytes:
    return _BYTES + varint(size)
