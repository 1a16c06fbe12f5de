"""Masks that are drawn while training, anew in each epoch, for rows that are written unmasked."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from corpus.mlm_records import MaskingRecipe, TokenTable, mask_rows, row_keys, token_table
from pipeline_config import PipelineConfig
from pipeline_store.layout import StoreLayout
from trained_models import record_sources
from trained_models.record_sources import lineage_tokens

# Features that masking reads, and those that it returns.
TAKES = ("input_ids", "input_mask", "document_id", "row_number")
GIVES = ("input_ids", "masked_lm_positions", "masked_lm_ids", "masked_lm_weights")


class Masker:
    """A masker that applies the data job's function, as a pure function of row and epoch.

    :param table: which tokens of the vocabulary may be masked, and how they join into words.
    :param recipe: how many tokens are masked, and which of them together.
    """

    def __init__(self, table: TokenTable, recipe: MaskingRecipe) -> None:
        self.table = table
        self._recipe = recipe

    def __call__(self, features: dict[str, tf.Tensor], epochs: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return parsed rows with their tokens masked and the three features of the predictions.

        :param features: R unmasked rows, as :func:`training.input.examples.parse` returns them.
        :param epochs: epoch of each row, int64 [R].
        """
        rows, width = features["input_ids"].shape
        slots = self._recipe.max_predictions_per_seq
        # Not stateful: the masks depend on the rows and epochs alone, so tf.data may run ahead.
        outputs = tf.numpy_function(
            self._mask,
            [*(features[name] for name in TAKES), epochs],
            [tf.int32, tf.int32, tf.int32, tf.float32],
            stateful=False,
        )
        shapes = ([rows, width], [rows, slots], [rows, slots], [rows, slots])
        masked = {
            name: tf.ensure_shape(value, shape)
            for name, value, shape in zip(GIVES, outputs, shapes, strict=True)
        }
        return features | masked

    def _mask(
        self,
        tokens: npt.NDArray[np.int32],
        real: npt.NDArray[np.int32],
        documents: npt.NDArray[np.int64],
        rows: npt.NDArray[np.int64],
        epochs: npt.NDArray[np.int64],
    ) -> tuple[npt.NDArray, ...]:
        lengths = real.sum(axis=1, dtype=np.int32)
        unsigned = [ids.view(np.uint64).reshape(-1) for ids in (documents, rows, epochs)]
        masked = mask_rows(tokens, lengths, row_keys(*unsigned), self.table, self._recipe)
        return masked.input_ids, masked.positions, masked.ids, masked.weights


def load_masker(
    store: StoreLayout, config: PipelineConfig, max_predictions_per_seq: int | None = None
) -> Masker:
    """Return the masker of a configuration, for the vocabulary of its lineage.

    :param max_predictions_per_seq: that of the rows; None: that of rows of the main length.
    :raises FileNotFoundError: the lineage has no vocabulary.
    :raises FormatError: its ``vocab.txt`` is not the one that the lineage began with.
    """
    info = record_sources.vocabulary_info(store, config)
    tokens = lineage_tokens(store, config)
    slots = max_predictions_per_seq or config.masking.max_predictions_per_seq
    recipe = MaskingRecipe.of(config.masking, slots)
    return Masker(token_table(tokens, info.vocabulary_kind), recipe)
