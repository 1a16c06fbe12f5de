"""Scores the model on held-out rows during training, of its own partitions or of given ones."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import tensorflow as tf
import tf_keras

from pipeline_config import PipelineConfig
from pipeline_store.formats import HeldOutScore, Split
from pipeline_store.layout import StoreLayout
from trained_models import record_sources
from trained_models.errors import BadDataError, UserError
from training.evaluation.evaluation_sets import choose_rows, document_keys
from training.evaluation.evaluator import make_score_batch
from training.input import data, examples
from training.input.records import RecordReader
from training.runtime.phases import each
from training.runtime.strategies import numbers_of_workers

log = logging.getLogger("training")


@dataclass(frozen=True)
class HeldOut:
    """The rows that each checkpoint is scored on, the same ones every time.

    ``rows`` int64 [N]: record numbers in ``reader``.
    """

    reader: RecordReader
    rows: npt.NDArray[np.int64]
    config: PipelineConfig

    @classmethod
    def load(
        cls, manifest_uris: Sequence[str], store: StoreLayout, config: PipelineConfig
    ) -> HeldOut | None:
        """Choose evaluation.rows_per_checkpoint rows: whole documents, by a hash of their content.

        :param manifest_uris: manifests of the partitions whose held-out rows are used.
        :returns: None if evaluation.rows_per_checkpoint is 0.
        :raises UserError: none of the partitions holds validation records.
        :raises BadDataError: their records do not fit the configuration.
        """
        if not config.evaluation.rows_per_checkpoint:
            return None
        sources = {
            source.shard_key: source
            for uri in manifest_uris
            for source in record_sources.record_sources(
                record_sources.load_manifest(uri, store, config), Split.VALIDATION, store, config
            )
        }
        if not sources:
            raise UserError(
                f"evaluation.rows_per_checkpoint is {config.evaluation.rows_per_checkpoint}, but "
                f"there are no validation records in {', '.join(manifest_uris)}. Set it to 0, or "
                "raise corpus.validation_fraction and prepare the partition again."
            )
        reader = RecordReader(list(sources.values()))
        examples.check_records(reader)
        rows = choose_rows(document_keys(reader), config.evaluation.rows_per_checkpoint)
        log.info("Each checkpoint is scored on %s held-out rows.", f"{len(rows):,}")
        return cls(reader, rows, config)

    def scorer(
        self, strategy: tf.distribute.Strategy, model: tf_keras.Model
    ) -> Callable[[], HeldOutScore]:
        """Return a function that scores the current model; compiled once."""
        score_batch = make_score_batch(strategy, model, next_sentence=False)

        def score() -> HeldOutScore:
            size = self.config.evaluation.global_batch_size
            batches = data.evaluation_dataset(self.reader, self.rows, size, strategy)
            rows = np.concatenate([score_batch(batch).numpy() for batch in each(batches)])
            # Sums of this machine; those of the others are added.
            sums = _over_workers(strategy, rows.sum(axis=0, dtype=np.float64))
            loss, right, _, tokens = sums
            if not tokens:
                raise BadDataError(
                    f"{len(self.rows)} held-out rows have no masked token: there is nothing to "
                    "score. Raise evaluation.rows_per_checkpoint, or set it to 0."
                )
            return HeldOutScore(
                loss=loss / tokens, accuracy=right / tokens, masked_tokens=round(tokens)
            )

        return score


def _over_workers(strategy: tf.distribute.Strategy, sums: npt.NDArray[np.float64]) -> list[float]:
    """Return sums over all machines; their bits travel as whole numbers."""
    bits = [numbers_of_workers(strategy, number) for number in sums.view(np.int64).tolist()]
    return np.array(bits, np.int64).view(np.float64).sum(axis=1).tolist()
