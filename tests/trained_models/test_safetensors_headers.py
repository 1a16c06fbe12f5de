"""The header of a file of safetensors tells its tensors, and whether all of it is there."""

from __future__ import annotations

import io
import json
import struct
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from trained_models.errors import BadDataError
from trained_models.importing.shapes import tensor_shapes


@pytest.fixture
def content(tmp_path: Path) -> bytes:
    """Return a file that the library has written."""
    tensors = {"cls.predictions.bias": np.ones(3, np.float32), "b": np.ones((2, 2), np.float16)}
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    return (tmp_path / "model.safetensors").read_bytes()


def shapes(content: bytes) -> dict[str, tuple[int, ...]]:
    return tensor_shapes(io.BytesIO(content), len(content), "x/model.safetensors")


def test_names_and_shapes_are_those_that_the_library_wrote(content: bytes) -> None:
    assert shapes(content) == {"cls.predictions.bias": (3,), "b": (2, 2)}


@pytest.mark.parametrize("cut", [1, 20])
def test_a_file_that_is_too_short_or_too_long_is_refused(content: bytes, cut: int) -> None:
    for wrong in (content[:-cut], content + bytes(cut)):
        size = f"{len(wrong)} bytes, and by its header {len(content)}"
        with pytest.raises(BadDataError, match=f"^x/model.safetensors has {size}"):
            shapes(wrong)


def with_header(header: object) -> bytes:
    data = json.dumps(header).encode()
    return struct.pack("<Q", len(data)) + data


@pytest.mark.parametrize(
    "wrong",
    [
        b"",
        b"version https://git-lfs.github.com/spec/v1\n",
        struct.pack("<Q", 2**62) + b"{}",
        struct.pack("<Q", 2) + b"{a",
        with_header([]),
        with_header({"a": {}}),
        with_header({"a": {"shape": [1], "data_offsets": [0]}}),
        with_header({"a": {"shape": [1], "data_offsets": [0, None]}}),
        with_header({"a": {"shape": ["x"], "data_offsets": [0, 0]}}),
        with_header({"a": {"data_offsets": [0, 0]}}),
    ],
)
def test_what_is_no_header_is_refused(wrong: bytes) -> None:
    with pytest.raises(BadDataError, match=r"x/model\.safetensors cannot be read as safetensors"):
        shapes(wrong)
