"""Classifies blocks of text as English, another script, or noise; and computes keys of repeats."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from enum import IntEnum
from string import ascii_letters, ascii_lowercase, ascii_uppercase
from typing import NamedTuple

_LOWER = bytes.maketrans(ascii_uppercase.encode(), ascii_lowercase.encode())
_NOT_LETTERS = bytes(c for c in range(128) if chr(c) not in ascii_letters)
_CODE_SIGNS = b"=(){}[]<>_|\\;$#@"
# Greek to Hangul and beyond, without punctuation, arrows, box drawing and other symbols.
_OTHER_SCRIPT = re.compile(r"[\u0370-\u1dff\u3040-\ud7ff]")
_MARKUP = re.compile(
    r":[a-z:]+:`~?([^`<]+?)(?:\s*<[^`>]*>)?`|`{1,2}([^`\n]+)`{1,2}_*|\*{2}(.+?)\*{2}"
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\u200b-\u200f\ufeff\ufffd]")
_SENTENCE_END = re.compile(
    r"(?<=[.!?])\s+(?=[\"'(\[]?[A-Z0-9\u0370-\u1fff])|(?<=[\u3002\uff01\uff1f])\s*"
)
_MIN_CHARACTERS = 20
_MAX_NOISE_CHARACTERS = 4000
# Text with fewer letters than this may repeat, such as "Optional." or "else:".
_MIN_LETTERS_OF_KEY = 16


class Part(IntEnum):
    """The parts of the corpus."""

    ENGLISH = 0
    OTHER_SCRIPT = 1
    NOISY = 2


class Block(NamedTuple):
    """A paragraph as it goes into a document.

    ``keys`` has a number for each line; equal keys are repeats, 0 is no key. ``key`` is that of
    the whole block.
    """

    part: Part
    key: int
    lines: list[str]
    keys: list[int]


def classify(
    texts: Iterable[str], *, prose_only: bool = False, noise_only: bool = False
) -> list[Block]:
    """Return the blocks that belong to a part; the others, such as French, are left out.

    Of English and other scripts the lines are sentences, of noise those of the file.
    """
    found: list[Block] = []
    for text in texts:
        part = _part(text)
        if part is None or (part is Part.NOISY and prose_only):
            continue
        if part is not Part.NOISY and noise_only:
            continue
        lines = _lines(part, text)
        if sum(map(len, lines)) >= _MIN_CHARACTERS:
            keys = [_key(letters(line)) for line in lines]
            # Marked, because a block of one line must not be taken for a repeat of its own line.
            key = _key(b"block " + (letters(text) or text.encode(errors="ignore")))
            found.append(Block(part, key, lines, keys))
    return found


def letters(text: str) -> bytes:
    """Return the letters of a text: equal for texts that differ only in case, digits, signs.

    Signs are those of ASCII.
    """
    return text.encode(errors="ignore").translate(_LOWER, _NOT_LETTERS)


def _key(text: bytes) -> int:
    if len(text) < _MIN_LETTERS_OF_KEY:
        return 0
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest())


def _part(text: str) -> Part | None:
    signs = len(text) - text.count(" ") - text.count("\n")
    if signs < _MIN_CHARACTERS // 2:
        return None
    if not text.isascii() and len(_OTHER_SCRIPT.findall(text)) > 0.3 * signs:
        return Part.OTHER_SCRIPT
    ascii_text = text.encode("ascii", "ignore")
    foreign = len(text) - len(ascii_text)
    code_signs = len(ascii_text) - len(ascii_text.translate(None, _CODE_SIGNS))
    letter_count = foreign + len(ascii_text.translate(None, _NOT_LETTERS))
    is_prose = letter_count >= 0.75 * signs and code_signs <= 0.06 * signs
    if is_prose and foreign <= 0.03 * len(text) and text.count(" ") >= 5:
        return Part.ENGLISH
    if foreign > 0.01 * len(text):
        return None  # most often another language in Latin letters
    return Part.NOISY


def _lines(part: Part, text: str) -> list[str]:
    if part is Part.NOISY:
        lines = text[:_MAX_NOISE_CHARACTERS].split("\n")
    else:
        if "`" in text or "**" in text:
            text = _MARKUP.sub(lambda found: found[1] or found[2] or found[3], text)
        lines = _SENTENCE_END.split(" ".join(text.split()))
    return [line for line in map(_clean, lines) if line]


def _clean(line: str) -> str:
    return (line if line.isprintable() else _CONTROLS.sub(" ", line)).strip()
