"""Which group each held-out document of a shard is in: models are compared group by group."""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from corpus.arrays import load_npz, to_npz
from pipeline_store.formats import FileDigest

FILE_NAME = "held_out_groups.npz"


class HeldOutGroups(NamedTuple):
    """Held-out documents that have a group; others are each for themselves.

    ``documents``: :func:`corpus.mlm_records.document_key`, shape [G]. ``draws``: those of their
    groups, :func:`corpus.text.split_units.group_draw`, shape [G].
    """

    documents: npt.NDArray[np.uint64]
    draws: npt.NDArray[np.uint64]

    @classmethod
    def of(cls, draws: dict[int, int]) -> Self:
        """Return them by the keys of documents."""
        return cls(np.array(list(draws), np.uint64), np.array(list(draws.values()), np.uint64))

    def to_bytes(self) -> bytes:
        """Return the content of the file; equal arrays, equal bytes."""
        return to_npz(documents=self.documents, draws=self.draws)

    @classmethod
    def load(cls, uri: str, digest: FileDigest) -> Self:
        """Read from the store.

        :raises FormatError: the file is not the one that the digest describes.
        """
        arrays = load_npz(uri, digest)
        return cls(arrays["documents"], arrays["draws"])
