"""Decodes, normalizes and cleans text for use."""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import TYPE_CHECKING, Literal

import numpy as np

from corpus.text.drops import DropReason
from corpus.text.languages import LanguageFilter
from pipeline_config.data_schema import CorpusConfig

if TYPE_CHECKING:
    import numpy.typing as npt
from pipeline_config.unquoted import fault


class DocumentError(Exception):
    """A document cannot be used; the rest of the file can."""

    def __init__(self, reason: DropReason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


def decode(data: bytes) -> str:
    """Return a document's text.

    :raises DocumentError: it is no UTF-8, or has a NUL.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise DocumentError(DropReason.INVALID_UTF8, fault(error)) from None
    return refuse_nul(text)


def refuse_nul(text: str) -> str:
    """Return the text.

    :raises DocumentError: it has a NUL.
    """
    if "\0" in text:
        detail = f"after {text.index(chr(0))} characters"
        raise DocumentError(DropReason.NUL_CHARACTER, detail)
    return text


def refuse_surrogates(text: str, shown: str) -> str:
    """Return the text of a field.

    :param shown: name of the field in messages.
    :raises DocumentError: it has one half of a surrogate pair, which is no character.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        detail = f"the field {shown} has half a surrogate pair after {error.start} characters"
        raise DocumentError(DropReason.LONE_SURROGATE, detail) from None
    return text


MOST_MARKS = 30
# The marks of so few characters are put in order within milliseconds.
_FEW_CHARACTERS = 1000
_NO_MARKS_FROM = 0x20000
# In UTF-8 a byte below 128 is never part of another character.
_SPACE_BYTES = b"\t\x0b\x0c\r\x1c\x1d\x1e\x1f"
_CONTROL_BYTES = bytes([*range(9), *range(14, 28), 127])
_KEEP_LINES = bytes.maketrans(_SPACE_BYTES, b" " * len(_SPACE_BYTES))
_ONE_LINE = bytes.maketrans(_SPACE_BYTES + b"\n", b" " * (len(_SPACE_BYTES) + 1))
_RARE_SPACES = "\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
# The other control characters, the soft hyphen and the byte order mark.
_INVISIBLE = "\x80-\x84\x86-\x9f\xad\ufeff"
_RARE_SPACE = re.compile(f"[{_RARE_SPACES}]")
_INVISIBLES = re.compile(f"[{_INVISIBLE}]")
_RARE = re.compile(f"[{_RARE_SPACES}{_INVISIBLE}]")
_SPACES = re.compile("  +")


class Cleaner:
    """Cleans text by the settings of ``corpus``, and decides which documents are unwanted.

    :raises UserError: ``corpus.keep_languages`` names a language that cannot be recognized.
    """

    def __init__(self, corpus: CorpusConfig) -> None:
        self._form = corpus.unicode_normalization
        self._min_characters = corpus.min_document_characters
        self._languages = LanguageFilter(corpus.keep_languages) if corpus.keep_languages else None

    def clean(self, text: str) -> str:
        """Return a text as one line.

        :param text: without lone surrogates.
        """
        return _single_spaces(self._normalized(text, _ONE_LINE)).strip(" ")

    def clean_lines(self, text: str) -> list[str]:
        """Return the lines that are not blank; joined by spaces they are the text as one line."""
        lines = _single_spaces(self._normalized(text, _KEEP_LINES)).split("\n")
        return [stripped for line in lines if (stripped := line.strip(" "))]

    def unwanted(self, text: str) -> DropReason | None:
        """Return why a clean text is not used, or None if it is."""
        if not text:
            return DropReason.EMPTY
        if len(text) < self._min_characters:
            return DropReason.TOO_SHORT
        if self._languages is not None and not self._languages.keeps(text):
            return DropReason.OTHER_LANGUAGE
        return None

    def _normalized(self, text: str, table: bytes) -> str:
        """Return text whose only white space is spaces and what the table keeps."""
        normal = text.encode().translate(table, _CONTROL_BYTES).decode()
        if normal.isascii():
            return normal
        if _RARE.search(normal):
            normal = _INVISIBLES.sub("", _RARE_SPACE.sub(" ", normal))
        return normalize(self._form, normal)


def normalize(form: Literal["NFC", "NFKC", "none"], text: str) -> str:
    """Return text in a Unicode normal form, with at most ``MOST_MARKS`` marks on each letter.

    No writing system needs more (Unicode Standard Annex 15, "Stream-Safe Text Format"), and the
    time to put the marks of a letter in order grows with the square of their number: a letter with
    a million would take an hour.

    :param form: as ``corpus.unicode_normalization``.
    """
    if form == "none":
        return text
    if len(text) >= _FEW_CHARACTERS:
        text = _fewer_marks(text)
    return unicodedata.normalize(form, text)


def _fewer_marks(text: str) -> str:
    codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    is_mark = _marks().take(codes, mode="clip")
    if np.count_nonzero(is_mark) <= MOST_MARKS:
        return text
    places = np.arange(len(codes))
    before = np.maximum.accumulate(np.where(is_mark, -1, places))  # the letter that they are on
    kept = codes[places - before <= MOST_MARKS]
    return text if len(kept) == len(codes) else kept.tobytes().decode("utf-32-le")


@cache
def _marks() -> npt.NDArray[np.bool_]:
    """Return for each code point whether it is a mark that normal forms put in order.

    No code point after the last one is.
    """
    points = map(chr, range(_NO_MARKS_FROM + 1))
    return np.fromiter((unicodedata.combining(point) > 0 for point in points), bool)


def _single_spaces(text: str) -> str:
    # Checking whether there are any is faster than replacing none.
    return _SPACES.sub(" ", text) if "  " in text else text
