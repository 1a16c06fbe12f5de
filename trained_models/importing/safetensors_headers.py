"""Tensors of a file of safetensors, from its header: names, shapes, none of its numbers.

https://huggingface.co/docs/safetensors#format
"""

from __future__ import annotations

import json
from typing import BinaryIO

from pipeline_config.unquoted import UNPARSABLE
from trained_models.errors import BadDataError

LARGEST_HEADER = 100_000_000
"""Bytes, as in the library."""
_LENGTH_BYTES = 8
_METADATA = "__metadata__"


def tensor_shapes(stream: BinaryIO, size: int, place: str) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a file's tensors by their names.

    :param stream: at its beginning.
    :param size: of the file, in bytes.
    :param place: what messages call it.
    :raises BadDataError: it has no such header, or not as many bytes as that says.
    """
    try:
        length = int.from_bytes(stream.read(_LENGTH_BYTES), "little")
        if length > min(LARGEST_HEADER, size):
            raise ValueError
        header = json.loads(stream.read(length))
        tensors = {name: tensor for name, tensor in header.items() if name != _METADATA}
        shapes = {name: tuple(map(int, tensor["shape"])) for name, tensor in tensors.items()}
        end = max((int(tensor["data_offsets"][1]) for tensor in tensors.values()), default=0)
    except UNPARSABLE:
        raise BadDataError(
            f"{place} cannot be read as safetensors: its header is damaged, or it is another file, "
            "such as a Git LFS pointer. Get it again."
        ) from None
    if (whole := _LENGTH_BYTES + length + end) != size:
        raise BadDataError(
            f"{place} has {size:,} bytes, and by its header {whole:,}: it is damaged or was not "
            "copied completely. Get it again."
        )
    return shapes
