"""Tokenizes text inside a TensorFlow graph like the data job does.

None of TensorFlow Text's BERT tokenizers does that: they fold characters (``ß`` becomes ``ss``),
insert spaces where BERT drops characters, and count a word's length in bytes. So the steps of
Hugging Face's tokenizer, which the data job uses, are built here from TensorFlow's ops. The
remaining differences are in ``docs/reference/formats.md``; tests cover every Unicode character.
"""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

import tensorflow as tf
import tensorflow_text

from corpus.tokens.vocabulary import CLS, MASK, SEP, UNK

# Longer words are unknown, as in Hugging Face's tokenizer and thus in the data job.
MAX_WORD_CHARACTERS = 100
_MAX_BYTES_PER_CHARACTER = 4

# RE2 regular expressions. Characters that are both white space and control are removed first.
_CONTROL = r"[^\P{C}\t\n\r]|\x{FFFD}"
_SPACE = r"[\t\n\r\p{Z}]"
# Hugging Face's, with its gap: normalizers/bert.rs of https://github.com/huggingface/tokenizers
_IDEOGRAPH = (
    r"([\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{20000}-\x{2A6DF}\x{2A700}-\x{2B73F}"
    r"\x{2B740}-\x{2B81F}\x{2B920}-\x{2CEAF}\x{F900}-\x{FAFF}\x{2F800}-\x{2FA1F}])"
)
_ACCENT = r"\p{Mn}"
_SIGMA = ("\N{GREEK CAPITAL LETTER SIGMA}", "\N{GREEK SMALL LETTER SIGMA}")
_PUNCTUATION = r"[!-/:-@\[-`{-~\p{P}]"


class TextTokenizer(Protocol):
    """A function from text to ids; special tokens in the text are treated like other text."""

    def __call__(self, text: tf.Tensor) -> tf.RaggedTensor:
        """Return the ids, int32 [N, (T)], of strings [N]."""
        ...


class WordPieceText(tf.Module):
    """BERT's text cleaning and WordPiece.

    :param tokens: tokens of the vocabulary, in order of id.
    :param do_lower_case: lower-case, and remove accents.
    :param normalization: ``NFC``, ``NFKC`` or ``none``; applied first, as in the data job.
    """

    def __init__(self, tokens: Sequence[str], *, do_lower_case: bool, normalization: str) -> None:
        super().__init__()
        self._do_lower_case = do_lower_case
        self._normalization = normalization
        ids = tf.range(len(tokens), dtype=tf.int64)
        entries = tf.lookup.KeyValueTensorInitializer(tf.constant(tokens), ids)
        self._table = tf.lookup.StaticHashTable(entries, default_value=tokens.index(UNK))
        self._pieces = tensorflow_text.WordpieceTokenizer(
            self._table,
            max_bytes_per_word=MAX_WORD_CHARACTERS * _MAX_BYTES_PER_CHARACTER,
            token_out_type=tf.int32,
        )

    def __call__(self, text: tf.Tensor) -> tf.RaggedTensor:
        """See :class:`TextTokenizer`."""
        words = self.words(text)
        lengths = tf.strings.length(words.flat_values, unit="UTF8_CHAR")
        known = tf.where(lengths > MAX_WORD_CHARACTERS, UNK, words.flat_values)
        return self._pieces.tokenize(words.with_flat_values(known)).merge_dims(1, 2)

    def words(self, text: tf.Tensor) -> tf.RaggedTensor:
        """Return the words to look up in the vocabulary, string [N, (W)], of strings [N]."""
        return tensorflow_text.regex_split(
            self._clean(text), f" +|{_PUNCTUATION}", keep_delim_regex_pattern=_PUNCTUATION
        )

    def _clean(self, text: tf.Tensor) -> tf.Tensor:
        text = _normalize(_valid(text), self._normalization)
        text = tf.strings.regex_replace(text, _CONTROL, "")
        text = tf.strings.regex_replace(text, _SPACE, " ")
        text = tf.strings.regex_replace(text, _IDEOGRAPH, r" \1 ")
        if not self._do_lower_case:
            return text
        text = tensorflow_text.normalize_utf8(text, "NFD")
        text = tf.strings.regex_replace(text, _ACCENT, "")
        # The lower-casing op would turn it into another letter at the end of a word.
        text = tf.strings.regex_replace(text, *_SIGMA)
        return tf.strings.lower(text, encoding="utf-8")


class SentencePieceText(tf.Module):
    """A SentencePiece model, preceded by the data job's lower-casing.

    :param model: content of the ``.model`` file.
    :param do_lower_case: lower-case, and remove accents, as ALBERT does.
    :param normalization: ``NFC``, ``NFKC`` or ``none``; applied first, as in the data job.
    """

    def __init__(self, model: bytes, *, do_lower_case: bool, normalization: str) -> None:
        super().__init__()
        self._do_lower_case = do_lower_case
        self._normalization = normalization
        # Not in a graph function: AutoGraph would take seconds for it in every trace.
        self._combining = _combining_characters()
        self._pieces = tensorflow_text.SentencepieceTokenizer(model=model)

    def __call__(self, text: tf.Tensor) -> tf.RaggedTensor:
        """See :class:`TextTokenizer`."""
        # Some ops treat U+0000 as the end of the text.
        text = tf.strings.regex_replace(_valid(text), r"\x{0}", "")
        text = _normalize(text, self._normalization)
        if self._do_lower_case:
            text = tensorflow_text.normalize_utf8(text, "NFKD")
            text = tf.strings.regex_replace(text, self._combining, "")
            text = tf.strings.lower(text, encoding="utf-8")
        return self._pieces.tokenize(text)


def _valid(text: tf.Tensor) -> tf.Tensor:
    """Return text with invalid bytes replaced by U+FFFD, which all ops accept."""
    return tf.strings.unicode_transcode(text, "UTF-8", "UTF-8")


def _normalize(text: tf.Tensor, form: str) -> tf.Tensor:
    return text if form == "none" else tensorflow_text.normalize_utf8(text, form)


def _combining_characters() -> str:
    """Return a regular expression for the combining characters of ``unicodedata``."""
    codes = (code for code in range(sys.maxunicode + 1) if unicodedata.combining(chr(code)))
    parts = (rf"\x{{{first:X}}}-\x{{{last:X}}}" for first, last in _ranges(codes))
    return f"[{''.join(parts)}]"


def _ranges(codes: Iterable[int]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for code in codes:
        if found and found[-1][1] == code - 1:
            found[-1] = (found[-1][0], code)
        else:
            found.append((code, code))
    return found


class Rows(NamedTuple):
    """Model inputs.

    :param ids: int32 [R, S], padded with 0.
    :param mask: int32 [R, S], 1 for tokens and 0 for padding.
    """

    ids: tf.Tensor
    mask: tf.Tensor


class RowBuilder(tf.Module):
    """A function that makes a row from each text: ``[CLS]``, its tokens, ``[SEP]``.

    :param tokenizer: tokenizer for the text between two ``[MASK]``.
    :param tokens: tokens of the vocabulary, in order of id.
    :param max_seq_length: longer rows are truncated.
    """

    def __init__(
        self, tokenizer: TextTokenizer, tokens: Sequence[str], max_seq_length: int
    ) -> None:
        super().__init__()
        self._tokenizer = tokenizer
        self._cls, self._sep, self.mask_id = (tokens.index(name) for name in (CLS, SEP, MASK))
        self._max_seq_length = max_seq_length

    def __call__(self, text: tf.Tensor) -> Rows:
        """Return the rows of texts, padded to the longest.

        :param text: string [R]; ``[MASK]`` in it becomes that token.
        """
        parts = tf.strings.split(text, MASK)
        ids = parts.with_flat_values(self._tokenizer(parts.flat_values))
        # Each part except a text's last is followed by the mask that it was split at.
        masks = tf.expand_dims(tf.ones_like(parts, tf.int32) * self.mask_id, 2)
        ids = tf.concat([ids, masks], axis=2).merge_dims(1, 2)[:, :-1]
        ids = ids[:, : self._max_seq_length - 2]
        first, last = (tf.fill([ids.nrows(), 1], token) for token in (self._cls, self._sep))
        ids = tf.concat([first, ids, last], axis=1)
        return Rows(ids.to_tensor(), tf.ones_like(ids).to_tensor())
