"""Arrays as files of the store: numpy's ``.npz``, verified by their digest when they are read."""

from __future__ import annotations

import hashlib
import io
import threading
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline_store import uris
from pipeline_store.formats import FileDigest, FormatError

_one_header_at_a_time = threading.Lock()
"""numpy reads an array's header by ``ast``, which in CPython 3.11 counts the depth of its recursion
once for all threads and raises SystemError when two of them get in each other's way."""


def to_npz(**arrays: npt.NDArray[Any] | None) -> bytes:
    """Return arrays as a numpy ``.npz`` file; those that are None are left out."""
    buffer = io.BytesIO()
    there = {name: array for name, array in arrays.items() if array is not None}
    np.savez(buffer, **there)  # type: ignore[arg-type]
    return buffer.getvalue()


def load_npz(uri: str, digest: FileDigest) -> dict[str, npt.NDArray[Any]]:
    """Read the arrays of a ``.npz`` file.

    :raises FormatError: the file is gone or not the one that the digest describes.
    """
    data = uris.read_or_none(uri)
    if data is None or hashlib.sha256(data).hexdigest() != digest.sha256:
        raise FormatError(
            f"{uri} is {'gone' if data is None else 'damaged'}: its SHA-256 should be "
            f"{digest.sha256}. Restore it, or delete the JSON file that names it and run again."
        )
    with _one_header_at_a_time, np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        return dict(arrays)
