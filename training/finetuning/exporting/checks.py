"""Checks that exports reproduce the model: loads them and runs them on examples of the task."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from corpus.tokens.vocabulary import PAD, UNK
from pipeline_store.formats import ClassifierCheck
from trained_models.architectures.architecture import architecture_of
from trained_models.downstream import metrics
from trained_models.errors import BadDataError
from trained_models.importing.sources import WEIGHTS
from training.exporting.checks import LARGEST_DIFFERENCE
from training.exporting.held_out_rows import texts_of
from training.exporting.lineage_tokenizer import LineageTokenizer
from training.exporting.tokenizer_files import TOKENIZER
from training.finetuning.exporting.functions import (
    LOGITS,
    PREDICT,
    TOKENIZE,
    TextFunctions,
    make_logits,
    text_arguments,
)
from training.finetuning.exporting.hugging_face import added_layers
from training.finetuning.model import build_classifier
from training.finetuning.task_data import Examples
from training.finetuning.trained import TrainedTrial
from training.importing.loading import InitialModel
from training.model.checkpoints import load_encoder
from training.model.forward import INPUTS

Floats = npt.NDArray[Any]
Tokens = list[list[int]]


@dataclass(frozen=True)
class Subject:
    """The exported model, and the examples that its exports are checked on.

    :param trained: the model, in float32 and without dropout.
    :param examples: examples as the data job made them from the task's texts.
    :param has_pairs: whether an example has two texts.
    """

    trained: TrainedTrial
    tokenizer: LineageTokenizer
    examples: Examples
    has_pairs: bool

    @property
    def texts(self) -> list[tuple[str, ...]]:
        """Return the examples as text, without unknown tokens."""
        ids, types = (self.examples.inputs[name] for name in ("input_word_ids", "input_type_ids"))
        kind, pad = self.tokenizer.info.vocabulary_kind, self._tokens.index(PAD)
        parts = [
            texts_of({"input_word_ids": np.where(types == number, ids, pad)}, self._tokens, kind)
            for number in range(2 if self.has_pairs else 1)
        ]
        return list(zip(*parts, strict=True))

    @property
    def tokens_of_texts(self) -> Tokens:
        """Return the tokens that :attr:`texts` should have."""
        left_out = [self._tokens.index(PAD), self._tokens.index(UNK)]
        rows = self.examples.inputs["input_word_ids"]
        return [row[~np.isin(row, left_out)].tolist() for row in rows]

    def logits(self) -> Floats:
        """Return the model's own logits for the examples, [R, L]."""
        found = make_logits(self.trained.model, self.trained.encoder)(self.examples.inputs)
        return np.asarray(found)

    @property
    def _tokens(self) -> tuple[str, ...]:
        return self.tokenizer.tokens


def check_hugging_face(folder: Path, subject: Subject) -> ClassifierCheck:
    """Read a folder's tensors into a new model and its tokenizer, and compare.

    :raises BadDataError: outputs or tokens differ.
    :raises UserError: the folder cannot be read.
    """
    other = _read_classifier(folder, subject)
    found = make_logits(other, None)(subject.examples.inputs).numpy()
    tokenizer = Tokenizer.from_file(str(folder / TOKENIZER))
    tokens = [
        tokenizer.encode(texts[0], texts[1] if subject.has_pairs else None).ids
        for texts in subject.texts
    ]
    return ClassifierCheck(
        examples=len(subject.examples),
        same_tokens=_require_tokens(folder, tokens, subject),
        max_logit_difference=_require_close(folder, "logits", found, subject.logits()),
        max_output_difference=None,
    )


def _read_classifier(folder: Path, subject: Subject) -> Any:
    config = subject.trained.config
    training = config.training.model_copy(update={"random_seed": config.training.random_seed ^ 1})
    tensors = load_file(folder / WEIGHTS)
    last = architecture_of(config.model).hugging_face.classifier_layer
    outputs = len(tensors[f"{last}.bias"])
    other = build_classifier(
        config.model_copy(update={"training": training}),
        outputs,
        dropout=0.0,
    )
    source = InitialModel(str(folder), config.model, subject.tokenizer.tokens)
    load_encoder(other.encoder_network, source)
    for name, layer in added_layers(config.model, other).items():
        layer.kernel.assign(tensors[f"{name}.weight"].T)
        layer.bias.assign(tensors[f"{name}.bias"])
    return other


def check_saved_model(folder: Path, subject: Subject, functions: TextFunctions) -> ClassifierCheck:
    """Load a SavedModel like any user would, and compare the results of every signature.

    :param functions: the functions that were written; they make tokens and answers if no signature
        does.
    :raises BadDataError: outputs or tokens differ.
    """
    trained, examples = subject.trained, subject.examples
    signatures = tf.saved_model.load(str(folder)).signatures
    ids = {name: tf.constant(examples.inputs[name]) for name in INPUTS}
    found = signatures[LOGITS](**ids)["logits"].numpy()
    logits = _require_close(folder, "logits", found, subject.logits())

    texts, has_text = text_arguments(subject.texts), TOKENIZE in signatures
    made = signatures[TOKENIZE](**texts) if has_text else functions.tokenize(subject.texts)
    rows = {name: value.numpy() for name, value in made.items()}
    real = rows["input_mask"] == 1
    tokens = [row[use].tolist() for row, use in zip(rows["input_word_ids"], real, strict=True)]
    told = signatures[PREDICT](**texts) if has_text else functions.predict(subject.texts)
    answers = {name: value.numpy() for name, value in told.items()}
    wanted = make_logits(trained.model, trained.encoder)(rows).numpy()
    return ClassifierCheck(
        examples=len(examples),
        same_tokens=_require_tokens(folder, tokens, subject),
        max_logit_difference=logits,
        max_output_difference=_require_answers(folder, answers, wanted, trained),
    )


def _require_answers(
    folder: Path, answers: dict[str, npt.NDArray[Any]], logits: Floats, trained: TrainedTrial
) -> float:
    wanted = metrics.probabilities(trained.kind, logits)
    if trained.kind == "regression":
        return _require_close(folder, "values", answers["values"][:, np.newaxis], wanted)
    found = answers["probabilities"]
    difference = _require_close(folder, "probabilities", found, wanted)
    # Each label must be the one that the export's own probabilities imply.
    names = np.array([label.encode() for label in trained.labels], object)
    if trained.kind == "multi_label":
        labels = np.where(found > 0.5, names, b"")
    else:
        labels = names[np.argmax(found, axis=1)]
    same_classes = (answers["classes"] == names).all()
    if not (same_classes and np.array_equal(answers["labels"], labels)):
        raise BadDataError(
            f"{folder.name} names other labels than its probabilities tell. Nothing was committed; "
            "this is an error of the export."
        )
    return difference


def _require_tokens(folder: Path, found: Tokens, subject: Subject) -> int:
    wanted = subject.tokens_of_texts
    same = sum(mine == theirs for mine, theirs in zip(found, wanted, strict=True))
    # Examples with cut texts or unknown tokens may differ. With a wrong vocabulary or case nearly
    # all differ.
    if 2 * same < len(wanted):
        raise BadDataError(
            f"{folder.name} makes other tokens of {len(wanted) - same} of {len(wanted)} examples "
            "than the data job. Nothing was committed; this is an error of the export."
        )
    return same


def _require_close(folder: Path, what: str, found: Floats, wanted: Floats) -> float:
    is_same_shape = found.shape == wanted.shape
    difference = float(np.abs(found - wanted).max()) if is_same_shape else float("inf")
    # A comparison with NaN is false.
    if not difference < LARGEST_DIFFERENCE:
        raise BadDataError(
            f"{folder.name} is not the model: {what} differ by {difference:.1e}, more than "
            f"{LARGEST_DIFFERENCE:g}. Nothing was committed; this is an error of the export, or "
            "the model's weights are not finite."
        )
    return difference
