"""Checks that exports reproduce the model: loads them and compares outputs before the commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf
import tf_keras
from tokenizers import Tokenizer

from corpus.tokens.vocabulary import MASK
from pipeline_config import PipelineConfig, with_overrides
from pipeline_store.formats import ExportCheck
from trained_models.errors import BadDataError
from training.architectures.models import build_model
from training.exporting.held_out_rows import Rows
from training.exporting.saved_model import ENCODE, FILL_MASK, MLM_LOGITS, TOP_WORDS
from training.importing.loading import InitialModel
from training.model.checkpoints import load_weights

LARGEST_DIFFERENCE = 1e-4
"""Limit for hidden states and logits of float32 programs that compute them in another order."""

Floats = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Subject:
    """The exported model, and the rows that its exports are checked on.

    :param config: with float32 and without dropout.
    :param tokens: tokens of the vocabulary, in order of id.
    :param rows: see :func:`training.exporting.held_out_rows.held_out_rows`.
    :param texts: the rows as text.
    """

    model: tf_keras.Model
    config: PipelineConfig
    tokens: tuple[str, ...]
    rows: Rows
    texts: list[str]


class Outputs(NamedTuple):
    """A model's outputs for rows.

    :param hidden_states: those of all real tokens, [T, H].
    :param pooled: pooled outputs of the rows, [R, H]; [R, 0] for a model without a pooler.
    :param logits: logits of all tokens of the vocabulary at every ``[MASK]``, [N, V].
    """

    hidden_states: Floats
    pooled: Floats
    logits: Floats


def outputs(model: tf_keras.Model, rows: Rows, tokens: tuple[str, ...]) -> Outputs:
    """Run a model of this project row by row, as the logits of many rows are large.

    :param tokens: tokens of the vocabulary; further rows of the embedding are ignored.
    """
    found = []
    for row in _single(rows):
        result = model(row, training=False)
        states, logits = (result[name].numpy() for name in ("sequence_output", "mlm_logits"))
        pooled = result["pooled_output"].numpy() if "pooled_output" in result else states[:, 0, :0]
        is_mask = _is_mask(row, tokens)
        found.append(
            Outputs(states[row["input_mask"] == 1], pooled, logits[0, is_mask, : len(tokens)])
        )
    return Outputs(*(np.concatenate(parts) for parts in zip(*found, strict=True)))


def _single(rows: Rows) -> Iterator[Rows]:
    for number in range(len(rows["input_word_ids"])):
        yield {name: values[number : number + 1] for name, values in rows.items()}


def _is_mask(row: Rows, tokens: tuple[str, ...]) -> npt.NDArray[np.bool_]:
    """Return whether each masked position of a row has ``[MASK]``, [P]; some have other tokens."""
    chosen: Ids = row["input_word_ids"][0][row["masked_lm_positions"][0]]
    return chosen == tokens.index(MASK)


def _mask_places(rows: Rows, tokens: tuple[str, ...]) -> Ids:
    """Return row and position of every ``[MASK]``, [N, 2], in the order of :func:`outputs`."""
    found = [
        (number, position)
        for number, row in enumerate(_single(rows))
        for position in row["masked_lm_positions"][0][_is_mask(row, tokens)]
    ]
    return np.array(found, np.int32).reshape(-1, 2)


def write_reference(path: Path, subject: Subject) -> None:
    """Write the model's own outputs as an ``.npz`` file, for comparison by other programs.

    It has ``input_word_ids``, ``input_mask``, ``input_type_ids`` int32 [R, S]; ``hidden_states``
    float32 [T, H] of all T real tokens, row by row; ``mask_places`` int32 [N, 2], row and position
    of every ``[MASK]``; and ``logits`` float32 [N, V] of the vocabulary's tokens at these places.
    """
    found = outputs(subject.model, subject.rows, subject.tokens)
    rows = {name: values for name, values in subject.rows.items() if name.startswith("input_")}
    with path.open("wb") as file:
        np.savez(
            file,
            allow_pickle=False,
            **rows,
            hidden_states=found.hidden_states,
            mask_places=_mask_places(subject.rows, subject.tokens),
            logits=found.logits,
        )


def check_hugging_face(folder: Path, subject: Subject, *, pooler: bool) -> ExportCheck:
    """Load a folder into a new model, like a training that starts from it, and compare outputs.

    :param pooler: whether the folder has a pooler.
    :raises BadDataError: outputs differ.
    :raises UserError: the folder cannot be read.
    """
    seed = subject.config.training.random_seed
    other = build_model(with_overrides(subject.config, {"training.random_seed": seed ^ 1}))
    architecture = subject.config.model.model_copy(update={"init_encoder_only": False})
    load_weights(other, InitialModel(str(folder), architecture, subject.tokens))
    found = outputs(other, subject.rows, subject.tokens)
    wanted = outputs(subject.model, subject.rows, subject.tokens)
    check = _check(
        folder,
        subject,
        states=max(
            _difference(found.hidden_states, wanted.hidden_states),
            _difference(found.pooled, wanted.pooled) if pooler else 0.0,
        ),
        logits=_difference(found.logits, wanted.logits),
        masks=len(wanted.logits),
    )
    words = np.argsort(-found.logits, axis=1)[:, :TOP_WORDS].astype(np.int32)
    _require_words(folder, words, wanted.logits)
    return check


def check_saved_model(folder: Path, subject: Subject, tokenizer: Tokenizer | None) -> ExportCheck:
    """Load a SavedModel like any user would, and compare the results of every signature.

    :param tokenizer: another tokenizer for the same tokens, if there is one.
    :raises BadDataError: outputs differ.
    """
    signatures = tf.saved_model.load(str(folder)).signatures
    logits = _saved_logits(signatures[MLM_LOGITS], subject)
    wanted = outputs(subject.model, subject.rows, subject.tokens)
    if FILL_MASK not in signatures:
        return _check_of_ids(folder, subject, signatures[ENCODE], logits, wanted)

    texts = tf.constant(subject.texts)
    encoded = {name: value.numpy() for name, value in signatures[ENCODE](text=texts).items()}
    rows = _as_rows(encoded)
    real = rows["input_mask"] == 1
    if tokenizer is not None:
        ids = [row[use].tolist() for row, use in zip(rows["input_word_ids"], real, strict=True)]
        _require_tokens(folder, ids, subject, tokenizer)
    of_texts = outputs(subject.model, rows, subject.tokens)
    check = _check(
        folder,
        subject,
        states=max(
            _difference(encoded["sequence_output"][real], of_texts.hidden_states),
            _difference(encoded.get("pooled_output", of_texts.pooled), of_texts.pooled),
        ),
        logits=_difference(logits, wanted.logits),
        masks=len(of_texts.logits),
    )
    words = signatures[FILL_MASK](text=texts)["tokens"].numpy()
    _require_words(folder, _ids_of(words, subject.tokens), of_texts.logits)
    return check


def _check_of_ids(
    folder: Path,
    subject: Subject,
    encode: Callable[..., dict[str, tf.Tensor]],
    logits: Floats,
    wanted: Outputs,
) -> ExportCheck:
    """Compare a model that takes token ids; its tokenizer is not checked."""
    rows = {name: tf.constant(v) for name, v in subject.rows.items() if name.startswith("input_")}
    encoded = {name: value.numpy() for name, value in encode(**rows).items()}
    real = subject.rows["input_mask"] == 1
    return _check(
        folder,
        subject,
        states=max(
            _difference(encoded["sequence_output"][real], wanted.hidden_states),
            _difference(encoded.get("pooled_output", wanted.pooled), wanted.pooled),
        ),
        logits=_difference(logits, wanted.logits),
        masks=len(wanted.logits),
    )


def _saved_logits(signature: Callable[..., dict[str, tf.Tensor]], subject: Subject) -> Floats:
    found = []
    for row in _single(subject.rows):
        inputs = {name: tf.constant(v) for name, v in row.items() if name.startswith("input_")}
        logits = signature(**inputs)["mlm_logits"].numpy()[0, :, : len(subject.tokens)]
        places = row["masked_lm_positions"][0][_is_mask(row, subject.tokens)]
        found.append(logits[places])
    return np.concatenate(found)


def _as_rows(encoded: dict[str, npt.NDArray]) -> Rows:
    """Return texts that a SavedModel has tokenized as rows with predictions at every position."""
    ids: Ids = encoded["input_word_ids"]
    return {
        "input_word_ids": ids,
        "input_mask": encoded["input_mask"],
        "input_type_ids": np.zeros_like(ids),
        "masked_lm_positions": np.broadcast_to(np.arange(ids.shape[1], dtype=np.int32), ids.shape),
    }


def _ids_of(words: npt.NDArray[np.object_], tokens: tuple[str, ...]) -> Ids:
    """Return the ids of the predicted words [R, M, 5] of all masks, [N, 5]."""
    numbers = {token.encode(): number for number, token in enumerate(tokens)}
    filled = words[words[:, :, 0] != b""]
    return np.array([numbers[word] for word in filled.flat], np.int32).reshape(filled.shape)


def _require_tokens(
    folder: Path, ids: list[list[int]], subject: Subject, tokenizer: Tokenizer
) -> None:
    tokenizer.enable_truncation(subject.config.model.max_position_embeddings)
    wanted = [encoding.ids for encoding in tokenizer.encode_batch(subject.texts)]
    same = sum(mine == theirs for mine, theirs in zip(ids, wanted, strict=True))
    # Very rare characters may differ. With a wrong vocabulary or case nearly all texts differ.
    if 2 * same < len(ids):
        raise BadDataError(
            f"{folder.name} makes other tokens of {len(ids) - same} of {len(ids)} held-out texts "
            "than the data job's tokenizer. Nothing was committed; this is an error of the export."
        )


def _require_words(folder: Path, words: Ids, logits: Floats) -> None:
    """Check that words [N, 5] are the most likely ones; equally likely words are all accepted."""
    if not len(words):
        raise BadDataError(
            "The held-out rows have not a single [MASK], so nothing can be tried out on them. "
            "Documents are too short; raise corpus.validation_fraction."
        )
    best = -np.sort(-logits, axis=1)[:, :TOP_WORDS]
    chosen = np.take_along_axis(logits, words, axis=1)
    wrong = (np.abs(best - chosen) > LARGEST_DIFFERENCE).any(axis=1)
    if wrong.any():
        raise BadDataError(
            f"{folder.name} fills {wrong.sum()} of {len(words)} masks with other words than the "
            "model. Nothing was committed; this is an error of the export."
        )


def _difference(found: Floats, wanted: Floats) -> float:
    return (
        float(np.abs(found - wanted).max(initial=0.0))
        if found.shape == wanted.shape
        else float("inf")
    )


def _check(
    folder: Path, subject: Subject, *, states: float, logits: float, masks: int
) -> ExportCheck:
    # A comparison with NaN is false.
    if not max(states, logits) < LARGEST_DIFFERENCE:
        raise BadDataError(
            f"{folder.name} is not the model: hidden states differ by {states:.1e} and logits by "
            f"{logits:.1e}, more than {LARGEST_DIFFERENCE:g}. Nothing was committed; this is an "
            "error of the export, or the model's weights are not finite."
        )
    return ExportCheck(
        rows=len(subject.texts),
        max_hidden_state_difference=states,
        max_logit_difference=logits,
        masks=masks,
    )
