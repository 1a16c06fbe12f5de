"""Stores arrays as numpy's ``.npz`` files, which are verified by their digest when they are read.

The module also defines one such file of each shard: the groups of its held-out documents, by which
models are compared."""

from __future__ import annotations

import hashlib
import io
import threading
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from pipeline_store import uris
from pipeline_store.formats import FileDigest, FormatError

_one_header_at_a_time = threading.Lock()
"""numpy parses an array's header with ``ast``, whose recursion counter all threads share in CPython
3.11, so that it raises SystemError when two threads parse at the same time."""


def to_npz(**arrays: npt.NDArray[Any] | None) -> bytes:
    """Return arrays as a numpy ``.npz`` file; those that are None are left out."""
    buffer = io.BytesIO()
    there = {name: array for name, array in arrays.items() if array is not None}
    np.savez(buffer, **there)  # type: ignore[arg-type]
    return buffer.getvalue()


def load_npz(uri: str, digest: FileDigest) -> dict[str, npt.NDArray[Any]]:
    """Read the arrays of a ``.npz`` file.

    :raises FormatError: the file is missing or not the one that the digest describes.
    """
    data = uris.read_or_none(uri)
    if data is None or hashlib.sha256(data).hexdigest() != digest.sha256:
        raise FormatError(
            f"{uri} is {'gone' if data is None else 'damaged'}: its SHA-256 should be "
            f"{digest.sha256}. Restore it, or delete the JSON file that names it and run again."
        )
    with _one_header_at_a_time, np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        return dict(arrays)


FILE_NAME = "held_out_groups.npz"


class HeldOutGroups(NamedTuple):
    """Held-out documents that have a group; each other document is a group of its own.

    ``documents``: :func:`corpus.mlm_records.document_key`, shape [G]. ``draws``: the draws of their
    groups, :func:`corpus.text.split_units.group_draw`, shape [G].
    """

    documents: npt.NDArray[np.uint64]
    draws: npt.NDArray[np.uint64]

    @classmethod
    def of(cls, draws: dict[int, int]) -> Self:
        """Return the groups of documents from the draws by document key."""
        return cls(np.array(list(draws), np.uint64), np.array(list(draws.values()), np.uint64))

    def to_bytes(self) -> bytes:
        """Return the content of the file; equal arrays give equal bytes."""
        return to_npz(documents=self.documents, draws=self.draws)

    @classmethod
    def load(cls, uri: str, digest: FileDigest) -> Self:
        """Read from the store.

        :raises FormatError: the file is not the one that the digest describes.
        """
        arrays = load_npz(uri, digest)
        return cls(arrays["documents"], arrays["draws"])
