"""Measures how well a model's embeddings retrieve the second half of a document by its first.

docs/operate/promotion.md says why, and defines the halves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf
import tf_keras

from pipeline_store.formats import RetrievalScore
from trained_models.record_sources import RowFormat
from training.evaluation.evaluation_sets import EvaluationSet, hashed_order
from training.input import examples
from training.model.forward import Forward, make_forward, mean_state

MAX_DOCUMENTS = 1000
LEAST_TOKENS = 16
"""Minimum for a document, both halves together."""

_ROWS_OF_A_DOCUMENT = 2
_ROWS_AT_ONCE = 4096
_OWN_TOKENS = "own_tokens"
# Cosines are float32 sums, whose last bits depend on the device and the order of rows.
_COSINE_DIGITS = 6
# Avoids division by zero: a zero vector is equally near to all answers.
_NO_LENGTH = 1e-30

Ids = npt.NDArray[np.int32]


class Halves(NamedTuple):
    """The halves of D documents as rows of an encoder.

    ``rows``: int32 [2 D, S] each, all first halves before all second ones, by the encoder's input
    names; ``own_tokens`` is 1 for tokens of the text. Without documents there are no rows.
    """

    document_ids: list[str]
    rows: dict[str, Ids]


def open_halves(chosen: EvaluationSet) -> Halves:
    """Cut at most MAX_DOCUMENTS documents of a set in two."""
    numbers = hashed_order(np.array([int(key, 16) for key in chosen.document_ids], np.uint64))
    places = _first_rows(chosen.documents, numbers[:MAX_DOCUMENTS])
    texts: dict[int, list[Ids]] = {}
    for begin in range(0, len(places), _ROWS_AT_ONCE):
        some = places[begin : begin + _ROWS_AT_ONCE]
        serialized = tf.constant(chosen.reader.read(chosen.rows[some]))
        parsed = examples.parse(serialized, chosen.reader.row_format)
        rows = own_tokens({name: value.numpy() for name, value in parsed.items()})
        for place, tokens in zip(some, rows, strict=True):
            texts.setdefault(int(chosen.documents[place]), []).append(tokens)
    whole = {number: np.concatenate(parts) for number, parts in sorted(texts.items())}
    whole = {number: text for number, text in whole.items() if len(text) >= LEAST_TOKENS}
    first_row = chosen.reader.read(chosen.rows[:1])
    frame = _frame(first_row, chosen.reader.row_format)
    return Halves(
        [chosen.document_ids[number] for number in whole],
        halved(list(whole.values()), frame, chosen.reader.row_format.max_seq_length),
    )


def _first_rows(
    documents: npt.NDArray[np.int64], numbers: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return the indexes of the first rows of some documents, ascending.

    :param documents: document of each row, [N].
    :param numbers: the wanted documents.
    """
    order = np.argsort(documents, kind="stable")
    begins = np.searchsorted(documents[order], documents[order])
    is_first = np.arange(len(order)) - begins < _ROWS_OF_A_DOCUMENT
    places = order[is_first]
    return np.sort(places[np.isin(documents[places], numbers)])


def own_tokens(rows: Mapping[str, npt.NDArray[Any]]) -> Iterator[Ids]:
    """Yield the unmasked tokens of each row's own document, without [CLS] and [SEP].

    :param rows: R records, as :func:`training.input.examples.parse` returns them.
    """
    ids = examples.unmasked_ids(rows)
    lengths = rows["input_mask"].sum(axis=1)
    is_own = np.arange(ids.shape[1]) < lengths[:, None]
    for end in (ids[:, 0], ids[np.arange(len(ids)), lengths - 1]):
        is_own &= ids != end[:, None]
    if "next_sentence_labels" in rows:
        # 1: the second segment belongs to another document.
        is_own &= (rows["segment_ids"] == 0) | (rows["next_sentence_labels"] == 0)
    return (tokens[own] for tokens, own in zip(ids, is_own, strict=True))


def _frame(serialized: list[bytes], row_format: RowFormat) -> tuple[int, int]:
    """Return [CLS] and [SEP], which every row begins and ends with."""
    parsed = examples.parse(tf.constant(serialized), row_format)
    rows = {name: value.numpy() for name, value in parsed.items()}
    length = int(rows["input_mask"][0].sum())
    ids = examples.unmasked_ids(rows)[0]
    return int(ids[0]), int(ids[length - 1])


def halved(texts: list[Ids], frame: tuple[int, int], width: int) -> dict[str, Ids]:
    """Return the halves of D texts as rows, see :class:`Halves`.

    :param texts: tokens of each, 2 to 2 * (width - 2).
    :param frame: ids of [CLS] and [SEP].
    """
    halves = [text[: len(text) // 2] for text in texts]
    halves += [text[len(text) // 2 :] for text in texts]
    ids, own = (np.zeros((len(halves), width), np.int32) for _ in range(2))
    for row, half in enumerate(halves):
        ids[row, : len(half) + 2] = [frame[0], *half, frame[1]]
        own[row, 1 : len(half) + 1] = 1
    lengths = own.sum(axis=1, keepdims=True) + 2
    return {
        "input_word_ids": ids,
        "input_mask": (np.arange(width) < lengths).astype(np.int32),
        "input_type_ids": np.zeros_like(ids),
        _OWN_TOKENS: own,
    }


def make_embed(
    encoder: tf_keras.Model, strategy: tf.distribute.Strategy, batch_size: int
) -> Forward:
    """Return a function from ``Halves.rows`` to their tokens' mean states, float32 [N, H]."""
    return make_forward(lambda batch: mean_state(encoder, batch, _OWN_TOKENS), strategy, batch_size)


def score_retrieval(halves: Halves, embed: Forward) -> RetrievalScore:
    """Return the rank of each document's second half among all, by the embedding of its first."""
    if not halves.document_ids:
        return RetrievalScore(document_ids=[], ranks=[])
    first, second = np.split(embed(halves.rows), 2)
    ranks = cosine_ranks(first, second)
    return RetrievalScore(document_ids=halves.document_ids, ranks=ranks.tolist())


def cosine_ranks(
    queries: npt.NDArray[np.floating], answers: npt.NDArray[np.floating]
) -> npt.NDArray[np.float64]:
    """Return the rank of each query's own answer among all by cosine, [D]; 1 is best.

    Answers that are equally near share their ranks, so that embeddings that are all alike do not
    score well.

    :param queries: [D, H].
    :param answers: [D, H], the correct ones in the order of the queries.
    """
    cosines = np.round(_of_length_1(queries) @ _of_length_1(answers).T, _COSINE_DIGITS)
    right = np.diagonal(cosines)[:, None]
    # The correct answer ties with itself, so half a rank is subtracted again.
    return 0.5 + (cosines > right).sum(axis=1) + 0.5 * (cosines == right).sum(axis=1)


def _of_length_1(vectors: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    return vectors / np.maximum(lengths, _NO_LENGTH)
