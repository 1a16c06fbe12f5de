"""Stored files of the data job: vocabularies, shard manifests and partition manifests."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import datetime
from enum import StrEnum
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from pipeline_store.formats.base import StoredFile
from pipeline_store.formats.tpu import ExitKind


class FirstLook(StoredFile):
    """``first_look.json``: the partitions in the corpus when watching began. Written once.

    They are not announced as new: an installation that begins to watch a corpus of many years
    would start a run for each of its partitions.
    """

    kind = "first-look"

    pattern: str = Field(description="corpus.input_pattern that was looked for")
    time: datetime
    listings: dict[str, str] = Field(description="SHA-256 of each partition's listing")


class PartitionArrival(StoredFile):
    """``<partition>.json``: a partition's files as last seen, and the run started for them."""

    kind = "partition-arrival"

    sequence: int = Field(description="counts the writes")
    partition: str
    listing_sha256: str = Field(description="of the names and sizes of its files")
    files: int
    bytes: int
    since: datetime = Field(description="look that first saw this listing")
    run_id: str | None = Field(description="run of the main DAG that was started last for it")

    @property
    def is_started(self) -> bool:
        """Return whether a run was started for the files as last seen."""
        return self.run_id == arrival_run_id(self.partition, self.listing_sha256)


def arrival_run_id(partition: str, listing_sha256: str) -> str:
    """Return the id of the run that a partition's arrival starts; equal files give the same id.

    :param listing_sha256: hash of the names and sizes of its files.
    """
    return f"arrival__{partition}__{listing_sha256[:12]}"


Content = bytes
"""Alias for use in a class whose field ``bytes`` shadows the type."""


class Split(StrEnum):
    """The side of the train/validation split that a document is on, permanently."""

    TRAIN = "train"
    VALIDATION = "validation"


class FileDigest(BaseModel):
    """A file's path, with the size and hash it must have to be trusted."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str = Field(description="relative to the folder of the manifest that names it")
    bytes: int
    # Strict, because files in caches are named by it.
    sha256: str = Field(pattern="^[0-9a-f]{64}$")

    @classmethod
    def of(cls, path: str, data: Content) -> Self:
        """Return the digest of a file with the given content."""
        return cls(path=path, bytes=len(data), sha256=hashlib.sha256(data).hexdigest())


class RecordFile(BaseModel):
    """A TFRecord file with its offset index: the rows of one split and one length of a shard.

    The index is a flat array of little-endian uint64: the byte offset of every record and, as its
    last element, the file's size; record ``i`` fills ``[index[i], index[i+1])``, framing included.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    split: Split
    max_seq_length: int
    max_predictions_per_seq: int
    masked: bool = Field(description="False: the trainer masks these rows, in each epoch anew")
    data: FileDigest
    index: FileDigest
    records: int
    documents: int
    tokens: int = Field(description="real tokens, padding excluded, [CLS] and [SEP] included")
    masked_tokens: int


class VocabularyInfo(StoredFile):
    """``vocabulary.json``: the commit of a lineage's vocabulary, frozen for the lineage's life.

    Next to it are ``vocab.txt``, one token a line in order of id, and the file that the vocabulary
    was read from: ``sentencepiece.model`` for the kind ``sentencepiece``, ``tokenizer.json`` for
    ``bpe``.
    """

    kind = "vocabulary"

    vocabulary_kind: Literal["wordpiece", "sentencepiece", "bpe", "t5"]
    sha256: str = Field(
        description="of what defines it: vocab.txt, sentencepiece.model, or tokenizer.json"
    )
    tokens_sha256: str = Field(description="of vocab.txt")
    size: int
    do_lower_case: bool
    source: str = Field(description="URI it was copied from, or how it was trained")
    domain_words: list[str] = Field(
        default=[],
        description="words put into [unused] places of the vocabulary it was copied from",
    )


SplitUnit = Literal["document", "group", "file"]
"""The unit that is trained on or held out as a whole."""


class DataStatistics(BaseModel):
    """Statistics of the text of a shard or partition; all are sums, so shards can be added up."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    document_tokens: dict[int, int] = Field(
        description="used documents by length: key k counts those of 2**k to 2**(k+1) - 1 tokens"
    )
    row_tokens: dict[int, int] = Field(
        description="rows of the main length by fill: key k counts those filled from k to k + 1 "
        "sixteenths; full ones are in 15"
    )
    text_tokens: int = Field(description="tokens of the used documents, before packing and copies")
    unknown_tokens: int = Field(description="those of them that are [UNK]")
    new_words: dict[str, int] = Field(
        description="most frequent words that the vocabulary does not have whole, with their count"
    )
    longest_document: int = Field(
        default=0,
        exclude_if=lambda tokens: tokens == 0,
        description="tokens of the longest used document; not known of shards of earlier versions",
    )


class ShardManifest(StoredFile):
    """``shard.json``: one input shard, processed. Its existence is the commit of the shard."""

    kind = "shard-manifest"
    has_checksum = True

    shard_key: str = Field(description="hash of input, vocabulary, data settings and decisions")
    input_uri: str
    input_sha256: str
    input_bytes: int
    vocabulary_sha256: str
    config_sha256: str
    decisions_sha256: str
    files: list[RecordFile] = Field(description="paths are relative to this file's folder")
    documents: int = Field(description="documents read, dropped ones included")
    dropped: dict[str, int] = Field(description="documents not used, by reason")
    dead_letter: FileDigest | None
    token_counts: FileDigest | None = Field(
        default=None,
        exclude_if=lambda counts: counts is None,
        description="numpy .npz: how often each token is in the documents to train on, by id; "
        "shards of earlier versions have none",
    )
    held_out_groups: FileDigest | None = Field(
        default=None,
        exclude_if=lambda groups: groups is None,
        description="numpy .npz: the groups (corpus.group_field) of held-out documents; none: no "
        "such document has one, or the shard is of an earlier version",
    )
    statistics: DataStatistics
    libraries: dict[str, str]

    def digests(self) -> Iterator[FileDigest]:
        """Yield every file that it names."""
        for file in self.files:
            yield from (file.data, file.index)
        yield from filter(None, (self.dead_letter, self.token_counts, self.held_out_groups))

    def file(self, split: Split, max_seq_length: int) -> RecordFile | None:
        """Return the record file of a split and row length, or None when there is none."""
        wanted = (split, max_seq_length)
        return next((f for f in self.files if (f.split, f.max_seq_length) == wanted), None)


class SignatureFile(StoredFile):
    """``signatures/<key>.json``: signatures of one input file's documents, to find duplicates.

    Its existence is the commit. ``data`` is a numpy ``.npz``; its arrays are described in
    ``docs/reference/data.md``.
    """

    kind = "signatures"

    input_sha256: str
    settings_sha256: str
    data: FileDigest
    documents: int = Field(description="documents with a signature; unreadable ones have none")


class ShardDecisions(StoredFile):
    """``decisions/<sha256>.json``: a shard's documents dropped or moved because of other documents.

    Documents are numbered from 0 in the order in which they are read from the input file. Equal
    decisions share one file, named by the hash of its content, which is part of the shard's key.
    """

    kind = "shard-decisions"

    duplicates: list[int] = Field(description="left out: equal to an earlier one")
    near_duplicates: list[int] = Field(description="left out: similar to an earlier one")
    validation: list[int] = Field(
        default=[],
        description="held out because a similar document, or their group or file, is, whatever "
        "their own hash",
    )
    train: list[int] = Field(
        default=[],
        description="trained on because a similar document, or their group or file, is, whatever "
        "their own hash",
    )

    @property
    def sha256(self) -> str:
        """Return the hash of the file's content."""
        return hashlib.sha256(self.to_bytes()).hexdigest()


class DuplicateIndex(BaseModel):
    """The index of a partition's documents in which later runs search for duplicates."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    data: FileDigest = Field(description="numpy .npz, described in docs/reference/data.md")
    snapshot_sha256: str = Field(description="hash of the indexes of earlier partitions looked at")
    snapshot: list[str] = Field(description="those indexes, as partition/manifest_id")


class PartitionManifest(StoredFile):
    """``partitions/<partition>/<manifest_id>.json``: all shards of one partition.

    Readers find records only through it. ``max_seq_length`` and the fields after it describe rows
    of the main length; those with ``extra_`` describe rows of the second length, if there is one.
    """

    kind = "partition-manifest"
    has_checksum = True

    partition: str
    lineage_id: str
    vocabulary_sha256: str
    config_sha256: str
    settings: dict[str, dict[str, JsonValue]] = Field(
        default={}, description="what config_sha256 is the hash of, by section, for people"
    )
    packing: Literal["doc_sentences", "full_sentences", "segment_pair"]
    masked: bool = Field(description="False: training rows are to be masked by the trainer")
    max_seq_length: int
    max_predictions_per_seq: int
    extra_max_seq_length: int | None
    extra_max_predictions_per_seq: int | None
    shards: list[str] = Field(description="URIs of the shard.json files, in order of shard key")
    documents: int
    records: dict[Split, int]
    tokens: dict[Split, int]
    extra_records: dict[Split, int] = Field(default={})
    extra_tokens: dict[Split, int] = Field(default={})
    dropped: dict[str, int]
    duplicate_index: DuplicateIndex | None
    statistics: DataStatistics
    split_by: SplitUnit = Field(
        default="document",
        exclude_if=lambda unit: unit == "document",
        description="what was held out as a whole; manifests written before there was a choice, "
        "and those by document, do not say it",
    )

    @property
    def training_rows(self) -> int:
        """Return the number of training rows of the main length, duplicated copies included."""
        return self.records.get(Split.TRAIN, 0)

    @property
    def content_sha256(self) -> str:
        """Return the SHA-256 of the content, which is the same for all copies of a manifest.

        It leaves out the record's own checksum, which manifests of earlier releases do not have.
        """
        return hashlib.sha256(self.content_bytes()).hexdigest()


class ShardOutcome(BaseModel):
    """One input shard that was processed, by this run or an earlier one."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    input_uri: str
    manifest_uri: str
    reused: bool = Field(description="its shard.json was there already")


class JobFailure(BaseModel):
    """A failure of a part of the data job that a retry cannot fix."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    exit_kind: ExitKind
    message: str


class ShardOutcomes(StoredFile):
    """``scratch/<unique>.json``: results that the data job's workers pass to its launcher."""

    kind = "shard-outcomes"

    outcomes: list[ShardOutcome]
    duplicate_index: DuplicateIndex | None
    kept_sides: int = Field(
        description="documents whose split comes from earlier runs or a similar document"
    )
    split_by: SplitUnit = Field(default="document", exclude_if=lambda unit: unit == "document")
    failures: list[JobFailure]
