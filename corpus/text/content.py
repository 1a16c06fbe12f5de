"""A document's content: its identity, its side of the split, its sentences."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import sentencex

from corpus.text.cleaning import Cleaner
from corpus.text.drops import DropReason
from corpus.text.inputs import InputFormat
from corpus.text.record_documents import RowTokens
from pipeline_config.data_schema import CorpusConfig
from pipeline_store.formats import Split

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

# The tokenizer's memory grows with the piece it is given at once.
MAX_SENTENCE_CHARACTERS = 10_000
_WINDOW_CHARACTERS = 1 << 13
_LONG_SENTENCE = 500
# It begins with a character class, which is searched for many times faster than a lookbehind.
_PLAIN_SENTENCE_END = re.compile(r"[.!?\u3002\uff01\uff1f](?:(?<=[.!?])\s(?![a-z])|(?<![.!?])\s?)")


class Content(NamedTuple):
    """A document as it is used: clean text, cut into pieces, and its identity.

    ``sentences`` are at most ``MAX_SENTENCE_CHARACTERS`` long: sentences if they are asked for or
    given, else the text cut at spaces. ``sha256`` is of the text, however it is cut. ``ordinal`` is
    its number among all documents read from the file, from 0. ``group`` is the group of its record,
    if it has one. ``tokens``: for a document that was read as tokens; its sentences then have one
    word in place of each.
    """

    sentences: list[str]
    sha256: bytes
    ordinal: int
    group: str | None = None
    tokens: RowTokens | None = None


class ContentMaker:
    """Turns documents as they were read into content.

    The hash does not depend on line breaks, input format or sentences, so the same text is the same
    document wherever it comes from.

    :param split_sentences: find the sentences of running text (in ``sentences`` a line is one).
    :raises UserError: ``corpus.keep_languages`` names a language that cannot be recognized.
    """

    def __init__(
        self, corpus: CorpusConfig, input_format: InputFormat, *, split_sentences: bool = False
    ) -> None:
        self._cleaner = Cleaner(corpus)
        self._lines_are_sentences = input_format == "sentences"
        self._split_sentences = split_sentences
        self._language = corpus.language

    def content_of(
        self, text: str, ordinal: int = 0, group: str | None = None
    ) -> Content | DropReason:
        """Return a document's content, or why it is not wanted.

        :param text: as it was read, without lone surrogates.
        """
        if self._lines_are_sentences:
            sentences = self._cleaner.clean_lines(text)
            whole = " ".join(sentences)
        else:
            whole = self._cleaner.clean(text)
            sentences = [whole]
        unwanted = self._cleaner.unwanted(whole)
        if unwanted is not None:
            return unwanted
        if self._split_sentences and not self._lines_are_sentences:
            sentences = _sentences(whole, self._language)
        if max(map(len, sentences), default=0) > MAX_SENTENCE_CHARACTERS:
            sentences = [piece for sentence in sentences for piece in _bounded(sentence)]
        return Content(sentences, hashlib.sha256(whole.encode()).digest(), ordinal, group)


def split_of(content_sha256: bytes, validation_fraction: float) -> Split:
    """Return the side of the split a document is on: a function of its content alone.

    It is drawn from other bytes of the hash than :func:`corpus.mlm_records.document_key`.
    """
    draw = int.from_bytes(content_sha256[8:16], "little")
    return Split.VALIDATION if is_held_out(draw, validation_fraction) else Split.TRAIN


@overload
def is_held_out(draw: int, validation_fraction: float) -> bool: ...
@overload
def is_held_out(
    draw: npt.NDArray[np.uint64], validation_fraction: float
) -> npt.NDArray[np.bool_]: ...
def is_held_out(draw: Any, validation_fraction: float) -> Any:
    """Return whether documents are on the validation side.

    :param draw: bytes 8 to 16 of the hash of one document's content, or of many, as a
        little-endian integer.
    """
    return draw / 2.0**64 < validation_fraction


def _sentences(text: str, language: str) -> list[str]:
    """Return the sentences. The library has related or plain rules for languages it does not know.

    It is given the text window by window: a quote that is not closed misleads it until the end.
    """
    sentences: list[str] = []
    begin = 0
    while begin < len(text):
        end = _cut(text, begin, _WINDOW_CHARACTERS)
        found = sentencex.segment(language, text[begin:end])
        if end < len(text) and len(found) > 1:
            end -= len(found.pop())  # the sentence goes on in the next window
        begin = end
        for sentence in found:
            # The library ends no sentence within quotes or brackets, and some are never closed.
            if len(sentence) > _LONG_SENTENCE:
                sentences += _plain_sentences(sentence)
            else:
                sentences.append(sentence.strip(" "))
    return [sentence for sentence in sentences if sentence]


def _plain_sentences(text: str) -> list[str]:
    ends = [match.end() for match in _PLAIN_SENTENCE_END.finditer(text)]
    return [text[begin:end].strip(" ") for begin, end in pairwise([0, *ends, len(text)])]


def _bounded(sentence: str) -> Iterator[str]:
    """Cut an endless sentence, at a space if there is one; the tokens stay the same there."""
    begin = 0
    while begin < len(sentence):
        end = _cut(sentence, begin, MAX_SENTENCE_CHARACTERS)
        yield sentence[begin:end].strip(" ")
        begin = end


def _cut(text: str, begin: int, most: int) -> int:
    """Return where to cut a text for a piece of at most so many characters, space included."""
    if len(text) - begin <= most:
        return len(text)
    space = text.rfind(" ", begin + 1, begin + most)
    return space + 1 if space > 0 else begin + most
