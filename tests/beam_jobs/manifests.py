"""Manifests as the data job writes them, without running it."""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import Any

from pipeline_config import load_preset
from pipeline_store import identity
from pipeline_store.formats import (
    DataStatistics,
    DuplicateIndex,
    FileDigest,
    PartitionManifest,
    RecordFile,
    ShardManifest,
    Split,
)
from pipeline_store.layout import StoreLayout

PARTITION = "2026-01-31"
CONFIG = load_preset("smoke")


def digest(name: str) -> FileDigest:
    return FileDigest(path=name, bytes=1, sha256=hashlib.sha256(name.encode()).hexdigest())


def record_file(split: Split, length: int, records: int, **changes: Any) -> RecordFile:
    """Return a file whose rows are 90 % full and 15 % masked."""
    tokens = records * length * 9 // 10
    fields: dict[str, Any] = {
        "split": split,
        "max_seq_length": length,
        "max_predictions_per_seq": 20,
        "masked": True,
        "data": digest(f"{split}-{length}.tfrecord"),
        "index": digest(f"{split}-{length}.index"),
        "records": records,
        "documents": records // 2,
        "tokens": tokens,
        "masked_tokens": tokens * 15 // 100,
    }
    return RecordFile(**fields | changes)


def statistics(documents: int, **changes: Any) -> DataStatistics:
    fields: dict[str, Any] = {
        "document_tokens": {5: documents // 2, 7: documents - documents // 2},
        "row_tokens": {9: documents // 4, 15: 2 * documents},
        "text_tokens": 100 * documents,
        "unknown_tokens": documents,
        "new_words": {"tensorflow": 3 * documents, "airflow": 2 * documents},
    }
    return DataStatistics(**fields | changes)


def shard(number: int, **changes: Any) -> ShardManifest:
    """Return a shard of 100 documents, ten of which are held out."""
    fields: dict[str, Any] = {
        "shard_key": hashlib.sha256(f"shard {number}".encode()).hexdigest()[:32],
        "input_uri": f"/data/corpus/{PARTITION}/part-{number:05d}.txt",
        "input_sha256": hashlib.sha256(str(number).encode()).hexdigest(),
        "input_bytes": 50_000,
        "vocabulary_sha256": "0" * 64,
        "config_sha256": CONFIG.data_sha256,
        "decisions_sha256": "1" * 64,
        "files": [
            record_file(Split.TRAIN, 128, 180),
            record_file(Split.VALIDATION, 128, 20),
        ],
        "documents": 100,
        "dropped": {},
        "dead_letter": None,
        "statistics": statistics(100),
        "libraries": {"numpy": "2.4.6", "tokenizers": "0.23.3"},
    }
    return ShardManifest(**fields | changes)


def store_partition(
    store: StoreLayout, shards: list[ShardManifest], **changes: Any
) -> tuple[PartitionManifest, str]:
    """Store shards and the manifest that names them; return it and its URI."""
    for item in shards:
        item.write(store.shard_manifest(item.shard_key))
    manifest = partition_manifest(store, shards, **changes)
    lineage = store.lineage(manifest.lineage_id)
    name = identity.manifest_id(manifest.partition, [item.shard_key for item in shards])
    uri = lineage.manifest(manifest.partition, name)
    manifest.write(uri)
    return manifest, uri


def partition_manifest(
    store: StoreLayout, shards: list[ShardManifest], **changes: Any
) -> PartitionManifest:
    files = [file for item in shards for file in item.files]
    extra = next((f.max_seq_length for f in files if f.max_seq_length != 128), None)
    fields: dict[str, Any] = {
        "partition": PARTITION,
        "lineage_id": "default",
        "vocabulary_sha256": "0" * 64,
        "config_sha256": CONFIG.data_sha256,
        "settings": CONFIG.data_settings,
        "packing": "doc_sentences",
        "masked": all(file.masked for file in files),
        "max_seq_length": 128,
        "max_predictions_per_seq": 20,
        "extra_max_seq_length": extra,
        "extra_max_predictions_per_seq": extra and 20,
        "shards": [store.shard_manifest(item.shard_key) for item in shards],
        "documents": sum(item.documents for item in shards),
        "records": _by_split(files, 128, "records"),
        "tokens": _by_split(files, 128, "tokens"),
        "extra_records": _by_split(files, extra, "records") if extra else {},
        "extra_tokens": _by_split(files, extra, "tokens") if extra else {},
        "dropped": _added(item.dropped for item in shards),
        "duplicate_index": DuplicateIndex(
            data=digest("documents.npz"), snapshot_sha256="2" * 64, snapshot=[]
        ),
        "statistics": DataStatistics(
            document_tokens=_added(item.statistics.document_tokens for item in shards),
            row_tokens=_added(item.statistics.row_tokens for item in shards),
            text_tokens=sum(item.statistics.text_tokens for item in shards),
            unknown_tokens=sum(item.statistics.unknown_tokens for item in shards),
            new_words=_added(item.statistics.new_words for item in shards),
        ),
    }
    return PartitionManifest(**fields | changes)


def _added(counts: Any) -> dict[Any, int]:
    total: Counter[Any] = Counter()
    for item in counts:
        total.update(item)
    return dict(total)


def _by_split(files: list[RecordFile], length: int, name: str) -> dict[Split, int]:
    mine = [file for file in files if file.max_seq_length == length]
    return {s: sum(getattr(file, name) for file in mine if file.split is s) for s in Split}
