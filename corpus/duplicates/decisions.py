"""Which of equal and of similar documents is used, and on which side: decided on arrays alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from corpus.duplicates.signatures import Hashes, IndexedDocuments, Signatures
from corpus.duplicates.similarity import Pairs, similar_pairs, similar_pairs_between
from corpus.text.content import is_held_out
from pipeline_config.schema import CorpusConfig
from pipeline_store.formats import ShardDecisions

Flags = npt.NDArray[np.bool_]
# Sides as bits, so that sides of several manifests can be added up.
_TRAIN, _HELD_OUT = 1, 2
_BOTH = _TRAIN | _HELD_OUT


class Decided(NamedTuple):
    """What becomes of a partition's documents.

    ``shards``: in the order of the files. ``owned``: the documents that are used. ``kept_sides``:
    how many of them are not on the side that their own content says.
    """

    shards: list[ShardDecisions]
    owned: IndexedDocuments
    kept_sides: int


def decide(
    files: Sequence[Signatures],
    earlier: Iterable[IndexedDocuments],
    others: Iterable[IndexedDocuments],
    corpus: CorpusConfig,
) -> Decided:
    """Decide on the documents of a partition.

    :param files: the partition's input files; of copies the one in the first file, and there the
        first, is used.
    :param earlier: what earlier partitions own: copies of that are left out. Read one by one.
    :param others: what the lineage's other manifests hold, also this partition's own ones: a
        document keeps the side it has there, and one similar to it takes that side. Read one by
        one.
    """
    documents = _Documents(files, corpus)
    for index in earlier:
        documents.look_up_earlier(index)
    documents.resolve()
    for index in others:
        documents.look_up_side(index)
    return documents.decided(files)


class _Documents:
    """The different documents of a partition, in order of their hashes.

    Arrays of shape [U] speak of these. ``places`` are numbers among all [N] documents of the
    partition, copies included, in the order in which they would be owners.
    """

    def __init__(self, files: Sequence[Signatures], corpus: CorpusConfig) -> None:
        self._corpus = corpus
        self._near = corpus.duplicates == "near"
        hashes = np.concatenate([file.hashes for file in files])
        order = np.lexsort((hashes[:, 1], hashes[:, 0]))
        ordered = hashes[order]
        is_first = np.ones(len(order), bool)
        is_first[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
        # The sort is stable, so the first of equal ones is the owner.
        self._places = order[is_first]
        self._hashes = ordered[is_first]
        self._is_copy = np.ones(len(hashes), bool)
        self._is_copy[self._places] = False
        self._sketches: npt.NDArray[np.uint32] | None = None
        if self._near:
            sketches = [_sketches(file.sketches) for file in files]
            self._sketches = np.concatenate(sketches)[self._places]
        count = len(self._places)
        self._is_known = np.zeros(count, bool)
        self._is_near_copy = np.zeros(count, bool)
        self._sides = np.zeros(count, np.uint8)
        self._near_sides = np.zeros(count, np.uint8)

    def look_up_earlier(self, index: IndexedDocuments) -> None:
        """Mark what an earlier partition owns, and what is similar to that."""
        self._is_known[_positions(self._hashes, index.hashes)[0]] = True
        pairs = self._similar_to(index, ~self._is_near_copy)
        self._is_near_copy[pairs.first] = True

    def resolve(self) -> None:
        """Mark all but the owner of each group of similar documents.

        A group is what pairs of similar documents connect. If an earlier partition owns a similar
        document, the group has no owner here.
        """
        if self._sketches is None or not len(self._places):
            return
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        pairs = similar_pairs(self._sketches, self._corpus.near_duplicate_threshold)
        count = len(self._places)
        edges = coo_array((np.ones(len(pairs.first), bool), pairs), shape=(count, count))
        groups, group = connected_components(edges, directed=False)
        owner = np.full(groups, np.iinfo(np.int64).max)
        np.minimum.at(owner, group, self._places)
        is_taken = np.zeros(groups, bool)
        is_taken[group[self._is_known | self._is_near_copy]] = True
        self._is_near_copy = (self._places != owner[group]) | is_taken[group]

    def look_up_side(self, index: IndexedDocuments) -> None:
        """Take note of the sides on which a manifest has these documents, or similar ones."""
        sides = np.where(index.held_out, _HELD_OUT, _TRAIN).astype(np.uint8)
        mine, theirs = _positions(self._hashes, index.hashes)
        self._sides[mine] |= sides[theirs]
        pairs = self._similar_to(index, ~self._is_near_copy & ~self._is_known)
        np.bitwise_or.at(self._near_sides, pairs.first, sides[pairs.second])

    def _similar_to(self, index: IndexedDocuments, wanted: Flags) -> Pairs:
        """Return pairs of one of the wanted documents and a similar one of the index."""
        rows = np.flatnonzero(wanted)
        if self._sketches is None or index.sketches is None:
            return Pairs(np.empty(0, np.int64), np.empty(0, np.int64))
        threshold = self._corpus.near_duplicate_threshold
        pairs = similar_pairs_between(self._sketches[rows], index.sketches, threshold)
        return Pairs(rows[pairs.first], pairs.second)

    def decided(self, files: Sequence[Signatures]) -> Decided:
        """Return the decisions, by file."""
        own = is_held_out(self._hashes[:, 1], self._corpus.validation_fraction)
        own_sides = np.where(own, _HELD_OUT, _TRAIN).astype(np.uint8)
        # A side that the document itself has somewhere counts more than that of similar ones.
        held_sides = np.where(self._sides > 0, self._sides, self._near_sides)
        sides = np.where(held_sides > 0, held_sides, own_sides)
        is_near_copy = ~self._is_known & (self._is_near_copy | (sides == _BOTH))
        is_used = ~self._is_known & ~is_near_copy
        is_moved = is_used & (sides != own_sides)
        is_copy = self._is_copy.copy()
        is_copy[self._places[self._is_known]] = True
        flags = {
            "duplicates": is_copy,
            "near_duplicates": self._spread(is_near_copy),
            "validation": self._spread(is_moved & (sides == _HELD_OUT)),
            "train": self._spread(is_moved & (sides == _TRAIN)),
        }
        owned = IndexedDocuments(
            self._hashes[is_used],
            sides[is_used] == _HELD_OUT,
            None if self._sketches is None else self._sketches[is_used],
        )
        return Decided(_by_file(files, flags), owned, int(is_moved.sum()))

    def _spread(self, flags: Flags) -> Flags:
        """Return flags [U] of the different documents as flags [N] of all."""
        spread = np.zeros(len(self._is_copy), bool)
        spread[self._places[flags]] = True
        return spread


def _by_file(files: Sequence[Signatures], flags: dict[str, Flags]) -> list[ShardDecisions]:
    """Return which documents of each file have which flag."""
    borders = np.cumsum([len(file.ordinals) for file in files])[:-1]
    by_name = {name: np.split(flag, borders) for name, flag in flags.items()}
    return [
        ShardDecisions(
            **{name: file.ordinals[parts[number]].tolist() for name, parts in by_name.items()}
        )
        for number, file in enumerate(files)
    ]


def _sketches(sketches: npt.NDArray[np.uint32] | None) -> npt.NDArray[np.uint32]:
    if sketches is None:
        raise ValueError("similar documents are to be found, but a file was signed without MinHash")
    return sketches


def _positions(
    hashes: Hashes, others: Hashes
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return where hashes and others are equal: row numbers in the one, row numbers in the other.

    :param hashes: in order and different, shape [U, 2].
    :param others: in order and different, shape [M, 2].
    """
    # Search the shorter in the longer: by the first number, then compare the second. Different
    # hashes with an equal first number are rare, but would be next to each other.
    if len(others) > len(hashes):
        theirs, mine = _positions(others, hashes)
        return mine, theirs
    begins = np.searchsorted(hashes[:, 0], others[:, 0], "left")
    counts = np.searchsorted(hashes[:, 0], others[:, 0], "right") - begins
    found: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]] = []
    for step in range(int(counts.max(initial=0))):
        theirs = np.flatnonzero(counts > step)
        mine = begins[theirs] + step
        equal = hashes[mine, 1] == others[theirs, 1]
        found.append((mine[equal], theirs[equal]))
    if not found:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    mines, others_found = zip(*found, strict=True)
    return np.concatenate(mines), np.concatenate(others_found)
