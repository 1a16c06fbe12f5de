"""Graph functions from texts to a fine-tuned model's answers: its SavedModel's signatures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf
import tf_keras

from pipeline_config.task import TaskKind
from training.finetuning.exporting.segment_rows import SegmentRowBuilder, SegmentRows
from training.finetuning.exporting.served import answers
from training.finetuning.model import FEATURES
from training.finetuning.trained import TrainedTrial
from training.model.forward import INPUTS, mean_state

PREDICT, TOKENIZE, LOGITS = "predict", "tokenize", "logits"
TEXT, TEXT_PAIR = "text", "text_pair"

Outputs = dict[str, tf.Tensor]


class TextFunctions(tf.Module):
    """A fine-tuned model that takes text; its logits, values and probabilities are float32.

    :param rows: makes rows from texts.
    :param has_pairs: whether an example has two texts.
    :param in_graph: whether rows are made by ops. Otherwise no signature takes text.
    """

    def __init__(
        self,
        trained: TrainedTrial,
        rows: SegmentRowBuilder,
        *,
        has_pairs: bool,
        in_graph: bool = True,
    ) -> None:
        super().__init__()
        kind: TaskKind = trained.kind
        models = [trained.model] if trained.encoder is None else [trained.model, trained.encoder]
        # The bare variables: Keras would needlessly trace every layer by itself.
        self._variables = [variable for model in models for variable in model.variables]
        labels = self._labels = tf.constant(trained.labels, tf.string)
        logits_of = make_logits(trained.model, trained.encoder)
        texts = [tf.TensorSpec([None], tf.string, name=TEXT)]
        if has_pairs:
            texts.append(tf.TensorSpec([None], tf.string, name=TEXT_PAIR))
        ids = [tf.TensorSpec([None, None], tf.int32, name=name) for name in INPUTS]

        def logits(*inputs: tf.Tensor) -> Outputs:
            return {"logits": logits_of(dict(zip(INPUTS, inputs, strict=True)))}

        def predict(*inputs: tf.Tensor) -> Outputs:
            return answers(kind, labels, logits_of(rows(*inputs)._asdict()))

        def tokenize(*inputs: tf.Tensor) -> Outputs:
            found: SegmentRows = rows(*inputs)
            return found._asdict()

        signatures = {LOGITS: tf.function(logits, input_signature=ids)}
        self._predict: Any = predict
        self._tokenize: Any = tokenize
        if in_graph:
            self._predict = tf.function(predict, input_signature=texts)
            self._tokenize = tf.function(tokenize, input_signature=texts)
            # A module can have ops of a tokenizer only if it also has the tokenizer.
            self.rows = rows
            signatures |= {PREDICT: self._predict, TOKENIZE: self._tokenize}
        # A module saves a dictionary as it was when it became an attribute.
        self.by_name: dict[str, Any] = signatures

    def predict(self, texts: Sequence[tuple[str, ...]]) -> Outputs:
        """Return the answers for some examples, as the signature of this name does."""
        answers: Outputs = self._predict(*text_arguments(texts).values())
        return answers

    def tokenize(self, texts: Sequence[tuple[str, ...]]) -> Outputs:
        """Return the rows of some examples, by the names of the model's inputs."""
        rows: Outputs = self._tokenize(*text_arguments(texts).values())
        return rows


def make_logits(
    model: tf_keras.Model, encoder: tf_keras.Model | None
) -> Callable[[dict[str, tf.Tensor]], tf.Tensor]:
    """Return a function from rows to logits, float32 [R, L].

    :param encoder: the encoder of a probe; None: it is part of the model.
    """

    def logits(batch: dict[str, tf.Tensor]) -> tf.Tensor:
        inputs = batch if encoder is None else {FEATURES: mean_state(encoder, batch)}
        return model(inputs, training=False)

    return logits


def write_saved_model(folder: Path, functions: TextFunctions) -> None:
    """Write the signatures ``predict`` (also ``serving_default``), ``tokenize`` and ``logits``.

    If rows are not made by ops, ``logits`` is the only one, and the default.

    :param folder: created here.
    """
    found = functions.by_name
    signatures = found | {"serving_default": found.get(PREDICT, found[LOGITS])}
    tf.saved_model.save(functions, str(folder), signatures=signatures)


def text_arguments(texts: Sequence[tuple[str, ...]]) -> dict[str, tf.Tensor]:
    """Return the arguments of a signature for examples of one or two texts."""
    columns = list(zip(*texts, strict=True))
    names = (TEXT, TEXT_PAIR)[: len(columns)]
    return {n: tf.constant(list(column)) for n, column in zip(names, columns, strict=True)}
