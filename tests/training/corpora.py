"""A small store with records, manifests and a run, written through the contract's formats."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mlm_records import FEATURES, document_key, feature_arrays, mask_rows, row_keys
from pipeline_config import PipelineConfig
from pipeline_config.loading import with_overrides
from pipeline_store import identity
from pipeline_store.formats import (
    FileDigest,
    PartitionManifest,
    RecordFile,
    ShardManifest,
    Split,
    VocabularyInfo,
)
from pipeline_store.layout import RunLayout, StoreLayout

VOCABULARY_SIZE = 300
CLS, SEP, MASK, FIRST_WORD = 2, 3, 4, 5
ROWS_PER_DOCUMENT = 2

TINY = {
    "vocabulary.size": VOCABULARY_SIZE,
    "masking.max_seq_length": 16,
    "masking.max_predictions_per_seq": 4,
    "model.vocab_size": 320,
    "model.hidden_size": 32,
    "model.num_hidden_layers": 1,
    "model.num_attention_heads": 2,
    "model.intermediate_size": 64,
    "model.max_position_embeddings": 32,
    "optimizer.learning_rate": 3e-3,
    "optimizer.warmup_steps": 2,
    "training.train_steps": 12,
    "training.global_batch_size": 8,
    "training.steps_per_loop": 2,
    "training.checkpoint_interval": 4,
    "training.distribution_strategy": "one_device",
    "evaluation.global_batch_size": 16,
}


def tiny_config(**overrides: Any) -> PipelineConfig:
    """Return a configuration whose model trains in milliseconds; ``section__name=value``."""
    named = {name.replace("__", "."): value for name, value in overrides.items()}
    return with_overrides(PipelineConfig(), TINY | named)


@dataclass(frozen=True)
class TinyStore:
    """A store below a folder, with the vocabulary of the configured lineage."""

    layout: StoreLayout
    config: PipelineConfig

    @classmethod
    def create(cls, folder: Path, config: PipelineConfig | None = None) -> TinyStore:
        store = cls(StoreLayout(str(folder)), config or tiny_config())
        lineage = store.layout.lineage(store.config.model.lineage_id)
        words = "\n".join(f"w{i}" for i in range(VOCABULARY_SIZE)).encode()
        VocabularyInfo(
            sha256=hashlib.sha256(words).hexdigest(),
            size=VOCABULARY_SIZE,
            do_lower_case=True,
            source="test",
        ).write(lineage.vocabulary_info)
        return store

    @property
    def vocabulary_sha256(self) -> str:
        lineage = self.layout.lineage(self.config.model.lineage_id)
        return VocabularyInfo.load(lineage.vocabulary_info).sha256

    def run(self, run_key: str, config: PipelineConfig | None = None) -> RunLayout:
        """Return a new run folder with its configuration."""
        run = self.layout.run(run_key)
        path = Path(run.config)
        path.parent.mkdir(parents=True)
        path.write_bytes((config or self.config).to_bytes())
        return run

    def partition(
        self, partition: str, *, shards: int = 2, documents: int = 12, validation: int = 4
    ) -> str:
        """Write a partition and return the URI of its manifest.

        Text is easy to learn: a word is always followed by the next number.
        """
        written = [
            self._shard(f"{partition}/{number}", documents, validation) for number in range(shards)
        ]
        written.sort(key=lambda shard: shard.shard_key)
        masking = self.config.masking
        totals = {
            split: [shard.files[split] for shard in written if split in shard.files]
            for split in Split
        }
        manifest = PartitionManifest(
            partition=partition,
            lineage_id=self.config.model.lineage_id,
            vocabulary_sha256=self.vocabulary_sha256,
            config_sha256=self.config.data_sha256,
            max_seq_length=masking.max_seq_length,
            max_predictions_per_seq=masking.max_predictions_per_seq,
            shards=[self.layout.shard_manifest(shard.shard_key) for shard in written],
            documents=sum(shard.documents for shard in written),
            records={split: sum(f.records for f in files) for split, files in totals.items()},
            tokens={split: sum(f.tokens for f in files) for split, files in totals.items()},
            dropped={},
        )
        keys = [shard.shard_key for shard in written]
        uri = self.layout.lineage(self.config.model.lineage_id).manifest(
            partition, identity.manifest_id(partition, keys)
        )
        manifest.write(uri)
        return uri

    def _shard(self, name: str, documents: int, validation: int) -> ShardManifest:
        sha256 = hashlib.sha256(name.encode()).hexdigest()
        key = identity.shard_key(sha256, self.vocabulary_sha256, self.config.data_sha256)
        folder = Path(self.layout.shard(key), "first")
        folder.mkdir(parents=True)
        counts = {Split.TRAIN: documents, Split.VALIDATION: validation}
        files = {
            split: self._records(folder, f"{name}/{split}", split, count)
            for split, count in counts.items()
            if count
        }
        masking = self.config.masking
        shard = ShardManifest(
            shard_key=key,
            input_uri=name,
            input_sha256=sha256,
            input_bytes=0,
            vocabulary_sha256=self.vocabulary_sha256,
            config_sha256=self.config.data_sha256,
            max_seq_length=masking.max_seq_length,
            max_predictions_per_seq=masking.max_predictions_per_seq,
            files=files,
            documents=documents + validation,
            dropped={},
            dead_letter=None,
            unknown_tokens=0,
            libraries={},
        )
        shard.write(self.layout.shard_manifest(key))
        return shard

    def _records(self, folder: Path, name: str, split: Split, documents: int) -> RecordFile:
        features, lengths = self._features(name, documents)
        data = folder / f"{split}.tfrecord"
        offsets = write_records(data, features)
        index = folder / f"{split}.index"
        index.write_bytes(offsets.astype("<u8").tobytes())
        return RecordFile(
            data=digest(data, "first"),
            index=digest(index, "first"),
            records=len(offsets) - 1,
            documents=documents,
            tokens=int(lengths.sum()),
            masked_tokens=int(features["masked_lm_weights"].sum()),
        )

    def _features(self, name: str, documents: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
        masking = self.config.masking
        rows, width = documents * ROWS_PER_DOCUMENT, masking.max_seq_length
        generator = np.random.default_rng(list(name.encode()))
        lengths = generator.integers(width // 2, width + 1, rows).astype(np.int32)
        columns = np.arange(width)
        words = (generator.integers(0, 40, (rows, 1)) + columns) % 40 + FIRST_WORD
        real = columns < lengths[:, None]
        tokens = np.where(real, words, 0).astype(np.int32)
        tokens[:, 0] = CLS
        tokens[np.arange(rows), lengths - 1] = SEP
        keys = [
            document_key(hashlib.sha256(f"{name}/{number}".encode()).digest())
            for number in range(documents)
        ]
        document = np.repeat(np.array(keys, np.uint64), ROWS_PER_DOCUMENT)
        row = np.tile(np.arange(ROWS_PER_DOCUMENT, dtype=np.uint64), documents)
        masked = mask_rows(
            tokens,
            lengths,
            real & (tokens >= FIRST_WORD),
            row_keys(document, row, 0),
            masked_lm_prob=masking.masked_lm_prob,
            max_predictions_per_seq=masking.max_predictions_per_seq,
            mask_token_id=MASK,
            replacement_ids=np.arange(FIRST_WORD, VOCABULARY_SIZE, dtype=np.int32),
            random_seed=masking.random_seed,
        )
        return feature_arrays(masked, lengths, document), lengths


def write_records(path: Path, features: dict[str, np.ndarray]) -> np.ndarray:
    """Write a TFRecord file and return its offset index, uint64 [records + 1]."""
    import tensorflow as tf

    sizes = [0]
    with tf.io.TFRecordWriter(str(path)) as writer:
        for row in range(len(features["input_ids"])):
            example = tf.train.Example()
            for feature in FEATURES:
                value = example.features.feature[feature.name]
                values = value.int64_list if feature.dtype == "int64" else value.float_list
                values.value.extend(features[feature.name][row].tolist())
            serialized = example.SerializeToString()
            writer.write(serialized)
            sizes.append(8 + 4 + len(serialized) + 4)
    return np.cumsum(np.array(sizes, np.uint64))


def digest(path: Path, folder: str) -> FileDigest:
    """Return the digest of a file that a manifest one folder above names."""
    data = path.read_bytes()
    return FileDigest(
        path=f"{folder}/{path.name}", bytes=len(data), sha256=hashlib.sha256(data).hexdigest()
    )
