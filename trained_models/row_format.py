"""What the records of a file hold. Needs no TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass

from corpus.mlm_records import Feature, record_features


@dataclass(frozen=True)
class RowFormat:
    """The shape of records: what :func:`corpus.mlm_records.record_features` is asked for, sizes.

    ``masked``: False for training rows that the trainer masks. ``next_sentence``: a row is a pair
    of segments and has a label that says whether the second one follows the first.
    """

    max_seq_length: int
    max_predictions_per_seq: int
    masked: bool
    next_sentence: bool

    @property
    def features(self) -> tuple[Feature, ...]:
        """Return the features of every record."""
        return record_features(masked=self.masked, next_sentence=self.next_sentence)

    @property
    def sizes(self) -> dict[str, int]:
        """Return the number of values that each feature must have."""
        return {
            feature.name: feature.size(
                max_seq_length=self.max_seq_length,
                max_predictions_per_seq=self.max_predictions_per_seq,
            )
            for feature in self.features
        }
