"""Decides, on arrays alone, which of equal or similar documents is used, and on which side."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from corpus.duplicates.minhash import Sketches, comparable
from corpus.duplicates.signatures import Hashes, IndexedDocuments, Signatures
from corpus.duplicates.similarity import have_similar, similar_pairs
from corpus.text.content import is_held_out
from corpus.text.split_units import HELD_OUT, TRAIN, file_draw, held_out_files
from pipeline_config.data_schema import CorpusConfig
from pipeline_store.formats import ShardDecisions, SplitUnit

Flags = npt.NDArray[np.bool_]
Sides = npt.NDArray[np.uint8]
_BOTH = TRAIN | HELD_OUT


class Decided(NamedTuple):
    """The decisions on a partition's documents.

    ``shards``: in the order of the files. ``owned``: the documents that are used. ``kept_sides``:
    how many of them are not on the side drawn from the content of their unit.
    """

    shards: list[ShardDecisions]
    owned: IndexedDocuments
    kept_sides: int


def decide(
    files: Sequence[Signatures],
    earlier: Iterable[IndexedDocuments],
    others: Iterable[IndexedDocuments],
    corpus: CorpusConfig,
    split_by: SplitUnit = "document",
) -> Decided:
    """Decide on the documents of a partition.

    :param files: the partition's input files; of copies, the first one in the first file is used.
    :param earlier: the documents that earlier partitions own; copies of them are left out. Read one
        by one.
    :param others: the documents in the lineage's other manifests, this partition's own included; a
        document keeps the side that it has there. Read one by one.

    A document similar to one of either takes its side, unless it is left out as well.

    :param split_by: the unit that is on one side as a whole.
    """
    documents = _Documents(files, corpus, split_by)
    for index in earlier:
        documents.look_up_earlier(index)
    documents.resolve()
    for index in others:
        documents.look_up_side(index)
    return documents.decided()


class _Documents:
    """The distinct documents of a partition, in order of their hashes.

    Arrays of shape [U] refer to these. ``places`` are indexes among all [N] documents of the
    partition, copies included, in the order in which they would be owners.
    """

    def __init__(
        self, files: Sequence[Signatures], corpus: CorpusConfig, split_by: SplitUnit
    ) -> None:
        self._files = files
        self._corpus = corpus
        self._split_by = split_by
        self._near = corpus.duplicates == "near"
        hashes = np.concatenate([file.hashes for file in files])
        order = np.lexsort((hashes[:, 1], hashes[:, 0]))
        ordered = hashes[order]
        is_first = np.ones(len(order), bool)
        is_first[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
        # The sort is stable, so the first of equal ones is the owner.
        self._places = order[is_first]
        self._numbers = np.empty(len(order), np.int64)  # of the distinct documents, [N]
        self._numbers[order] = np.cumsum(is_first) - 1
        self._hashes = ordered[is_first]
        self._is_copy = np.ones(len(hashes), bool)
        self._is_copy[self._places] = False
        self._sketches = np.concatenate([_sketches(file) for file in files])[self._places]
        count = len(self._places)
        self._is_known = np.zeros(count, bool)
        self._is_near_copy = np.zeros(count, bool)
        self._sides = np.zeros(count, np.uint8)
        self._near_sides = np.zeros(count, np.uint8)
        self._earlier_sides = np.zeros(count, np.uint8)
        self._group = np.arange(count)

    def look_up_earlier(self, index: IndexedDocuments) -> None:
        """Mark the documents that an earlier partition owns, and those similar to its documents."""
        mine, theirs = equal_positions(self._hashes, index.hashes)
        self._is_known[mine] = True
        self._earlier_sides[mine] |= _sides(index)[theirs]
        if self._near:
            self._is_near_copy |= self._similar_to(index, ~self._is_near_copy) > 0
        else:
            self._near_sides |= self._similar_to(index, ~self._is_known)

    def resolve(self) -> None:
        """Find the groups of similar documents: the connected components of similar pairs.

        With ``near`` all but the owner of each are marked. If an earlier partition owns a similar
        document, the group has no owner here.
        """
        pairs = similar_pairs(self._sketches, self._corpus.near_duplicate_threshold)
        count = len(self._places)
        if len(pairs.first):
            # Imported here because it takes longer than everything else if nothing is similar.
            from scipy.sparse import coo_array
            from scipy.sparse.csgraph import connected_components

            edges = coo_array((np.ones(len(pairs.first), bool), pairs), shape=(count, count))
            _, self._group = connected_components(edges, directed=False)
        if not self._near:
            return
        owner = np.full(count, np.iinfo(np.int64).max)
        np.minimum.at(owner, self._group, self._places)
        is_taken = np.zeros(count, bool)
        is_taken[self._group[self._is_known | self._is_near_copy]] = True
        self._is_near_copy = (self._places != owner[self._group]) | is_taken[self._group]

    def look_up_side(self, index: IndexedDocuments) -> None:
        """Record the sides on which a manifest has these documents, or similar ones."""
        mine, theirs = equal_positions(self._hashes, index.hashes)
        self._sides[mine] |= _sides(index)[theirs]
        self._near_sides |= self._similar_to(index, ~self._is_near_copy & ~self._is_known)

    def _similar_to(self, index: IndexedDocuments, wanted: Flags) -> Sides:
        """Return on which sides the index has documents similar to the wanted ones, shape [U]."""
        found = np.zeros(len(wanted), np.uint8)
        if index.sketches is None:
            return found
        rows = np.flatnonzero(wanted)
        mine, theirs = comparable(self._sketches[rows], index.sketches)
        threshold = self._corpus.near_duplicate_threshold
        for side, is_there in ((HELD_OUT, index.held_out), (TRAIN, ~index.held_out)):
            found[rows[have_similar(mine, theirs[is_there], threshold)]] |= side
        return found

    def decided(self) -> Decided:
        """Return the decisions, by file."""
        own_sides = self._drawn(self._hashes[:, 1])
        drawn_sides, unit_sides = self._unit_sides()
        # A side that the document itself has elsewhere takes precedence over that of similar ones.
        held_sides = np.where(self._sides > 0, self._sides, self._similar_sides())
        sides = np.where(held_sides > 0, held_sides, unit_sides)
        if self._split_by != "document":
            # A document whose side differs from that of its unit can be on neither.
            is_torn = sides != unit_sides
            self._is_known |= is_torn & (self._sides > 0)
            self._is_near_copy |= is_torn
        is_near_copy = ~self._is_known & (self._is_near_copy | (sides == _BOTH))
        is_used = ~self._is_known & ~is_near_copy
        is_moved = is_used & (sides != own_sides)
        is_copy = self._is_copy.copy()
        is_copy[self._places[self._is_known]] = True
        flags = {
            "duplicates": is_copy,
            "near_duplicates": self._spread(is_near_copy),
            "validation": self._spread(is_moved & (sides == HELD_OUT)),
            "train": self._spread(is_moved & (sides == TRAIN)),
        }
        owned = IndexedDocuments(
            self._hashes[is_used], sides[is_used] == HELD_OUT, self._sketches[is_used]
        )
        kept_sides = int((is_used & (sides != drawn_sides)).sum())
        return Decided(_by_file(self._files, flags), owned, kept_sides)

    def _similar_sides(self) -> Sides:
        """Return the sides [U] that documents get from similar ones, 0 if from none.

        With ``near`` a document that is similar to both sides has both, and is left out. Otherwise
        it is trained on. If it were held out, it would measure text that was trained on; and the
        held-out text has leaked anyway: two texts that each share 0.8 with a third share at least
        0.6, because the Jaccard distance is a metric.

        A group with no document known elsewhere takes the draw of one of its documents. A group
        that is a larger part of the partition than is to be held out consists of texts from one
        template, and is trained on.
        """
        if self._near:
            return self._near_sides
        if self._split_by != "document":
            # No document can be on another side than its unit.
            return np.zeros(len(self._places), np.uint8)
        count = len(self._places)
        known = np.zeros(count, np.uint8)
        themselves = self._sides | self._earlier_sides
        np.bitwise_or.at(known, self._group, themselves | self._near_sides)
        sizes = np.bincount(self._group, minlength=count)
        # Documents are in order of their hashes, so the first of a group is the same in any run.
        _, first = np.unique(self._group, return_index=True)
        drawn = np.zeros(count, np.uint8)
        drawn[self._group[first]] = self._drawn(self._hashes[first, 1])
        drawn[sizes > max(1, self._corpus.validation_fraction * count)] = TRAIN
        sides = np.where(known > 0, known, drawn)
        sides[known == _BOTH] = TRAIN
        return np.where((sizes > 1) | (known > 0), sides, 0).astype(np.uint8)[self._group]

    def _drawn(self, draws: npt.NDArray[np.uint64]) -> Sides:
        held_out = is_held_out(draws, self._corpus.validation_fraction)
        return np.where(held_out, HELD_OUT, TRAIN).astype(np.uint8)

    def _unit_sides(self) -> tuple[Sides, Sides]:
        """Return the sides [U] of the documents' units: as drawn, and as decided."""
        if self._split_by == "file":
            return self._file_sides()
        draws = self._hashes[:, 1]
        if self._split_by == "group":
            draws = np.concatenate([_groups(file) for file in self._files])[self._places]
        sides = self._drawn(draws)
        return sides, sides

    def _file_sides(self) -> tuple[Sides, Sides]:
        """Return the sides of :meth:`_unit_sides` if a file is a unit.

        A file of whose documents the lineage knows at least half takes the side of most of those.
        """
        sizes = np.array([len(file.ordinals) for file in self._files], np.int64)
        draws = np.array(
            [file_draw(file.hashes.astype("<u8").tobytes()) for file in self._files], np.uint64
        )
        file_of = np.repeat(np.arange(len(sizes)), sizes)
        itself = self._sides | self._earlier_sides
        similar = 0 if self._near else self._near_sides
        known = np.where(itself > 0, itself, similar)[self._numbers]
        held_out = np.bincount(file_of[known == HELD_OUT], minlength=len(sizes))
        trained = np.bincount(file_of[known == TRAIN], minlength=len(sizes))
        is_known = (2 * (held_out + trained) >= sizes) & (sizes > 0)
        side = np.where(held_out > trained, HELD_OUT, TRAIN)
        known_sides = np.where(is_known, side, 0).astype(np.uint8)
        fraction = self._corpus.validation_fraction
        chosen = np.where(held_out_files(draws, sizes, fraction, known_sides), HELD_OUT, TRAIN)
        owner = file_of[self._places]
        return self._drawn(draws)[owner], chosen.astype(np.uint8)[owner]

    def _spread(self, flags: Flags) -> Flags:
        """Return flags [U] of the distinct documents as flags [N] of all."""
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


def _sides(index: IndexedDocuments) -> Sides:
    return np.where(index.held_out, HELD_OUT, TRAIN).astype(np.uint8)


def _groups(file: Signatures) -> npt.NDArray[np.uint64]:
    if file.groups is None:
        raise ValueError("groups are to be held out, but a file was signed without them")
    return file.groups


def _sketches(file: Signatures) -> Sketches:
    if file.sketches is None:
        raise ValueError("similar documents are to be found, but a file was signed without MinHash")
    return file.sketches


def equal_positions(
    hashes: Hashes, others: Hashes
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return where hashes and others are equal: row numbers in the one, row numbers in the other.

    :param hashes: sorted and distinct, shape [U, 2].
    :param others: sorted and distinct, shape [M, 2].
    """
    # Search the shorter in the longer: by the first number, then compare the second. Different
    # hashes with an equal first number are rare, but would be next to each other.
    if len(others) > len(hashes):
        theirs, mine = equal_positions(others, hashes)
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
