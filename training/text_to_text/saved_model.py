"""Writes a T5 model as a text-to-text SavedModel, with tokenizer and decoding in the graph."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf
import tensorflow_text

from trained_models.text_to_text.sizes import EOS, PAD
from training.architectures.t5.text_to_text import TextToText
from training.exporting.text_ops import SentencePieceText
from training.text_to_text.decoding import decode
from training.text_to_text.rows import Tokenizer, padded

TEXT = "text"
"""Name of the one input, string [R], and of the one output, string [R]."""


class StringToString(tf.Module):
    """The module that is saved: from texts to texts.

    :param model: without dropout, as nothing here trains.
    :param vocabulary: content of the SentencePiece model.
    :param normalization: ``NFC``, ``NFKC`` or ``none``; applied first, as in fine-tuning.
    :param lengths: maximum tokens of a text and of an output, ``</s>`` included.
    """

    def __init__(
        self, model: TextToText, vocabulary: bytes, normalization: str, lengths: tuple[int, int]
    ) -> None:
        super().__init__()
        self.sizes = model.sizes
        # Not the Keras model around it, whose other functions would be saved, too.
        self.transformer = model.transformer
        self._source_length, self._target_length = lengths
        self._tokens = SentencePieceText(
            vocabulary, do_lower_case=False, normalization=normalization
        )
        self._pieces = tensorflow_text.SentencepieceTokenizer(model=vocabulary)

    def __call__(self, text: tf.Tensor, beams: int, length_penalty: float) -> tf.Tensor:
        """Return the model's output for each text, string [R].

        :param text: string [R], with its task's prefix.
        """
        ids = decode(
            self,
            self.source_ids(text),
            self._target_length,
            beams=beams,
            length_penalty=length_penalty,
        )
        return self._texts(ids)

    def source_ids(self, text: tf.Tensor) -> tf.Tensor:
        """Return the token ids of texts, int32 [R, S], padded to the longest."""
        ids = self._tokens(text)[:, : self._source_length - 1]
        return tf.concat([ids, tf.fill([ids.nrows(), 1], EOS)], axis=1).to_tensor(PAD)

    def _texts(self, ids: tf.Tensor) -> tf.Tensor:
        is_before_end = tf.cumsum(tf.cast(tf.equal(ids, EOS), tf.int32), axis=1) < 1
        # Published models have more embedding rows than pieces; ids without a piece are skipped.
        is_piece = (ids != PAD) & (ids < self._pieces.vocab_size())
        return self._pieces.detokenize(tf.ragged.boolean_mask(ids, is_before_end & is_piece))


def save(module: StringToString, folder: Path, *, beams: int, length_penalty: float) -> None:
    """Write a SavedModel with the signatures ``greedy``, the default, and ``beam_search``.

    :param beams: beams of ``beam_search``, at least 2.
    """

    def signature(count: int) -> Any:
        return tf.function(
            lambda text: {TEXT: module(text, count, length_penalty)},
            input_signature=[tf.TensorSpec([None], tf.string, TEXT)],
        )

    module.greedy, module.beam_search = signature(1), signature(beams)
    signatures = {
        "serving_default": module.greedy,
        "greedy": module.greedy,
        "beam_search": module.beam_search,
    }
    tf.saved_model.save(module, str(folder), signatures=signatures)


def write_by_library(
    model: TextToText,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    lengths: tuple[int, int],
    *,
    beams: int,
    length_penalty: float,
) -> list[str]:
    """Return a model's outputs, tokenized by SentencePiece's own library, for comparison.

    :param lengths: as for :class:`StringToString`.
    """
    source = padded(tokenizer.encode(texts), lengths[0])
    ids = tf.constant(source)
    found = decode(model, ids, lengths[1], beams=beams, length_penalty=length_penalty)
    return tokenizer.decode(found.numpy())
