"""Detects new and changed partitions of a corpus, and records for which of them a run was started.

The records are below ``arrivals/`` in the store, separate for each input pattern: with another
pattern the same files are another corpus, whose first poll announces nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from corpus.errors import UserError
from corpus.partitions import FoundFile, find_files, overlooked, partition_patterns
from corpus.text.inputs import incomplete_sets
from pipeline_store import uris
from pipeline_store.formats import FirstLook, PartitionArrival, arrival_run_id
from pipeline_store.identity import corpus_key
from pipeline_store.layout import READY_MARKERS, StoreLayout
from pipeline_store.request_paths import PLACEHOLDER


@dataclass(frozen=True)
class Listing:
    """The files of a partition at one moment.

    Marker and hidden files are not in it, so adding one later changes nothing.
    """

    partition: str
    sizes: Mapping[str, int]
    """Bytes by URI, as the store lists it."""
    missing: tuple[str, ...]
    """Patterns of the corpus that none of the files matches."""
    folders: frozenset[str | None]
    """Folders that are the partition's alone; None stands for one that it shares with others."""
    sha256: str
    """Hash of names and sizes; names below the store's root are relative to it."""

    @property
    def run_id(self) -> str:
        """Return the id of the run that these files start."""
        return arrival_run_id(self.partition, self.sha256)


@dataclass(frozen=True)
class Look:
    """The result of one poll of the corpus."""

    arrived: list[str]
    """Settled partitions for whose present files no run has been started, sorted."""
    waiting: dict[str, str]
    """Reasons why the other new or changed partitions have to wait, by partition."""
    partitions: int
    first: bool
    """Whether this was the first poll, which announces nothing."""
    overlooked: tuple[str, ...] = ()
    """Lines on entries that look like part of a partition but are not, with the reason."""

    @property
    def summary(self) -> str:
        """Return the result as one line of text."""
        if self.first:
            return (
                f"First look: {self.partitions} partition(s) are there already and are not "
                "announced; run those that you want by a backfill or by hand."
            )
        return (
            f"{len(self.arrived)} of {self.partitions} partition(s) arrived, "
            f"{len(self.waiting)} not settled yet."
        )


class CorpusArrivals:
    """The partitions of one corpus and their stored records.

    :param pattern: ``corpus.input_pattern``.
    :raises UserError: the pattern cannot tell partitions apart.
    """

    def __init__(self, store: StoreLayout, pattern: str) -> None:
        if not partition_patterns(pattern, store):
            raise UserError(
                f"corpus.input_pattern: {pattern!r} has no {PLACEHOLDER}, so that no partition can "
                f"arrive; put {PLACEHOLDER} where the partition's id is in the path."
            )
        self._store = store
        self._pattern = pattern
        self._key = corpus_key(pattern)

    def look(self, now: datetime, settle: timedelta) -> Look:
        """Poll the whole corpus, and record its state.

        A partition is settled when each of its folders has a marker file, or when an earlier poll,
        at least ``settle`` ago, saw the same files and no numbered set of them is incomplete.

        :param settle: a positive duration.
        :raises VersionConflictError: another process wrote another record at this moment.
        """
        found = self._listings()
        overlooked_now = tuple(overlooked(self._pattern, self._store))
        known = FirstLook.load_or_none(self._first_look_uri)
        if known is None:
            listings = {name: listing.sha256 for name, listing in found.items()}
            first = FirstLook(pattern=self._pattern, time=now, listings=listings)
            first.create(self._first_look_uri)
            return Look([], {}, len(found), first=True, overlooked=overlooked_now)
        arrived, waiting = [], {}
        for partition, listing in sorted(found.items()):
            record = self._record(partition)
            if record is None and known.listings.get(partition) == listing.sha256:
                continue
            if record is not None and record.run_id == listing.run_id:
                continue
            settled = now - self.see(listing, now).since >= settle
            if reason := self._why_wait(listing, settled=settled):
                waiting[partition] = reason
            else:
                arrived.append(partition)
        return Look(arrived, waiting, len(found), first=False, overlooked=overlooked_now)

    def listing(self, partition: str) -> Listing:
        """Return the files of one partition.

        :raises UserError: it has none, or none for one of the patterns.
        """
        found = self._listings().get(partition)
        missing = partition_patterns(self._pattern, self._store) if found is None else found.missing
        if found is None or missing:
            patterns = ", ".join(part.replace(PLACEHOLDER, partition) for part in missing)
            raise UserError(
                f"corpus.input_pattern: no file of partition {partition} matches {patterns}; "
                "announce a partition when all of its files are in place."
            )
        return found

    def see(self, listing: Listing, now: datetime) -> PartitionArrival:
        """Record the present files of a partition and return its record.

        :raises VersionConflictError: another process wrote another record at this moment.
        """
        found = self._versioned(listing.partition)
        record, version = found if found is not None else (None, None)
        if record is not None and record.listing_sha256 == listing.sha256:
            return record
        seen = PartitionArrival(
            sequence=record.sequence + 1 if record else 1,
            partition=listing.partition,
            listing_sha256=listing.sha256,
            files=len(listing.sizes),
            bytes=sum(listing.sizes.values()),
            since=now,
            run_id=record.run_id if record else None,
        )
        uris.compare_and_set(self._uri(listing.partition), seen.to_bytes(), version)
        return seen

    def started(self, partition: str, run_id: str) -> None:
        """Record that a run was started for a partition.

        :raises FileNotFoundError: the partition has no record.
        :raises VersionConflictError: another process wrote another record at this moment.
        """
        found = self._versioned(partition)
        if found is None:
            raise FileNotFoundError(self._uri(partition))
        record, version = found
        if record.run_id != run_id:
            change = {"sequence": record.sequence + 1, "run_id": run_id}
            data = record.model_copy(update=change).to_bytes()
            uris.compare_and_set(self._uri(partition), data, version)

    @property
    def _first_look_uri(self) -> str:
        return self._store.first_look(self._key)

    def _uri(self, partition: str) -> str:
        return self._store.arrival(self._key, partition)

    def _versioned(self, partition: str) -> tuple[PartitionArrival, str] | None:
        uri = self._uri(partition)
        found = uris.read_versioned(uri)
        return None if found is None else (PartitionArrival.parse(found[0], uri), found[1])

    def _record(self, partition: str) -> PartitionArrival | None:
        found = self._versioned(partition)
        return None if found is None else found[0]

    def _listings(self) -> dict[str, Listing]:
        wanted = partition_patterns(self._pattern, self._store)
        found: dict[str, list[FoundFile]] = {}
        for file in find_files(self._pattern, self._store):
            found.setdefault(file.partition, []).append(file)
        return {
            partition: Listing(
                partition=partition,
                sizes={file.uri: file.bytes for file in files},
                missing=tuple(sorted(set(wanted) - {file.pattern for file in files})),
                folders=frozenset(map(_own_folder, files)),
                sha256=self._sha256(files),
            )
            for partition, files in found.items()
        }

    def _sha256(self, files: Iterable[FoundFile]) -> str:
        # A store that is copied to another place must not look like a new corpus.
        root = uris.for_library(self._store.root).rstrip("/") + "/"
        names = {(uris.for_library(file.uri).removeprefix(root), file.bytes) for file in files}
        return hashlib.sha256(json.dumps(sorted(names)).encode()).hexdigest()

    def _why_wait(self, listing: Listing, *, settled: bool) -> str | None:
        if listing.missing:
            return f"no file matches {', '.join(listing.missing)}"
        if _is_marked(listing):
            return None
        if holes := next(incomplete_sets(sorted(listing.sizes)), None):
            return holes
        return None if settled else "its files are still changing, or were seen only once"


def _is_marked(listing: Listing) -> bool:
    return None not in listing.folders and all(
        any(uris.exists(uris.join(folder, marker)) for marker in READY_MARKERS)
        for folder in filter(None, listing.folders)
    )


def _own_folder(file: FoundFile) -> str | None:
    """Return the folder that only this partition uses, or None if its files' folder is shared."""
    folders = uris.for_library(file.pattern).split("/")[:-1]
    depths = [depth for depth, name in enumerate(folders, start=1) if PLACEHOLDER in name]
    if not depths:
        return None
    return "/".join(uris.for_library(file.uri).split("/")[: depths[-1]])
