"""Stored files of the data job: vocabularies, shard manifests and partition manifests."""

from __future__ import annotations

import hashlib
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field

from pipeline_store.formats.base import StoredFile


class Split(StrEnum):
    """Which side of the train/validation split a document is on, for ever."""

    TRAIN = "train"
    VALIDATION = "validation"


class FileDigest(BaseModel):
    """A file with the size and hash it must have to be trusted."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str = Field(description="relative to the folder of the manifest that names it")
    bytes: int
    # Strict, because files in caches are named by it.
    sha256: str = Field(pattern="^[0-9a-f]{64}$")


class RecordFile(BaseModel):
    """A TFRecord file with its offset index.

    The index is a flat array of little-endian uint64: the byte offset of every record and, as its
    last element, the file's size; record ``i`` fills ``[index[i], index[i+1])``, framing included.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    data: FileDigest
    index: FileDigest
    records: int
    documents: int
    tokens: int = Field(description="real tokens, padding excluded, [CLS] and [SEP] included")
    masked_tokens: int


class VocabularyInfo(StoredFile):
    """``vocabulary.json`` beside ``vocab.txt``: frozen for the life of a lineage."""

    kind = "vocabulary"

    sha256: str = Field(description="of vocab.txt")
    size: int
    do_lower_case: bool
    source: str = Field(description="URI it was copied from, or how it was trained")


class ShardManifest(StoredFile):
    """``shard.json``: one input shard, processed. Its existence is the commit of the shard."""

    kind = "shard-manifest"

    shard_key: str = Field(description="hash of input, vocabulary and data configuration")
    input_uri: str
    input_sha256: str
    input_bytes: int
    vocabulary_sha256: str
    config_sha256: str
    max_seq_length: int
    max_predictions_per_seq: int
    files: dict[Split, RecordFile] = Field(description="paths are relative to this file's folder")
    documents: int = Field(description="documents read, dropped ones included")
    dropped: dict[str, int] = Field(description="documents or records not used, by reason")
    dead_letter: FileDigest | None
    unknown_tokens: int = Field(description="tokens that became [UNK]")
    libraries: dict[str, str]


class PartitionManifest(StoredFile):
    """``partitions/<partition>/<manifest_id>.json``: all shards of one partition.

    The only way readers find records.
    """

    kind = "partition-manifest"

    partition: str
    lineage_id: str
    vocabulary_sha256: str
    config_sha256: str
    max_seq_length: int
    max_predictions_per_seq: int
    shards: list[str] = Field(description="URIs of the shard.json files, in order of shard key")
    documents: int
    records: dict[Split, int]
    tokens: dict[Split, int]
    dropped: dict[str, int]

    @property
    def content_sha256(self) -> str:
        """Return the SHA-256 of the file: copies of a manifest have the same one."""
        return hashlib.sha256(self.to_bytes()).hexdigest()


class ShardOutcome(BaseModel):
    """One input shard that is done, now or by an earlier run."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    input_uri: str
    manifest_uri: str
    reused: bool = Field(description="its shard.json was there already")


class ShardOutcomes(StoredFile):
    """``scratch/<unique>.json``: passes from the data job's workers to its launcher."""

    kind = "shard-outcomes"

    outcomes: list[ShardOutcome]
