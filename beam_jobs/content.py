"""A document's content: its identity, its side of the split, its sentences."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterator
from typing import NamedTuple

from beam_jobs.inputs import InputFormat
from pipeline_store.formats import Split

# A sentence ends after . ! ? with white space behind it, unless a lower-case letter follows, or
# after a full-width mark. Rows are packed from sentences, so a wrong end only moves a row's border.
_SENTENCE_END = re.compile(r"(?<=[.!?])\s(?![a-z])|(?<=[\u3002\uff01\uff1f])\s?")
# The tokenizer's memory grows with the piece it is given at once.
MAX_SENTENCE_CHARACTERS = 10_000


class Content(NamedTuple):
    """A document's sentences and the SHA-256 of its text, white space and NFC normalised."""

    sentences: list[str]
    sha256: bytes


def content_of(text: str, input_format: InputFormat) -> Content:
    """Return the content of a document.

    The hash does not depend on line breaks or on the input format, so the same text is the same
    document wherever it comes from.

    :param text: the document as it was read.
    :param input_format: in ``sentences`` a line is a sentence; elsewhere a simple rule finds them.
    """
    lines = [" ".join(line.split()) for line in text.split("\n")]
    whole = " ".join(line for line in lines if line)
    sentences = lines if input_format == "sentences" else _SENTENCE_END.split(whole)
    pieces = [piece for sentence in sentences for piece in _bounded(sentence)]
    normal = unicodedata.normalize("NFC", whole).encode()
    return Content(pieces, hashlib.sha256(normal).digest())


def split_of(content_sha256: bytes, validation_fraction: float) -> Split:
    """Return the side of the split a document is on: a function of its content alone.

    It is drawn from other bytes of the hash than :func:`mlm_records.document_key`.
    """
    draw = int.from_bytes(content_sha256[8:16], "little") / 2.0**64
    return Split.VALIDATION if draw < validation_fraction else Split.TRAIN


def _bounded(sentence: str) -> Iterator[str]:
    """Cut an endless sentence, at a space if there is one; the tokens stay the same there."""
    while len(sentence) > MAX_SENTENCE_CHARACTERS:
        space = sentence.rfind(" ", 0, MAX_SENTENCE_CHARACTERS)
        cut = space if space > 0 else MAX_SENTENCE_CHARACTERS
        yield sentence[:cut]
        sentence = sentence[cut:].lstrip()
    if sentence:
        yield sentence
