"""Text to the tokens of byte-level BPE, beside a graph: TensorFlow has no op for it."""

from __future__ import annotations

import unicodedata
from typing import Literal

import tensorflow as tf

from corpus.tokens.tokenizing import make_tokenizer
from corpus.tokens.vocabulary import Vocabulary


class BpeText:
    """The data job's tokenizer, called with tensors; in no graph.

    :param normalization: ``NFC``, ``NFKC`` or ``none``; done first, as the data job does.
    """

    def __init__(self, vocabulary: Vocabulary, *, normalization: str) -> None:
        self._tokenizer = make_tokenizer(vocabulary, do_lower_case=False)
        self._normalization = normalization

    def __call__(self, text: tf.Tensor) -> tf.RaggedTensor:
        """See :class:`training.exporting.text_ops.TextTokenizer`."""
        texts = [one.decode(errors="replace") for one in text.numpy()]
        if self._normalization != "none":
            form: Literal["NFC", "NFKC"] = "NFC" if self._normalization == "NFC" else "NFKC"
            texts = [unicodedata.normalize(form, one) for one in texts]
        ids, lengths = self._tokenizer.encode(texts)
        return tf.RaggedTensor.from_row_lengths(ids, lengths)
