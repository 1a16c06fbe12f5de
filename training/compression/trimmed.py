"""Trims a classifier's vocabulary: fewer rows of word embeddings, otherwise the same model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from corpus.tokens.vocabulary import Vocabulary
from pipeline_store.formats import TaskSplit
from trained_models.compression.trimming import Arrays, TrimmedRows, kept_ids
from trained_models.errors import UserError
from trained_models.weight_names import WORD_EMBEDDINGS
from training.architectures.models import named_variables
from training.compression.student import unlabelled_examples
from training.exporting.lineage_tokenizer import LineageTokenizer
from training.finetuning.exporting.exporter import TextModel
from training.finetuning.exporting.functions import make_logits
from training.finetuning.model import build_classifier
from training.finetuning.task_data import Task


@dataclass(frozen=True)
class Trimmed:
    """A trimmed classifier.

    :param rows: maps rows of the task to rows of the smaller vocabulary.
    :param covered: share of the test examples without removed tokens.
    :param difference: largest difference of logits on these examples.
    """

    model: TextModel
    rows: Callable[[Arrays], Arrays]
    covered: float
    difference: float


def trim(model: TextModel, task: Task) -> Trimmed:
    """Return a classifier with only the tokens of a task's training and unlabeled texts.

    :raises UserError: the vocabulary is not WordPiece, or all of it is used.
    """
    tokenizer = model.tokenizer
    if tokenizer.vocabulary.kind != "wordpiece":
        raise UserError(
            f"trim: the vocabulary of lineage {model.trained.config.model.lineage_id!r} is of kind "
            f"{tokenizer.vocabulary.kind}, whose cuts depend on tokens that a text does not have; "
            "only wordpiece can be trimmed. Leave the step out."
        )
    unlabelled = unlabelled_examples(task)
    texts = [task.examples(TaskSplit.TRAIN), *([] if unlabelled is None else [unlabelled])]
    kept = kept_ids(tokenizer.tokens, (one.inputs["input_word_ids"] for one in texts))
    if len(kept) == len(tokenizer.tokens):
        raise UserError(
            f"trim: the texts of task {task.manifest.name!r} have all {len(kept)} tokens of the "
            "vocabulary, so nothing would get smaller. Leave the step out."
        )
    smaller = _smaller(model, kept)
    rows = TrimmedRows(tokenizer.tokens, kept)
    test = task.examples(TaskSplit.TEST).inputs
    is_covered = rows.covered(test)
    difference = _difference(model, smaller, {n: v[is_covered] for n, v in test.items()}, rows.rows)
    return Trimmed(smaller, rows.rows, float(is_covered.mean()), difference)


def _smaller(model: TextModel, kept: npt.NDArray[np.int64]) -> TextModel:
    trained, tokenizer = model.trained, model.tokenizer
    sizes = trained.config.model.model_copy(update={"vocab_size": len(kept)})
    config = trained.config.model_copy(update={"model": sizes})
    found = build_classifier(config, len(trained.labels) or 1, 0.0)
    source = named_variables(trained.model)
    for name, variable in named_variables(found).items():
        value = source[name].numpy()
        variable.assign(value[kept] if name.endswith(WORD_EMBEDDINGS) else value)
    vocabulary = Vocabulary(tuple(tokenizer.tokens[number] for number in kept))
    info = tokenizer.info.model_copy(
        update={
            "sha256": vocabulary.sha256,
            "tokens_sha256": vocabulary.tokens_sha256,
            "size": len(kept),
            "source": f"trimmed: {tokenizer.info.sha256}",
        }
    )
    return replace(
        model,
        trained=replace(trained, config=config, model=found),
        tokenizer=LineageTokenizer(info, vocabulary),
    )


def _difference(
    model: TextModel, smaller: TextModel, test: Arrays, rows: Callable[[Arrays], Arrays]
) -> float:
    if not len(test["input_word_ids"]):
        return 0.0
    largest = 0.0
    both = make_logits(model.trained.model, None), make_logits(smaller.trained.model, None)
    for at in range(0, len(test["input_word_ids"]), 128):
        batch = {name: values[at : at + 128] for name, values in test.items()}
        wanted, found = both[0](batch).numpy(), both[1](rows(batch)).numpy()
        largest = max(largest, float(np.abs(wanted - found).max()))
    return largest
