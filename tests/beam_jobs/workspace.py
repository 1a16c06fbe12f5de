"""A small store with made-up English, and ways to look at what the data job made of it."""

from __future__ import annotations

import hashlib
import itertools
import json
import random
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from beam_jobs.cli import JobArguments
from beam_jobs.prepare_corpus import PreparedPartition, prepare_partition
from beam_jobs.train_vocabulary import ensure_vocabulary
from corpus.text.content import Content, ContentMaker
from pipeline_config import PipelineConfig, load_preset, with_overrides
from pipeline_config.data_schema import CorpusConfig
from pipeline_store.formats import PartitionManifest, ShardManifest, Split
from pipeline_store.layout import StoreLayout

PARTITION = "2026-01-31"
_SYLLABLES = ["ba", "ke", "li", "mo", "nu", "pra", "tri", "sto", "wen", "xi", "dor", "fal", "gim"]


def document(number: int, sentences: int = 12) -> str:
    """Return a document of its own: several lines, no blank one."""
    draw = random.Random(number)

    def word() -> str:
        return "".join(draw.choices(_SYLLABLES, k=draw.randint(1, 4)))

    lines = [" ".join(word() for _ in range(draw.randint(4, 14))) for _ in range(sentences)]
    return "\n".join(f"{line.capitalize()}." for line in lines)


def documents(count: int, first: int = 0) -> list[str]:
    """Return different documents of different lengths."""
    return [document(n, sentences=1 + n * 7 % 40) for n in range(first, first + count)]


def as_text(texts: list[str]) -> bytes:
    """Return documents in the ``text`` and ``sentences`` format."""
    return ("\n\n".join(texts) + "\n").encode()


def as_jsonl(texts: list[str]) -> bytes:
    """Return documents in the ``jsonl`` format."""
    return "".join(json.dumps({"text": text}) + "\n" for text in texts).encode()


def content_sha256(text: str) -> bytes:
    """Return the hash that the document with this text is known by."""
    content = ContentMaker(CorpusConfig(), "text").content_of(text)
    assert isinstance(content, Content)
    return content.sha256


def make_config(**settings: Any) -> PipelineConfig:
    """Return the smoke preset with a small vocabulary, and masks in all rows.

    :param settings: ``__`` in a name stands for a dot.
    """
    named = {name.replace("__", "."): value for name, value in settings.items()}
    given = {"vocabulary.size": 1000, "masking.dynamic": False}
    return with_overrides(load_preset("smoke"), given | named)


@dataclass
class Workspace:
    """A store, a configuration, and the partition that is worked on."""

    store: StoreLayout
    config: PipelineConfig
    partition: str = PARTITION

    @property
    def corpus(self) -> Path:
        """Folder of the partition's input files."""
        return Path(self.store.root) / "corpus" / self.partition

    def put(self, name: str, data: bytes) -> Path:
        """Write an input file."""
        self.corpus.mkdir(parents=True, exist_ok=True)
        path = self.corpus / name
        path.write_bytes(data)
        return path

    @property
    def arguments(self) -> JobArguments:
        """What the command lines would be called with."""
        pattern = self.config.corpus.input_pattern
        return JobArguments(self.config, self.store, self.partition, pattern)

    def prepare(self, *pipeline_args: str) -> PreparedPartition:
        """Create the vocabulary if there is none, and run the data job in this process."""
        ensure_vocabulary(self.arguments)
        return prepare_partition(self.arguments, pipeline_args)

    def shards(self, manifest: PartitionManifest) -> list[ShardManifest]:
        """Return the partition's shards."""
        return [ShardManifest.load(uri) for uri in manifest.shards]

    def file(self, shard: ShardManifest, path: str) -> bytes:
        """Return a file that a shard manifest names."""
        return (Path(self.store.shard(shard.shard_key)) / path).read_bytes()

    def dead_letters(self, shard: ShardManifest) -> list[dict[str, Any]]:
        """Return a shard's dead letters."""
        assert shard.dead_letter is not None
        lines = self.file(shard, shard.dead_letter.path).decode().splitlines()
        return [json.loads(line) for line in lines]

    def records(
        self, manifest: PartitionManifest, split: Split, max_seq_length: int | None = None
    ) -> list[bytes]:
        """Return the partition's serialized examples, found by the offset index."""
        found = []
        for shard in self.shards(manifest):
            file = shard.file(split, max_seq_length or manifest.max_seq_length)
            assert file is not None
            data = self.file(shard, file.data.path)
            index = self.file(shard, file.index.path)
            offsets = struct.unpack(f"<{len(index) // 8}Q", index)
            # A frame is 12 bytes of length and checksum, the record, 4 bytes of checksum.
            found += [data[a + 12 : b - 4] for a, b in itertools.pairwise(offsets)]
        return found

    def record_hashes(self, manifest: PartitionManifest) -> list[str]:
        """Return the hashes of all records on either side and of every length, sorted."""
        lengths = [manifest.max_seq_length, manifest.extra_max_seq_length]
        return sorted(
            hashlib.sha256(record).hexdigest()
            for length in lengths
            for split in Split
            for record in (self.records(manifest, split, length) if length else [])
        )


def assert_every_document_is_accounted_for(shards: list[ShardManifest]) -> None:
    """Check that no document is lost or counted twice."""
    for shard in shards:
        lengths = {file.max_seq_length for file in shard.files}
        for length in lengths:
            files = [shard.file(split, length) for split in Split]
            written = sum(file.documents for file in files if file is not None)
            assert shard.documents == written + sum(shard.dropped.values())
