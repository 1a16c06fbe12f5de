"""Writes a lineage's T5 as a folder for transformers, which fine-tuning can start from."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tensorflow as tf

from pipeline_config import PipelineConfig, with_overrides
from pipeline_store.formats import ExportCheck
from pipeline_store.layout import StoreLayout
from trained_models import artifacts
from trained_models.errors import BadDataError
from trained_models.importing.sources import SENTENCEPIECE
from training.architectures.models import build_model
from training.architectures.t5.model import SpanPretrainer
from training.exporting.held_out_rows import Rows, held_out_rows
from training.exporting.lineage_tokenizer import LineageTokenizer
from training.exporting.writing import HUGGING_FACE
from training.model.checkpoints import check_architecture, load_weights
from training.runtime.job import on_cpu
from training.text_to_text.folder import read_again, require_equal, write_folder

log = logging.getLogger("training")

ROWS = 16
"""Number of held-out rows on which the folder is compared with the model."""

_NO_SAVED_MODEL = "a SavedModel is made of a fine-tuned T5: this one writes sentinels"


@dataclass(frozen=True)
class LineageExporter:
    """The :class:`training.exporting.writing.FormatWriter` of a lineage's T5.

    :param files_sha256: hash of its files, :attr:`trained_models.artifacts.ModelFiles.sha256`.
    :param config: as it was trained, but for the CPU and in float32.
    :param rows: held-out rows.
    """

    files_sha256: str
    config: PipelineConfig
    model: SpanPretrainer
    tokenizer: LineageTokenizer
    rows: Rows

    @classmethod
    def load(cls, model_uri: str, store: StoreLayout, config: PipelineConfig) -> LineageExporter:
        """Load a model of this project, in float32 for the CPU, and its held-out rows.

        :raises JobError: see :mod:`trained_models.errors`.
        """
        files = artifacts.model_files(model_uri)
        tokenizer = LineageTokenizer.load(store, config)
        check_architecture(model_uri, config, tokenizer.info.sha256)
        rows = held_out_rows(artifacts.load_inputs(files), store, config, ROWS)
        plain = on_cpu(config)
        model = build_model(plain)
        log.info("Loaded %s: %s", model_uri, load_weights(model, model_uri))
        return cls(files.sha256, plain, model, tokenizer, rows)

    def reason_against(self, name: str) -> str | None:
        """Return why a format cannot hold this model, or None."""
        return None if name == HUGGING_FACE else _NO_SAVED_MODEL

    def write(self, name: str, folder: Path) -> ExportCheck:
        """Write the folder and compare it: all weights, and logits on held-out rows.

        :raises BadDataError: the folder does not reproduce the model.
        """
        folder.mkdir()
        values, sizes = self.model.values(), self.model.sizes
        vocabulary = self.tokenizer.vocabulary.model
        assert vocabulary is not None  # noqa: S101 - a T5's is always of a file
        write_folder(
            folder,
            sizes,
            values,
            dropout_rate=self.config.model.hidden_dropout_prob,
            files={SENTENCEPIECE: vocabulary},
        )
        require_equal(folder, values)
        # Another seed: weights that were not loaded must not match by chance.
        seed = {"training.random_seed": self.config.training.random_seed ^ 1}
        again = build_model(with_overrides(self.config, seed))
        again.set_weights_by_name(read_again(folder))
        check = _compare(self.model, again, self.rows)
        log.info("%s: the logits of %d targets' tokens are the model's.", name, check.masks)
        return check


def _compare(model: SpanPretrainer, written: SpanPretrainer, rows: Rows) -> ExportCheck:
    """Compare outputs, which must be equal, as equal weights give equal outputs on one machine.

    :raises BadDataError: a number differs.
    """
    batch = {name: tf.constant(values) for name, values in rows.items()}
    states, logits = [], []
    for one in (model, written):
        states.append(one.encoder_network(batch)["sequence_output"].numpy()[:, 1:])
        logits.append(one(batch, training=False)["mlm_logits"].numpy())
    found = [float(np.abs(mine - theirs).max()) for mine, theirs in (states, logits)]
    # A comparison with NaN is false.
    if not max(found) == 0.0:
        raise BadDataError(
            f"The folder for transformers is not the model: hidden states differ by {found[0]:.1e} "
            f"and logits by {found[1]:.1e}. Nothing was committed; this is an error of the export, "
            "or the model's weights are not finite."
        )
    return ExportCheck(
        rows=len(rows["input_word_ids"]),
        max_hidden_state_difference=found[0],
        max_logit_difference=found[1],
        masks=int(np.count_nonzero(rows["masked_lm_ids"])),
    )
