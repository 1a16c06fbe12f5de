"""Makes rows from one or two texts inside a TensorFlow graph, like the data job does.

Rows are ``[CLS] a [SEP]`` or ``[CLS] a [SEP] b [SEP]``, or have two ``[SEP]`` between two texts.
Rows that are too long are cut as in google-research/bert's ``run_classifier.py``: token by token,
always from the longer text, or from the second one if both are equally long.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from corpus.tokens.vocabulary import CLS, PAD, SEP
from training.exporting.text_ops import TextTokenizer


class SegmentRows(NamedTuple):
    """Rows as a classifier takes them, int32 [R, S] each.

    The fields are named as the inputs of :class:`training.finetuning.model.Classifier`.
    """

    input_word_ids: tf.Tensor
    input_mask: tf.Tensor
    input_type_ids: tf.Tensor


class SegmentRowBuilder(tf.Module):
    """A function that makes a row from each text or pair of texts.

    Special tokens in a text are treated like other text.

    :param tokens: tokens of the vocabulary, in order of id.
    :param max_seq_length: maximum number of tokens of a row.
    :param separators: number of separators between two texts.
    """

    def __init__(
        self,
        tokenizer: TextTokenizer,
        tokens: Sequence[str],
        max_seq_length: int,
        *,
        separators: int = 1,
    ) -> None:
        super().__init__()
        self._tokenizer = tokenizer
        self._cls, self._sep, self._pad = (tokens.index(name) for name in (CLS, SEP, PAD))
        self._separators = separators
        self._max_seq_length = max_seq_length

    def __call__(self, text: tf.Tensor, text_pair: tf.Tensor | None = None) -> SegmentRows:
        """Return the rows of texts, padded to the longest.

        :param text: string [R].
        :param text_pair: string [R]; None: there are no second texts.
        """
        first = self._tokenizer(text)
        if text_pair is None:
            first = self._closed(first[:, : self._max_seq_length - 2])
            return self._rows(first, tf.zeros_like(first))
        second = self._tokenizer(text_pair)
        room = self._max_seq_length - 2 - self._separators
        kept = _kept_lengths(first.row_lengths(), second.row_lengths(), room)
        first, second = (
            self._closed(_first_tokens(ids, lengths, room))
            for ids, lengths in zip((first, second), kept, strict=True)
        )
        for _ in range(self._separators - 1):
            first = self._closed(first)
        types = tf.concat([tf.zeros_like(first), tf.ones_like(second)], axis=1)
        return self._rows(tf.concat([first, second], axis=1), types)

    def _closed(self, ids: tf.RaggedTensor) -> tf.RaggedTensor:
        return tf.concat([ids, tf.fill([ids.nrows(), 1], self._sep)], axis=1)

    def _rows(self, ids: tf.RaggedTensor, types: tf.RaggedTensor) -> SegmentRows:
        ids = tf.concat([tf.fill([ids.nrows(), 1], self._cls), ids], axis=1)
        types = tf.concat([tf.zeros([types.nrows(), 1], tf.int32), types], axis=1)
        words = ids.to_tensor(default_value=self._pad)
        return SegmentRows(words, tf.ones_like(ids).to_tensor(), types.to_tensor())


def _kept_lengths(first: tf.Tensor, second: tf.Tensor, room: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Return how many tokens of each text are kept, int64 [R] each, so that both fit."""
    # If both are cut they end up equally long, except that the first keeps an odd token.
    shorter = tf.minimum(first, tf.maximum(room - second, room - room // 2))
    is_too_long = first + second > room
    kept = tf.where(is_too_long, shorter, first)
    return kept, tf.where(is_too_long, room - kept, second)


def _first_tokens(ids: tf.RaggedTensor, lengths: tf.Tensor, most: int) -> tf.RaggedTensor:
    # Cut before it is made rectangular: one text may be very long.
    return tf.RaggedTensor.from_tensor(ids[:, :most].to_tensor(), lengths=lengths)
