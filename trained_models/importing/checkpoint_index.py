"""Lists the tensors of a TensorFlow checkpoint without TensorFlow: names, shapes, object graph.

``PREFIX.index`` is a table of LevelDB (https://github.com/google/leveldb, doc/table_format.md), its
values are ``BundleEntryProto`` (tensorflow/core/protobuf/tensor_bundle.proto). No weight is read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

from trained_models.errors import BadDataError
from trained_models.importing.readers import StoredTensor
from trained_models.weight_names import Layout, Part, Weight

OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
"""Name of the tensor that lists the objects of a ``tf.train.Checkpoint``."""
# Children that hold no weights of the model, in any object that has them.
_NOT_WEIGHTS = {b"optimizer", b"save_counter", b"global_step"}
# Google's names of tensors that differ from what the variables here suggest.
_GOOGLE_NAMES = {
    "cls.predictions.bias": "cls/predictions/output_bias",
    "cls.seq_relationship.weight": "cls/seq_relationship/output_weights",
    "cls.seq_relationship.bias": "cls/seq_relationship/output_bias",
}
_MAGIC = 0xDB4775248B80FB57
_FOOTER_BYTES = 48
_TRAILER_BYTES = 5
_CHECKSUM_BYTES = 4
# Errors of reading bytes that are something else.
_DAMAGED = (IndexError, ValueError, KeyError, TypeError, StopIteration)


@dataclass(frozen=True)
class CheckpointIndex:
    """The content of the index of a checkpoint.

    :param shapes: shapes by the name of the tensor.
    :param keys: for a ``tf.train.Checkpoint``, the tensor of each variable by its name, without
        those of optimizers; None: it is a checkpoint of TensorFlow 1.
    """

    shapes: dict[str, tuple[int, ...]]
    keys: dict[str, str] | None

    def find(self, weight: Weight) -> StoredTensor | None:
        """Return the tensor of a weight, if there is one and no other of its name."""
        if self.keys is None:
            return google_tensor(weight, self.shapes)
        found = variables_named(weight.variable, self.keys)
        if len(found) != 1:
            return None
        return StoredTensor(found[0], self.shapes[self.keys[found[0]]], Layout.VARIABLE)


def google_tensor(weight: Weight, shapes: Mapping[str, Sequence[int]]) -> StoredTensor | None:
    """Return the tensor of a weight in a checkpoint of https://github.com/google-research/bert.

    :param shapes: shapes of its tensors by name.
    """
    name = _google_name(weight)
    if name not in shapes:
        return None
    # The only kernel that is stored transposed.
    turned = weight.part is Part.NEXT_SENTENCE
    layout = Layout.TRANSPOSED if turned else Layout.MATRIX
    return StoredTensor(name, tuple(shapes[name]), layout)


def _google_name(weight: Weight) -> str:
    if weight.tensor in _GOOGLE_NAMES:
        return _GOOGLE_NAMES[weight.tensor]
    path = re.sub(r"layer\.(\d+)", r"layer_\1", weight.tensor).replace(".", "/")
    # The last part is kernel, bias, gamma or beta, as here; embeddings have none.
    last = weight.variable.rpartition("/")[2]
    path = path.rpartition("/")[0] + ("" if last == "embeddings" else f"/{last}")
    return path if weight.part is Part.MASKED_LM else f"bert/{path}"


def variables_named(variable: str, keys: Mapping[str, str]) -> list[str]:
    """Return the names of a checkpoint's variables that end with that of a weight's variable."""
    return sorted(name for name in keys if f"/{name}".endswith(f"/{variable}"))


def read_index(prefix: str, open_stream: Callable[[str], BinaryIO]) -> CheckpointIndex:
    """Read the index of a checkpoint.

    :param prefix: prefix of the checkpoint's files.
    :param open_stream: opens a file.
    :raises BadDataError: it is no checkpoint, or the file with its object graph is cut short.
    """
    place = f"{prefix.rstrip('/')}.index"
    with open_stream(place) as stream:
        data = stream.read()
    try:
        entries = {key.decode(): _by_number(value) for key, value in _table(data)}
        header = entries.pop("")
        graph = entries.pop(OBJECT_GRAPH, None)
        shapes = {name: _shape(entry) for name, entry in entries.items()}
        if graph is None:
            return CheckpointIndex(shapes, None)
        shards = header.get(1, [1])[0]
        file = f"{prefix.rstrip('/')}.data-{graph.get(3, [0])[0]:05d}-of-{shards:05d}"
        begin, size = graph.get(4, [0])[0], graph[5][0]
        with open_stream(file) as stream:
            stream.seek(begin)
            keys = keys_in_graph(_text(stream.read(size)))
    except _DAMAGED:
        raise BadDataError(
            f"{place} cannot be read as the index of a TensorFlow checkpoint: it or a file of "
            "PREFIX.data-* is damaged or was not copied completely. Copy all of them again."
        ) from None
    return CheckpointIndex(shapes, keys)


def keys_in_graph(graph: bytes) -> dict[str, str]:
    """Return the tensor of each variable by its name; optimizers are left out.

    :param graph: a serialized ``TrackableObjectGraph``
        (tensorflow/core/protobuf/trackable_object_graph.proto).
    """
    nodes = [_by_number(node) for node in _by_number(graph).get(1, [])]
    seen, waiting = {0}, [0]
    while waiting:
        children = [_by_number(child) for child in nodes[waiting.pop()].get(1, [])]
        found = {
            child.get(1, [0])[0] for child in children if child.get(2, [b""])[0] not in _NOT_WEIGHTS
        }
        waiting += found - seen
        seen |= found
    attributes = [
        _by_number(attribute) for number in sorted(seen) for attribute in nodes[number].get(2, [])
    ]
    return {one[2][0].decode(): one[3][0].decode() for one in attributes if one.get(2, [b""])[0]}


def _table(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the entries of a table, in order of their keys."""
    footer = data[-_FOOTER_BYTES:]
    if int.from_bytes(footer[-8:], "little") != _MAGIC or len(footer) != _FOOTER_BYTES:
        raise ValueError
    _, place = _handle(footer, 0)
    index, _ = _handle(footer, place)
    for _, handle in _block(data, index):
        yield from _block(data, _handle(handle, 0)[0])


def _handle(data: bytes, place: int) -> tuple[tuple[int, int], int]:
    offset, place = _varint(data, place)
    size, place = _varint(data, place)
    return (offset, size), place


def _block(data: bytes, handle: tuple[int, int]) -> Iterator[tuple[bytes, bytes]]:
    offset, size = handle
    block = data[offset : offset + size]
    compression = data[offset + size : offset + size + _TRAILER_BYTES][0]
    # TensorFlow writes no compressed blocks.
    if compression or len(block) != size:
        raise ValueError
    end = size - 4 * (int.from_bytes(block[-4:], "little") + 1)
    place, key = 0, b""
    while place < end:
        shared, place = _varint(block, place)
        more, place = _varint(block, place)
        length, place = _varint(block, place)
        key = key[:shared] + block[place : place + more]
        place += more
        yield key, block[place : place + length]
        place += length


def _shape(entry: dict[int, list[Any]]) -> tuple[int, ...]:
    (shape,) = entry.get(2, [b""])
    return tuple(_by_number(one).get(1, [0])[0] for one in _by_number(shape).get(2, []))


def _text(data: bytes) -> bytes:
    """Return the only element of a tensor of strings: its length, a checksum, its bytes."""
    length, place = _varint(data, 0)
    place += _CHECKSUM_BYTES
    if len(data) != place + length:
        raise ValueError
    return data[place:]


def _by_number(message: bytes) -> dict[int, list[Any]]:
    """Return the values of a protocol buffer's fields by their numbers."""
    found: dict[int, list[Any]] = {}
    place = 0
    while place < len(message):
        tag, place = _varint(message, place)
        kind = tag & 7
        if kind == 0:
            value, place = _varint(message, place)
            found.setdefault(tag >> 3, []).append(value)
            continue
        size, place = _varint(message, place) if kind == 2 else ({1: 8, 5: 4}[kind], place)
        if place + size > len(message):
            raise ValueError
        found.setdefault(tag >> 3, []).append(message[place : place + size])
        place += size
    return found


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[place]
        place += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, place
        if shift > 63:
            raise ValueError
