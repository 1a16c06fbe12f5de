"""Processes one input shard: finds its committed records, or converts and commits it."""

from __future__ import annotations

import hashlib
import importlib.metadata
import tempfile
import uuid
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO, cast

from corpus.arrays import FILE_NAME, HeldOutGroups, to_npz
from corpus.duplicates.signing import SignedInput
from corpus.errors import BadDataError
from corpus.rows.conversion import (
    RECIPE_VERSION,
    RowSet,
    RowSetStatistics,
    ShardConverter,
    ShardOutputs,
    ShardStatistics,
    row_sets,
)
from corpus.rows.record_files import DeadLetterWriter, LocalFile, RecordWriter
from corpus.text.reading import InputChangedError, MeteredStream
from corpus.tokens.vocabulary import Vocabulary
from pipeline_config import PipelineConfig
from pipeline_store import identity, request_paths, uris
from pipeline_store.formats import (
    FileDigest,
    RecordFile,
    ShardDecisions,
    ShardManifest,
    ShardOutcome,
)
from pipeline_store.layout import StoreLayout

# Libraries on which the bytes of records, or which documents become records, may depend.
_LIBRARIES = ("numpy", "py3langid", "pyarrow", "sentencepiece", "sentencex", "tokenizers")

Report = Callable[[ShardStatistics, int], None]


@dataclass(frozen=True)
class ShardWork:
    """A shard to be made: an input file, the decisions on its documents, and the shard's key."""

    source: SignedInput
    decisions_sha256: str
    config_sha256: str
    key: str


def plan_shard(
    source: SignedInput, decisions_sha256: str, config: PipelineConfig, vocabulary_sha256: str
) -> ShardWork:
    """Return the work on an input file; equal bytes, settings and decisions give an equal key."""
    # The format that `auto` resolves to, because two file names can have the same bytes.
    corpus = config.corpus.model_copy(update={"input_format": source.input_format})
    settings = config.model_copy(update={"corpus": corpus}).data_sha256
    config_sha256 = hashlib.sha256(f"{settings} recipe {RECIPE_VERSION}".encode()).hexdigest()
    key = identity.shard_key(source.sha256, vocabulary_sha256, config_sha256, decisions_sha256)
    return ShardWork(source, decisions_sha256, config_sha256, key)


def find_done(store: StoreLayout, key: str) -> ShardManifest | None:
    """Return the committed manifest of a shard, or None if it is still to be converted.

    :raises BadDataError: files that it names are missing or have another size.
    """
    uri = store.shard_manifest(key)
    manifest = ShardManifest.load_or_none(uri)
    if manifest is None:
        return None
    for record_file in manifest.files:
        for digest in (record_file.data, record_file.index):
            if not _is_there(uris.join(store.shard(key), digest.path), digest):
                raise BadDataError(
                    f"{uri} names {digest.path} of {digest.bytes} bytes, which is missing or of "
                    "another size. Delete shard.json and run again; the shard is then made anew."
                )
    return manifest


def _is_there(uri: str, digest: FileDigest) -> bool:
    return uris.exists(uri) and uris.size(uri) == digest.bytes


class ShardProcessor:
    """Converts shards and commits them.

    :param scratch_folder: folder for files before they are stored; None: the system's default.
    """

    def __init__(
        self,
        config: PipelineConfig,
        store: StoreLayout,
        vocabulary: Vocabulary,
        scratch_folder: str | None = None,
    ) -> None:
        self._config = config
        self._store = store
        self._vocabulary = vocabulary
        self._scratch_folder = scratch_folder
        self._row_sets = row_sets(config)
        self._converter = ShardConverter(config, vocabulary)

    def process(self, work: ShardWork, report: Report) -> tuple[ShardManifest, ShardOutcome]:
        """Make sure that a shard's records are in the store.

        :param report: called after each batch of documents with the statistics so far and the
            number of bytes read.
        :raises InputChangedError: the file changed while it was read.
        """
        manifest_uri = self._store.shard_manifest(work.key)
        outcome = partial(ShardOutcome, input_uri=work.source.uri, manifest_uri=manifest_uri)
        done = find_done(self._store, work.key)
        if done is not None:
            return done, outcome(reused=True)
        manifest = self._convert(work, report)
        if manifest.create(manifest_uri):
            return manifest, outcome(reused=False)
        # Another attempt was first. Its bytes are the same, so ours are not needed.
        folder = manifest.files[0].data.path.partition("/")[0]
        uris.delete_tree(uris.join(self._store.shard(work.key), folder))
        return ShardManifest.load(manifest_uri), outcome(reused=True)

    def _convert(self, work: ShardWork, report: Report) -> ShardManifest:
        decisions = ShardDecisions.load(self._store.decisions(work.decisions_sha256))
        with (
            tempfile.TemporaryDirectory(prefix="shard-", dir=self._scratch_folder) as folder,
            ExitStack() as stack,
        ):
            writers = {
                rows: stack.enter_context(RecordWriter(Path(folder, _name(rows))))
                for rows in self._row_sets
            }
            letters = DeadLetterWriter(Path(folder, "dead_letter"), work.source.uri)
            outputs = ShardOutputs(writers, stack.enter_context(letters))
            source = MeteredStream(stack.enter_context(request_paths.open_stream(work.source.uri)))
            statistics = self._converter.convert(
                cast("BinaryIO", source),
                work.source.input_format,
                decisions,
                outputs,
                lambda statistics: report(statistics, source.bytes_read),
            )
            if source.finish() != work.source.sha256:
                raise InputChangedError(work.source.uri)
            stack.close()
            with uris.together():
                return self._upload(work, outputs, statistics)

    def _upload(
        self, work: ShardWork, outputs: ShardOutputs, statistics: ShardStatistics
    ) -> ShardManifest:
        """Upload the files to a new folder, which nothing reads until a manifest names it."""
        folder = _UploadFolder(self._store.shard(work.key), uuid.uuid4().hex)
        letters = outputs.dead_letters
        return ShardManifest(
            shard_key=work.key,
            input_uri=work.source.uri,
            input_sha256=work.source.sha256,
            input_bytes=work.source.bytes,
            vocabulary_sha256=self._vocabulary.sha256,
            config_sha256=work.config_sha256,
            decisions_sha256=work.decisions_sha256,
            files=[
                folder.add_records(rows, writer, statistics)
                for rows, writer in outputs.records.items()
            ],
            documents=statistics.documents,
            dropped=dict(sorted(statistics.dropped.items())),
            dead_letter=folder.add(letters, "dead_letter.jsonl") if letters.bytes else None,
            token_counts=folder.add_bytes(
                to_npz(counts=statistics.trained_tokens), "token_counts.npz"
            ),
            held_out_groups=_groups(folder, statistics),
            statistics=statistics.data,
            libraries=dict(_libraries()),
        )


@cache
def _libraries() -> Mapping[str, str]:
    """Return the versions of libraries that records depend on; cached, as it takes milliseconds."""
    return MappingProxyType({name: importlib.metadata.version(name) for name in _LIBRARIES})


def _groups(folder: _UploadFolder, statistics: ShardStatistics) -> FileDigest | None:
    if not statistics.held_out_groups:
        return None
    groups = HeldOutGroups.of(statistics.held_out_groups)
    return folder.add_bytes(groups.to_bytes(), FILE_NAME)


def _name(rows: RowSet) -> str:
    return f"{rows.split}-{rows.max_seq_length}"


@dataclass(frozen=True)
class _UploadFolder:
    """The folder of one attempt, below a shard's folder."""

    shard_root: str
    unique: str

    def add(self, file: LocalFile, name: str) -> FileDigest:
        digest = file.digest(f"{self.unique}/{name}")
        uris.upload(str(file.path), uris.join(self.shard_root, digest.path))
        return digest

    def add_bytes(self, data: bytes, name: str) -> FileDigest:
        digest = FileDigest.of(f"{self.unique}/{name}", data)
        uris.write(uris.join(self.shard_root, digest.path), data)
        return digest

    def add_records(
        self, rows: RowSet, writer: RecordWriter, statistics: ShardStatistics
    ) -> RecordFile:
        counts = statistics.rows.get(rows, RowSetStatistics())
        return RecordFile(
            split=rows.split,
            max_seq_length=rows.max_seq_length,
            max_predictions_per_seq=rows.max_predictions_per_seq,
            masked=rows.masked,
            data=self.add(writer, f"{_name(rows)}.tfrecord"),
            index=self.add_bytes(writer.index(), f"{_name(rows)}.idx"),
            records=counts.records,
            documents=counts.documents,
            tokens=counts.tokens,
            masked_tokens=counts.masked_tokens,
        )
