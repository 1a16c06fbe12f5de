"""Stores the indexes of the documents that partitions own: named by manifests, never changed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from corpus.duplicates.signatures import IndexedDocuments
from corpus.text.lineage_rules import load_manifests
from pipeline_store import uris
from pipeline_store.formats import DuplicateIndex, FileDigest
from pipeline_store.layout import LineageLayout


@dataclass(frozen=True)
class NamedIndex:
    """The index of one manifest; None if the manifest was made without a search for copies."""

    partition: str
    manifest_id: str
    index: DuplicateIndex | None

    @property
    def name(self) -> str:
        """The name of the index in a snapshot."""
        return f"{self.partition}/{self.manifest_id}"


def list_indexes(lineage: LineageLayout) -> list[NamedIndex]:
    """Return the indexes of all manifests of a lineage, in order of partition and manifest."""
    named = [
        NamedIndex(
            manifest.partition,
            uri.rpartition("/")[2].removesuffix(".json"),
            manifest.duplicate_index,
        )
        for uri, manifest in load_manifests(lineage).items()
    ]
    return sorted(named, key=lambda item: (item.partition, item.manifest_id))


def load_documents(
    lineage: LineageLayout, indexes: Sequence[NamedIndex]
) -> Iterator[IndexedDocuments]:
    """Yield the documents of indexes; indexes with equal content only once.

    :raises FormatError: a file is missing or damaged.
    """
    seen: set[str] = set()
    for named in indexes:
        if named.index is None or named.index.data.sha256 in seen:
            continue
        digest = named.index.data
        seen.add(digest.sha256)
        yield IndexedDocuments.load(
            uris.join(lineage.manifests(named.partition), digest.path), digest
        )


def store_documents(
    lineage: LineageLayout,
    partition: str,
    documents: IndexedDocuments,
    snapshot: Sequence[NamedIndex],
) -> DuplicateIndex:
    """Store the index of the documents that a partition owns, for its manifest to name.

    :param snapshot: the indexes of earlier partitions that were searched.
    """
    data = documents.to_bytes()
    sha256 = hashlib.sha256(data).hexdigest()
    uri = lineage.duplicate_index(partition, sha256)
    uris.create_if_absent(uri, data)
    looked_at = [named for named in snapshot if named.index is not None]
    lines = [f"{named.name} {named.index.data.sha256}\n" for named in looked_at if named.index]
    return DuplicateIndex(
        data=FileDigest(path=uri.rpartition("/")[2], bytes=len(data), sha256=sha256),
        snapshot_sha256=hashlib.sha256("".join(lines).encode()).hexdigest(),
        snapshot=[named.name for named in looked_at],
    )
