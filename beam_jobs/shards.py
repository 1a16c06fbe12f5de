"""One input shard from the store to the store: found done, or converted and committed."""

from __future__ import annotations

import hashlib
import importlib.metadata
import tempfile
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO, cast

from beam_jobs.conversion import (
    RECIPE_VERSION,
    ShardConverter,
    ShardOutputs,
    ShardStatistics,
    SplitStatistics,
)
from beam_jobs.errors import BadDataError
from beam_jobs.inputs import InputFormat, input_format
from beam_jobs.reading import HashingStream
from beam_jobs.record_files import DeadLetterWriter, LocalFile, RecordWriter
from beam_jobs.vocabulary import Vocabulary
from pipeline_config import PipelineConfig
from pipeline_store import identity, uris
from pipeline_store.formats import FileDigest, RecordFile, ShardManifest, ShardOutcome, Split
from pipeline_store.layout import StoreLayout

_LIBRARIES = ("numpy", "tokenizers")


class InputChangedError(RuntimeError):
    """An input file was written to while it was read; running again may help."""


@dataclass(frozen=True)
class ShardInput:
    """An input file as it was found, and the key of the work to be done on it."""

    uri: str
    sha256: str
    bytes: int
    input_format: InputFormat
    config_sha256: str
    key: str


def identify(uri: str, config: PipelineConfig, vocabulary_sha256: str) -> ShardInput:
    """Read an input file once to know its key: equal bytes and settings, equal key."""
    chosen = input_format(uri, config)
    # The format that `auto` stands for, because two names can hold the same bytes.
    corpus = config.corpus.model_copy(update={"input_format": chosen})
    settings = config.model_copy(update={"corpus": corpus}).data_sha256
    config_sha256 = hashlib.sha256(f"{settings} recipe {RECIPE_VERSION}".encode()).hexdigest()
    sha256 = uris.sha256(uri)
    key = identity.shard_key(sha256, vocabulary_sha256, config_sha256)
    return ShardInput(uri, sha256, uris.size(uri), chosen, config_sha256, key)


def find_done(store: StoreLayout, key: str) -> ShardManifest | None:
    """Return the committed manifest of a shard, or None when it is still to be done.

    :raises BadDataError: files that it names are gone or have another size.
    """
    uri = store.shard_manifest(key)
    manifest = ShardManifest.load_or_none(uri)
    if manifest is None:
        return None
    for record_file in manifest.files.values():
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
    """Converts shards and commits them."""

    def __init__(self, config: PipelineConfig, store: StoreLayout, vocabulary: Vocabulary) -> None:
        self._config = config
        self._store = store
        self._vocabulary = vocabulary
        self._converter = ShardConverter(config, vocabulary)

    def process(
        self, uri: str, report: Callable[[ShardStatistics], None]
    ) -> tuple[ShardManifest, ShardOutcome]:
        """Make sure that a shard's records are in the store.

        :param report: called with the statistics so far after each batch of documents.
        :raises InputChangedError: the file changed while it was read.
        """
        shard = identify(uri, self._config, self._vocabulary.sha256)
        manifest_uri = self._store.shard_manifest(shard.key)
        outcome = partial(ShardOutcome, input_uri=uri, manifest_uri=manifest_uri)
        done = find_done(self._store, shard.key)
        if done is not None:
            return done, outcome(reused=True)
        manifest = self._convert(shard, report)
        if manifest.create(manifest_uri):
            return manifest, outcome(reused=False)
        # Somebody else was first. The bytes are the same, so ours are not needed.
        folder = next(iter(manifest.files.values())).data.path.partition("/")[0]
        uris.delete_tree(uris.join(self._store.shard(shard.key), folder))
        return ShardManifest.load(manifest_uri), outcome(reused=True)

    def _convert(
        self, shard: ShardInput, report: Callable[[ShardStatistics], None]
    ) -> ShardManifest:
        with tempfile.TemporaryDirectory(prefix="prepare-corpus-") as folder, ExitStack() as stack:
            outputs = ShardOutputs(
                {s: stack.enter_context(RecordWriter(Path(folder, s))) for s in Split},
                stack.enter_context(DeadLetterWriter(Path(folder, "dead_letter"), shard.uri)),
            )
            source = HashingStream(stack.enter_context(uris.open_stream(shard.uri)))
            statistics = self._converter.convert(
                cast("BinaryIO", source), shard.input_format, outputs, report
            )
            if source.finish() != shard.sha256:
                raise InputChangedError(
                    f"{shard.uri} changed while it was read. Put files into a partition whole: "
                    "write them elsewhere, then move them."
                )
            stack.close()
            return self._upload(shard, outputs, statistics)

    def _upload(
        self, shard: ShardInput, outputs: ShardOutputs, statistics: ShardStatistics
    ) -> ShardManifest:
        """Bring the bytes into a folder of their own, which nothing reads until it is named."""
        folder = _UploadFolder(self._store.shard(shard.key), uuid.uuid4().hex)
        files = {
            split: folder.add_records(split, writer, statistics.splits[split])
            for split, writer in outputs.records.items()
        }
        letters = outputs.dead_letters
        masking = self._config.masking
        return ShardManifest(
            shard_key=shard.key,
            input_uri=shard.uri,
            input_sha256=shard.sha256,
            input_bytes=shard.bytes,
            vocabulary_sha256=self._vocabulary.sha256,
            config_sha256=shard.config_sha256,
            max_seq_length=masking.max_seq_length,
            max_predictions_per_seq=masking.max_predictions_per_seq,
            files=files,
            documents=statistics.documents,
            dropped=dict(sorted(statistics.dropped.items())),
            dead_letter=folder.add(letters, "dead_letter.jsonl") if letters.bytes else None,
            unknown_tokens=statistics.unknown_tokens,
            libraries={name: importlib.metadata.version(name) for name in _LIBRARIES},
        )


@dataclass(frozen=True)
class _UploadFolder:
    """The folder of one try below a shard's folder."""

    shard_root: str
    unique: str

    def add(self, file: LocalFile, name: str) -> FileDigest:
        digest = file.digest(f"{self.unique}/{name}")
        uris.upload(str(file.path), uris.join(self.shard_root, digest.path))
        return digest

    def add_records(
        self, split: Split, writer: RecordWriter, counts: SplitStatistics
    ) -> RecordFile:
        index = writer.index()
        index_digest = FileDigest(
            path=f"{self.unique}/{split}.idx",
            bytes=len(index),
            sha256=hashlib.sha256(index).hexdigest(),
        )
        uris.write(uris.join(self.shard_root, index_digest.path), index)
        return RecordFile(
            data=self.add(writer, f"{split}.tfrecord"),
            index=index_digest,
            records=counts.records,
            documents=counts.documents,
            tokens=counts.tokens,
            masked_tokens=counts.masked_tokens,
        )
