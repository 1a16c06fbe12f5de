"""Serializes planned rows as records: masked one or several times, or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from corpus.mlm_records import (
    MaskedRows,
    MaskingRecipe,
    feature_arrays,
    mask_rows,
    record_features,
    row_keys,
    token_table,
)
from corpus.rows.examples import serialize_examples
from corpus.rows.plans import RowBuilder, RowPlan, Rows
from corpus.tokens.vocabulary import CLS, PAD, SEP, Vocabulary
from pipeline_config.data_schema import MaskingConfig

# Bounds the memory of the arrays in use, and keeps them in the processor's cache. A row's bytes do
# not depend on it.
_TOKENS_AT_ONCE = 1 << 16


class Records(NamedTuple):
    """Serialized records of R rows, with the copies of a row after each other.

    ``lengths`` [R]: real tokens of each row. ``masked_tokens``: predictions in all records.
    """

    examples: list[bytes]
    lengths: npt.NDArray[np.int32]
    masked_tokens: int


class RecordBuilder:
    """Makes the records of one record file.

    :param copies: how often each row is written, each time with other masks; 0 for rows that are
        written once and not masked.
    """

    def __init__(
        self,
        masking: MaskingConfig,
        vocabulary: Vocabulary,
        *,
        max_seq_length: int,
        max_predictions_per_seq: int,
        copies: int,
    ) -> None:
        self._copies = copies
        self._table = token_table(vocabulary.tokens, vocabulary.kind)
        self._recipe = MaskingRecipe.of(masking, max_predictions_per_seq)
        self._features = record_features(
            masked=copies > 0, next_sentence=masking.packing == "segment_pair"
        )
        sep_id, pad_id = vocabulary.ids[SEP], vocabulary.ids[PAD]
        # T5 has no [CLS]: the trainer leaves out the first token of a row.
        cls_id = vocabulary.ids.get(CLS, sep_id)
        self._rows = RowBuilder(max_seq_length, cls_id=cls_id, sep_id=sep_id, pad_id=pad_id)
        self._rows_at_once = max(1, _TOKENS_AT_ONCE // max_seq_length)

    def build(self, plan: RowPlan) -> Iterator[Records]:
        """Yield the records of the planned rows, in order."""
        for rows in self._rows.build(plan, self._rows_at_once):
            yield self._masked(rows) if self._copies else self._unmasked(rows)

    def _unmasked(self, rows: Rows) -> Records:
        return Records(self._serialized(rows, rows.tokens), rows.lengths, 0)

    def _masked(self, rows: Rows) -> Records:
        by_copy: list[list[bytes]] = []
        masked_tokens = 0
        for copy in range(self._copies):
            keys = row_keys(rows.documents, rows.numbers, copy)
            masked = mask_rows(rows.tokens, rows.lengths, keys, self._table, self._recipe)
            by_copy.append(self._serialized(rows, masked))
            masked_tokens += int(masked.weights.sum())
        examples = list(chain.from_iterable(zip(*by_copy, strict=True)))
        return Records(examples, rows.lengths, masked_tokens)

    def _serialized(self, rows: Rows, tokens: MaskedRows | npt.NDArray[np.int32]) -> list[bytes]:
        arrays = feature_arrays(
            tokens,
            rows.lengths,
            rows.documents,
            row_numbers=None if self._copies else rows.numbers,
            first_lengths=rows.first_lengths,
            next_sentence_labels=rows.random_next,
        )
        return serialize_examples(self._features, arrays)
