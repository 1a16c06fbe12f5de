"""Converts a shard's bytes in memory, with a vocabulary of letters and syllables."""

from __future__ import annotations

import dataclasses
import io
import itertools
import string
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from corpus.mlm_records import record_features
from corpus.rows.conversion import (
    RowSet,
    ShardConverter,
    ShardOutputs,
    ShardStatistics,
    row_sets,
)
from corpus.rows.record_files import DeadLetterWriter, RecordWriter
from corpus.tokens.vocabulary import CLS, MASK, PAD, SEP, UNK, Vocabulary
from pipeline_config import PipelineConfig
from pipeline_store.formats import ShardDecisions, Split
from tests.beam_jobs.workspace import make_config

NO_DECISIONS = ShardDecisions(duplicates=[], near_duplicates=[])
_PIECES = ["ba", "ke", "li", "mo", "nu", "pra", "tri", "sto", "wen", "xi", "dor", "fal", "gim"]
VOCABULARY = Vocabulary(
    (
        *(PAD, UNK, CLS, SEP, MASK, "."),
        *string.ascii_lowercase,
        *(f"##{letter}" for letter in string.ascii_lowercase),
        *_PIECES,
        *(f"##{piece}" for piece in _PIECES),
    )
)
SPECIAL = [VOCABULARY.ids[name] for name in (PAD, UNK, CLS, SEP, MASK)]
PACKINGS = ["doc_sentences", "full_sentences", "segment_pair"]
UNITS = ["token", "word", "span"]


@dataclasses.dataclass
class Converted:
    """What became of a shard."""

    config: PipelineConfig
    files: dict[RowSet, bytes]
    indexes: dict[RowSet, bytes]
    letters: bytes
    statistics: ShardStatistics

    def rows(self, split: Split = Split.TRAIN, length: int | None = None) -> RowSet:
        """Return the row set of a split and length."""
        wanted = (split, length or self.config.masking.max_seq_length)
        return next(rows for rows in self.files if (rows.split, rows.max_seq_length) == wanted)

    def records(self, split: Split = Split.TRAIN, length: int | None = None) -> list[bytes]:
        """Return serialized examples."""
        rows = self.rows(split, length)
        data, offsets = self.files[rows], np.frombuffer(self.indexes[rows], "<u8")
        return [data[a + 12 : b - 4] for a, b in itertools.pairwise(offsets.tolist())]

    def parsed(
        self, split: Split = Split.TRAIN, length: int | None = None
    ) -> dict[str, np.ndarray]:
        """Return the features of all records."""
        rows = self.rows(split, length)
        features = record_features(
            masked=rows.masked, next_sentence=self.config.masking.packing == "segment_pair"
        )
        spec = {
            feature.name: tf.io.FixedLenFeature(
                [
                    feature.size(
                        max_seq_length=rows.max_seq_length,
                        max_predictions_per_seq=rows.max_predictions_per_seq,
                    )
                ],
                feature.dtype,
            )
            for feature in features
        }
        parsed = tf.io.parse_example(self.records(split, length), spec)
        return {name: values.numpy() for name, values in parsed.items()}

    def original(self, split: Split = Split.TRAIN, length: int | None = None) -> list[list[int]]:
        """Return the rows' tokens as they were before masking."""
        parsed = self.parsed(split, length)
        tokens = parsed["input_ids"].copy()
        if "masked_lm_ids" in parsed:
            row, slot = np.nonzero(parsed["masked_lm_weights"])
            tokens[row, parsed["masked_lm_positions"][row, slot]] = parsed["masked_lm_ids"][
                row, slot
            ]
        lengths = parsed["input_mask"].sum(axis=1)
        return [values[:size].tolist() for values, size in zip(tokens, lengths, strict=True)]


def convert(
    data: bytes,
    input_format: Any = "text",
    *,
    decisions: ShardDecisions = NO_DECISIONS,
    batch_characters: int = 1 << 19,
    report: Callable[[ShardStatistics], None] = lambda statistics: None,
    vocabulary: Vocabulary = VOCABULARY,
    **changes: Any,
) -> Converted:
    """Convert a shard; ``changes`` are settings, with ``__`` for a dot."""
    config = make_config(**changes)
    converter = ShardConverter(config, vocabulary, batch_characters)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        writers = {rows: RecordWriter(path / str(n)) for n, rows in enumerate(row_sets(config))}
        letters = DeadLetterWriter(path / "letters", "input")
        statistics = converter.convert(
            io.BytesIO(data), input_format, decisions, ShardOutputs(writers, letters), report
        )
        for writer in (*writers.values(), letters):
            writer.close()
        return Converted(
            config,
            {rows: writer.path.read_bytes() for rows, writer in writers.items()},
            {rows: writer.index() for rows, writer in writers.items()},
            letters.path.read_bytes(),
            statistics,
        )
