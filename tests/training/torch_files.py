"""Files as ``torch.save`` writes them, put together by hand: no PyTorch, no pickling of classes."""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from tests.training.pretrained import Weights

KINDS = {
    "float32": "FloatStorage",
    "float16": "HalfStorage",
    "bfloat16": "BFloat16Storage",
    "int64": "LongStorage",
}


def name(module: str, attribute: str) -> bytes:
    """Return the instruction that asks for a global."""
    return f"c{module}\n{attribute}\n".encode()


def text(value: str) -> bytes:
    data = value.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def number(value: int) -> bytes:
    return b"J" + struct.pack("<i", value)


def numbers(values: tuple[int, ...]) -> bytes:
    return b"(" + b"".join(map(number, values)) + b"t"


DICT = name("collections", "OrderedDict") + b")R"


def tensor(
    kind: str,
    key: str,
    size: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    *,
    offset: int = 0,
) -> bytes:
    """Return the instructions that make a tensor of a storage."""
    storage = b"(" + text("storage") + name("torch", kind) + text(key) + text("cpu")
    storage += number(size) + b"tQ"
    view = number(offset) + numbers(shape) + numbers(strides)
    return (
        name("torch._utils", "_rebuild_tensor_v2") + b"(" + storage + view + b"\x89" + DICT + b"tR"
    )


def parameter(made: bytes) -> bytes:
    return name("torch._utils", "_rebuild_parameter") + b"(" + made + b"\x88" + DICT + b"tR"


def state(tensors: dict[str, bytes]) -> bytes:
    """Return the pickle of a state dictionary, with the versions that PyTorch adds to it."""
    items = b"".join(text(key) + value for key, value in tensors.items())
    versions = b"}(" + text("_metadata") + DICT + b"ub"
    return b"\x80\x02" + DICT + b"(" + items + b"u" + versions + b"."


def write_archive(
    path: Path, pickle: bytes, storages: dict[str, bytes], *, compression: int = zipfile.ZIP_STORED
) -> None:
    """Write the zip archive around a pickle."""
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("archive/data.pkl", pickle)
        archive.writestr("archive/byteorder", b"little")
        for key, data in storages.items():
            archive.writestr(f"archive/data/{key}", data)
        archive.writestr("archive/version", b"3\n")


def write_torch(path: Path, weights: Weights) -> None:
    """Write tensors as PyTorch does; every second one lies transposed in its storage."""
    made: dict[str, bytes] = {}
    storages: dict[str, bytes] = {}
    for position, (key, value) in enumerate(weights.items()):
        stored: Any = value.T if position % 2 else value
        storages[str(position)] = np.ascontiguousarray(stored).tobytes()
        strides = tuple(int(np.prod(value.shape[axis + 1 :])) for axis in range(value.ndim))
        if position % 2:
            strides = tuple(int(np.prod(value.shape[:axis])) for axis in range(value.ndim))
        kind = KINDS[value.dtype.name]
        one = tensor(kind, str(position), value.size, value.shape, strides)
        made[key] = parameter(one) if position % 3 == 0 else one
    write_archive(path, state(made), storages)
