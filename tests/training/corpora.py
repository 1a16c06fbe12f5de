"""A small store with records, manifests and a run, written through the contract's formats."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from corpus.mlm_records import MaskingRecipe, document_key, mask_rows, row_keys, token_table
from corpus.tokens.bpe_model import CHARACTERS, bpe_vocabulary
from corpus.tokens.sentencepiece_model import parse_sentencepiece
from corpus.tokens.vocabulary import Vocabulary
from pipeline_config import PipelineConfig
from pipeline_config.loading import with_overrides
from pipeline_store import identity, uris
from pipeline_store.formats import (
    DataStatistics,
    FileDigest,
    PartitionManifest,
    RecordFile,
    ShardManifest,
    Split,
    VocabularyInfo,
)
from pipeline_store.layout import RunLayout, StoreLayout, vocabulary_model
from tests.training.text_to_text.vocabularies import sentencepiece_model
from trained_models import record_sources
from trained_models.record_sources import RowFormat

if TYPE_CHECKING:
    import tensorflow as tf

    from training.input.data import TrainingData
    from training.input.masks import Masker
    from training.input.records import RecordReader

VOCABULARY_SIZE = 300
CLS, SEP, MASK, FIRST_WORD = 2, 3, 4, 5
SPECIAL_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TOKENS = SPECIAL_TOKENS + [f"w{i}" for i in range(FIRST_WORD, VOCABULARY_SIZE)]
_MERGES = [("a", character) for character in CHARACTERS[33:72]]
BPE = bpe_vocabulary(
    ["[CLS]", "[PAD]", "[SEP]", "[UNK]", *CHARACTERS, *map("".join, _MERGES), "[MASK]"], _MERGES
)
ROBERTA = {
    "model__architecture": "roberta",
    "vocabulary__kind": "bpe",
    "vocabulary__do_lower_case": False,
}
"""Settings of a lineage of RoBERTas."""
T5 = {
    "model__architecture": "t5",
    "model__hidden_act": "relu",
    "model__attention_head_size": 12,
    "vocabulary__kind": "t5",
    "vocabulary__do_lower_case": False,
    "masking__unit": "sentinel",
    # Two spans in a row of 16: with one alone, what is hidden is always the end.
    "masking__mean_span_tokens": 1.0,
    "masking__max_predictions_per_seq": 5,
    "promotion__export_formats": ["hugging_face"],
}
"""Settings of a lineage of T5."""
# Words that occur in the text; each is followed by the next, and the last one by the first.
WORDS = 40
ROWS_PER_DOCUMENT = 2
STATISTICS = DataStatistics(
    document_tokens={}, row_tokens={}, text_tokens=0, unknown_tokens=0, new_words={}
)

TINY = {
    "vocabulary.size": VOCABULARY_SIZE,
    "masking.max_seq_length": 16,
    "masking.max_predictions_per_seq": 4,
    "masking.dynamic": False,
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
        settings, vocabulary = store.config.vocabulary, store.vocabulary
        uris.write(lineage.vocabulary, vocabulary.to_bytes())
        if (model := vocabulary_model(lineage, settings.kind)) is not None:
            uris.write(model, vocabulary.model or b"")
        VocabularyInfo(
            vocabulary_kind=vocabulary.kind,
            sha256=vocabulary.sha256,
            tokens_sha256=vocabulary.tokens_sha256,
            size=len(vocabulary.tokens),
            do_lower_case=settings.do_lower_case,
            source="test",
        ).write(lineage.vocabulary_info)
        return store

    @property
    def vocabulary(self) -> Vocabulary:
        """Return one of the configured kind."""
        kind = self.config.vocabulary.kind
        if kind == "t5":
            return parse_sentencepiece(sentencepiece_model())
        return BPE if kind == "bpe" else Vocabulary(tuple(TOKENS))

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

    def using(self, config: PipelineConfig) -> TinyStore:
        """Return the same store, for partitions and runs of another configuration."""
        return TinyStore(self.layout, config)

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
            split: [shard.file(split, masking.max_seq_length) for shard in written]
            for split in Split
        }
        manifest = PartitionManifest(
            partition=partition,
            lineage_id=self.config.model.lineage_id,
            vocabulary_sha256=self.vocabulary_sha256,
            config_sha256=self.config.data_sha256,
            settings=self.config.data_settings,
            packing=masking.packing,
            masked=not masking.dynamic,
            max_seq_length=masking.max_seq_length,
            max_predictions_per_seq=masking.max_predictions_per_seq,
            extra_max_seq_length=masking.extra_max_seq_length,
            extra_max_predictions_per_seq=None
            if masking.extra_max_seq_length is None
            else masking.extra_max_predictions_per_seq,
            shards=[self.layout.shard_manifest(shard.shard_key) for shard in written],
            documents=sum(shard.documents for shard in written),
            records={s: sum(f.records for f in files if f) for s, files in totals.items()},
            tokens={s: sum(f.tokens for f in files if f) for s, files in totals.items()},
            dropped={},
            duplicate_index=None,
            statistics=STATISTICS,
        )
        keys = [shard.shard_key for shard in written]
        uri = self.layout.lineage(self.config.model.lineage_id).manifest(
            partition, identity.manifest_id(partition, keys)
        )
        manifest.write(uri)
        return uri

    def training_data(self, *manifests: str, replay: Sequence[str] = ()) -> TrainingData:
        """Open partitions for a training with the store's configuration."""
        from training.input.data import load_training_data

        sources = record_sources.phase_sources(manifests, replay, self.layout, self.config)
        return load_training_data(sources, self.layout, self.config)

    def _shard(self, name: str, documents: int, validation: int) -> ShardManifest:
        sha256 = hashlib.sha256(name.encode()).hexdigest()
        key = identity.shard_key(sha256, self.vocabulary_sha256, self.config.data_sha256, "0" * 64)
        folder = Path(self.layout.shard(key), "first")
        folder.mkdir(parents=True)
        counts = {Split.TRAIN: documents, Split.VALIDATION: validation}
        files = [
            self._records(folder, f"{name}/{split}", split, count, row_format)
            for split, count in counts.items()
            for row_format in self._row_formats(split)
            if count
        ]
        shard = ShardManifest(
            shard_key=key,
            input_uri=name,
            input_sha256=sha256,
            input_bytes=0,
            vocabulary_sha256=self.vocabulary_sha256,
            config_sha256=self.config.data_sha256,
            decisions_sha256="0" * 64,
            files=files,
            documents=documents + validation,
            dropped={},
            dead_letter=None,
            statistics=STATISTICS,
            libraries={},
        )
        shard.write(self.layout.shard_manifest(key))
        return shard

    def _row_formats(self, split: Split) -> list[RowFormat]:
        masking = self.config.masking
        shapes = [(masking.max_seq_length, masking.max_predictions_per_seq)]
        if masking.extra_max_seq_length is not None:
            shapes.append((masking.extra_max_seq_length, masking.extra_max_predictions_per_seq))
        masked = split is Split.VALIDATION or not masking.dynamic
        pairs = masking.packing == "segment_pair"
        return [RowFormat(length, predictions, masked, pairs) for length, predictions in shapes]

    def _records(
        self, folder: Path, name: str, split: Split, documents: int, row_format: RowFormat
    ) -> RecordFile:
        features = self._features(name, documents, row_format)
        data = folder / f"{split}-{row_format.max_seq_length}.tfrecord"
        offsets = write_records(data, features, row_format)
        index = data.with_suffix(".index")
        index.write_bytes(offsets.astype("<u8").tobytes())
        return RecordFile(
            split=split,
            max_seq_length=row_format.max_seq_length,
            max_predictions_per_seq=row_format.max_predictions_per_seq,
            masked=row_format.masked,
            data=digest(data, "first"),
            index=digest(index, "first"),
            records=len(offsets) - 1,
            documents=documents,
            tokens=int(features["input_mask"].sum()),
            masked_tokens=int(features.get("masked_lm_weights", np.zeros(1)).sum()),
        )

    def _features(self, name: str, documents: int, row_format: RowFormat) -> dict[str, np.ndarray]:
        rows, width = documents * ROWS_PER_DOCUMENT, row_format.max_seq_length
        generator = np.random.default_rng(list(name.encode()))
        lengths = generator.integers(width // 2, width + 1, rows).astype(np.int32)
        columns = np.arange(width)
        begins = generator.integers(0, WORDS, (rows, 1))
        words = (begins + columns) % WORDS + FIRST_WORD
        segments = np.zeros((rows, width), np.int32)
        labels = np.zeros((rows, 1), np.int32)
        middle = width // 4
        if row_format.next_sentence:
            # Half of the second segments begin somewhere else.
            labels = (np.arange(rows)[:, None] % 2).astype(np.int32)
            jumps = generator.integers(1, WORDS, (rows, 1)) * labels
            words = (begins + columns + jumps * (columns > middle)) % WORDS + FIRST_WORD
            segments[:, middle + 1 :] = 1
        real = columns < lengths[:, None]
        ids = self.vocabulary.ids
        tokens = np.where(real, words, ids["[PAD]"]).astype(np.int32)
        tokens[:, 0] = ids.get("[CLS]", ids["[SEP]"])
        tokens[np.arange(rows), lengths - 1] = ids["[SEP]"]
        if row_format.next_sentence:
            tokens[:, middle] = SEP
        keys = [
            document_key(hashlib.sha256(f"{name}/{number}".encode()).digest())
            for number in range(documents)
        ]
        document = np.repeat(np.array(keys, np.uint64), ROWS_PER_DOCUMENT)
        row = np.tile(np.arange(ROWS_PER_DOCUMENT, dtype=np.uint64), documents)
        table = token_table(self.vocabulary.tokens, self.vocabulary.kind)
        recipe = masking_recipe(self.config, row_format)
        masked = mask_rows(tokens, lengths, row_keys(document, row, 0), table, recipe)
        return {
            "input_ids": masked.input_ids if row_format.masked else tokens,
            "input_mask": real.astype(np.int64),
            "segment_ids": segments * real,
            "masked_lm_positions": masked.positions,
            "masked_lm_ids": masked.ids,
            "masked_lm_weights": masked.weights,
            "next_sentence_labels": labels,
            "document_id": document.view(np.int64)[:, None],
            "row_number": row.view(np.int64)[:, None],
        }


def training_batches(
    reader: RecordReader,
    config: PipelineConfig,
    strategy: tf.distribute.Strategy,
    *,
    first_step: int = 0,
    masker: Masker | None = None,
) -> tf.data.Dataset:
    """Return the batches of a training of one phase on all records of a reader."""
    from trained_models.phases import phases
    from training.input.data import PhaseData, TrainingData, training_dataset
    from training.input.order import Order

    (phase,) = phases(config)
    order = Order(phase, config.training.random_seed, len(reader))
    data = TrainingData((PhaseData(order, reader, masker),))
    return training_dataset(data, phase, first_step, 0, strategy)


def masking_recipe(config: PipelineConfig, row_format: RowFormat) -> MaskingRecipe:
    """Return the recipe of a configuration for one of its kinds of rows."""
    return MaskingRecipe.of(config.masking, row_format.max_predictions_per_seq)


def write_records(path: Path, features: dict[str, np.ndarray], row_format: RowFormat) -> np.ndarray:
    """Write a TFRecord file and return its offset index, uint64 [records + 1]."""
    import tensorflow as tf

    sizes = [0]
    with tf.io.TFRecordWriter(str(path)) as writer:
        for row in range(len(features["input_ids"])):
            example = tf.train.Example()
            for feature in row_format.features:
                value = example.features.feature[feature.name]
                values = value.int64_list if feature.dtype == "int64" else value.float_list
                values.value.extend(features[feature.name][row].tolist())
            serialized = example.SerializeToString()
            writer.write(serialized)
            sizes.append(8 + 4 + len(serialized) + 4)
    return np.cumsum(np.array(sizes, np.uint64))


def digest(path: Path, folder: str) -> FileDigest:
    """Return the digest of a file that a manifest one folder above names."""
    return FileDigest.of(f"{folder}/{path.name}", path.read_bytes())
