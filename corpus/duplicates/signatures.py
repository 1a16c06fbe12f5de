"""Signatures that identify copies of documents, as arrays: of an input file or of a partition."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from corpus.arrays import load_npz, to_npz
from corpus.duplicates.minhash import Sketches
from corpus.text.content import Content
from corpus.text.split_units import HASH_BYTES, group_draw
from pipeline_store.formats import FileDigest

Hashes = npt.NDArray[np.uint64]
_CHARACTERS_AT_ONCE = 1 << 20


class Signatures(NamedTuple):
    """The usable documents of an input file, in order, or those that a partition owns.

    ``ordinals``: numbers among all documents read, shape [N]. ``hashes``: the first 16 bytes of the
    content's SHA-256 as two little-endian numbers, shape [N, 2]. ``sketches``: MinHash, whole with
    ``corpus.duplicates=near`` and else short; None if similarity is unknown, as for files that were
    signed before there were short ones. ``groups``: the draw of each document's group, or its own
    if it has none, shape [N]; None without ``corpus.group_field``.
    """

    ordinals: npt.NDArray[np.int64]
    hashes: Hashes
    sketches: Sketches | None
    groups: npt.NDArray[np.uint64] | None = None

    def to_bytes(self) -> bytes:
        """Return the content of the file; equal arrays give equal bytes."""
        return to_npz(
            ordinals=self.ordinals,
            hashes=self.hashes,
            sketches=self.sketches,
            groups=self.groups,
        )

    @classmethod
    def load(cls, uri: str, digest: FileDigest) -> Self:
        """Read from the store.

        :raises FormatError: the file is not the one that the digest describes.
        """
        arrays = load_npz(uri, digest)
        sketches, groups = arrays.get("sketches"), arrays.get("groups")
        return cls(arrays["ordinals"], arrays["hashes"], sketches, groups)


class IndexedDocuments(NamedTuple):
    """The documents that a partition owns, in which later runs search for copies.

    ``hashes`` and ``sketches`` as in :class:`Signatures`, in order of the hashes; ``held_out``:
    whether they are on the validation side, shape [N].
    """

    hashes: Hashes
    held_out: npt.NDArray[np.bool_]
    sketches: Sketches | None

    def to_bytes(self) -> bytes:
        """Return the content of the file; equal arrays give equal bytes."""
        return to_npz(hashes=self.hashes, held_out=self.held_out, sketches=self.sketches)

    @classmethod
    def load(cls, uri: str, digest: FileDigest) -> Self:
        """Read from the store.

        :raises FormatError: the file is not the one that the digest describes.
        """
        arrays = load_npz(uri, digest)
        return cls(arrays["hashes"], arrays["held_out"], arrays.get("sketches"))


def sign(
    contents: Iterable[Content],
    *,
    sketch: Callable[[Sequence[str]], Sketches],
    with_groups: bool = False,
) -> Signatures:
    """Return the signatures of documents.

    :param sketch: makes whole sketches of texts, or short ones.
    :param with_groups: whether to include the draws of their groups.
    """
    ordinals: list[int] = []
    hashes = bytearray()
    groups: dict[int, int] = {}
    sketches = [sketch([])]
    texts: list[str] = []
    characters = 0
    for content in contents:
        ordinals.append(content.ordinal)
        hashes += content.sha256[:HASH_BYTES]
        if content.group is not None:
            groups[len(ordinals) - 1] = group_draw(content.group)
        texts.append(" ".join(content.sentences))
        characters += len(texts[-1])
        # Many at once, as a call takes longer than the sketch of a paragraph.
        if characters >= _CHARACTERS_AT_ONCE:
            sketches.append(sketch(texts))
            texts, characters = [], 0
    pairs = np.frombuffer(bytes(hashes), "<u8").reshape(-1, 2).astype(np.uint64)
    draws = pairs[:, 1].copy()
    draws[list(groups)] = np.array(list(groups.values()), np.uint64)
    return Signatures(
        np.array(ordinals, np.int64),
        pairs,
        np.concatenate([*sketches, sketch(texts)]),
        draws if with_groups else None,
    )
