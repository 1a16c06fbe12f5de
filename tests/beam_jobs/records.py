"""What the records of a partition hold, read without TensorFlow."""

from __future__ import annotations

from pipeline_store.formats import PartitionManifest, Split
from tests.beam_jobs.workspace import Workspace

_ID_FIELD = b"\n\x0bdocument_id"


def document_ids(workspace: Workspace, manifest: PartitionManifest, *splits: Split) -> set[int]:
    """Return the ids of all documents that have a record; of both sides unless told."""
    found = set()
    for split in splits or tuple(Split):
        for record in workspace.records(manifest, split):
            found.add(_document_id(record))
    return found


def _document_id(record: bytes) -> int:
    """Return the feature's only value, a varint at its end: see docs of tf.train.Example."""
    after = record.index(_ID_FIELD) + len(_ID_FIELD)
    # feature, its list, its payload: each a tag and a length.
    value, shift, place = 0, 0, after + 6
    while True:
        byte = record[place]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift, place = shift + 7, place + 1
    return value - (1 << 64) if value >= 1 << 63 else value
