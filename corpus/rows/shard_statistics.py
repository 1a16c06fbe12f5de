"""Statistics of a shard's text and records, counted while it is converted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from corpus.text.shard_contents import DocumentCounts
from corpus.tokens.new_words import NewWords
from pipeline_config import PipelineConfig
from pipeline_config.row_shapes import row_shapes
from pipeline_store.formats import DataStatistics, Split

_NEW_WORDS = 1000
# Classes of row fill in the statistics.
_FILL_CLASSES = 16


class RowSet(NamedTuple):
    """The rows of one record file."""

    split: Split
    max_seq_length: int
    max_predictions_per_seq: int
    masked: bool


def row_sets(config: PipelineConfig) -> list[RowSet]:
    """Return the record files that a shard has, those of the main row length first."""
    return [
        RowSet(split, length, predictions, split != Split.TRAIN or not config.masking.dynamic)
        for _, length, predictions in row_shapes(config)
        for split in Split
    ]


@dataclass
class RowSetStatistics:
    """The counts of one record file; its records and tokens include all ``dupe_factor`` copies."""

    documents: int = 0
    records: int = 0
    tokens: int = 0
    masked_tokens: int = 0


@dataclass
class ShardStatistics(DocumentCounts):
    """Statistics of a shard; each document is on one side of the split or in ``dropped``."""

    rows: dict[RowSet, RowSetStatistics] = field(default_factory=dict)
    document_tokens: Counter[int] = field(default_factory=Counter)
    row_tokens: Counter[int] = field(default_factory=Counter)
    text_tokens: int = 0
    unknown_tokens: int = 0
    longest_document: int = 0
    new_words: NewWords = field(default_factory=NewWords)
    trained_tokens: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    """Counts of each token in the training side's documents, by id, up to the highest id seen."""
    held_out_groups: dict[int, int] = field(default_factory=dict)
    """The draws of the groups of held-out documents that have one, by document key."""

    @classmethod
    def of(cls, rows: Iterable[RowSet], counts: DocumentCounts | None = None) -> ShardStatistics:
        """Return the statistics of a shard of which nothing is written yet.

        :param rows: its record files.
        :param counts: the counts of its documents so far.
        """
        known = counts or DocumentCounts()
        return cls(
            documents=known.documents,
            dropped=known.dropped,
            rows={one: RowSetStatistics() for one in rows},
        )

    @property
    def tokens(self) -> int:
        """Real tokens written so far, in all record files."""
        return sum(rows.tokens for rows in self.rows.values())

    @property
    def data(self) -> DataStatistics:
        """The statistics that a manifest has of the text."""
        return DataStatistics(
            document_tokens=dict(sorted(self.document_tokens.items())),
            row_tokens=dict(sorted(self.row_tokens.items())),
            text_tokens=self.text_tokens,
            unknown_tokens=self.unknown_tokens,
            new_words=self.new_words.top(_NEW_WORDS),
            longest_document=self.longest_document,
        )

    def count_documents(self, sizes: npt.NDArray[np.int64]) -> None:
        """Count documents by their tokens, shape [D]; each has one at least."""
        self.text_tokens += int(sizes.sum())
        self.longest_document = max(self.longest_document, int(sizes.max(initial=0)))
        # A float's exponent is exact where a logarithm might be rounded up.
        self.document_tokens.update((np.frexp(sizes.astype(np.float64))[1] - 1).tolist())

    def count_trained_tokens(self, ids: npt.NDArray[np.int32]) -> None:
        """Count the tokens of documents on the training side, before packing and copies."""
        more = np.bincount(ids, minlength=len(self.trained_tokens))
        more[: len(self.trained_tokens)] += self.trained_tokens
        self.trained_tokens = more

    def count_rows(self, lengths: npt.NDArray[np.int32], max_seq_length: int) -> None:
        """Count rows of the main length by their real tokens, shape [R]."""
        fill = lengths.astype(np.int64) * _FILL_CLASSES // max_seq_length
        self.row_tokens.update(np.minimum(fill, _FILL_CLASSES - 1).tolist())
