"""Serialised ``tf.train.Example`` messages, written directly: building message objects costs more
than everything else in the data job together.

Wire format: https://protobuf.dev/programming-guides/encoding and tensorflow/core/example/*.proto
::

    Example   = 0x0a length features
    features  = (0x0a length entry)*                    map<string, Feature>
    entry     = 0x0a length name  0x12 length feature
    feature   = 0x1a length list (Int64List)  |  0x12 length list (FloatList)
    list      = 0x0a length payload                     packed varints or little-endian float32
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from mlm_records import FEATURES, Feature

_BYTES = b"\x0a"
_VALUE = b"\x12"
_FLOAT_LIST = b"\x12"
_INT64_LIST = b"\x1a"


def serialize_examples(
    arrays: Mapping[str, npt.NDArray[np.int64] | npt.NDArray[np.float32]],
) -> list[bytes]:
    """Return one serialised ``tf.train.Example`` per row.

    :param arrays: the values of every feature, [R, length]: :func:`mlm_records.feature_arrays`.
    """
    columns = [_entries(feature, arrays[feature.name]) for feature in FEATURES]
    bodies = map(b"".join, zip(*columns, strict=True))
    return [_BYTES + varint(len(body)) + body for body in bodies]


def varint(value: int) -> bytes:
    """Return a non-negative integer as a base-128 varint."""
    octets = bytearray()
    while value > 0x7F:
        octets.append(value & 0x7F | 0x80)
        value >>= 7
    octets.append(value)
    return bytes(octets)


def packed_varints(values: npt.NDArray[np.int64]) -> list[bytes]:
    """Return each row's integers as varints, one after the other.

    :param values: shape [R, K]; a negative number takes ten bytes, as in any int64 field.
    """
    unsigned = np.ascontiguousarray(values, np.int64).view(np.uint64)
    width = len(varint(int(unsigned.max(initial=0))))
    sizes = np.ones(unsigned.shape, np.int64)
    for groups in range(1, width):
        sizes += unsigned >= np.uint64(1 << 7 * groups)
    group = np.arange(width)
    octets = (unsigned[..., None] >> (7 * group).astype(np.uint64)) & np.uint64(0x7F)
    octets |= (group < sizes[..., None] - 1).astype(np.uint64) << np.uint64(7)
    payload = octets.astype(np.uint8)[group < sizes[..., None]].tobytes()
    ends = [0, *np.cumsum(sizes.sum(axis=1)).tolist()]
    return [payload[start:stop] for start, stop in pairwise(ends)]


def _floats(values: npt.NDArray[np.float32]) -> list[bytes]:
    payload = values.astype("<f4").tobytes()
    size = 4 * values.shape[1]
    return [payload[start : start + size] for start in range(0, len(payload), size)]


def _entries(
    feature: Feature, values: npt.NDArray[np.int64] | npt.NDArray[np.float32]
) -> list[bytes]:
    """Return the feature's map entry for every row."""
    if feature.dtype == "int64":
        tag, payloads = _INT64_LIST, packed_varints(values.astype(np.int64))
    else:
        tag, payloads = _FLOAT_LIST, _floats(values.astype(np.float32))
    return [_entry_head(feature.name, tag, len(payload)) + payload for payload in payloads]


@cache
def _entry_head(name: str, list_tag: bytes, size: int) -> bytes:
    """Return everything before the payload; it depends on nothing but the payload's size."""
    numbers = _BYTES + varint(size)
    feature = list_tag + varint(len(numbers) + size) + numbers
    key = name.encode()
    entry = _BYTES + varint(len(key)) + key + _VALUE + varint(len(feature) + size) + feature
    return _BYTES + varint(len(entry) + size) + entry
