"""How byte-level BPE writes bytes: each as a character that can be seen (GPT-2, encoder.py).

Bytes that are printable characters of Latin-1 stand for themselves; the others, in order, are the
characters from U+0100 on. So the space is ``Ġ`` and the newline ``Ċ``.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

_PRINTABLE = frozenset(chain(range(0x21, 0x7F), range(0xA1, 0xAD), range(0xAE, 0x100)))


def _characters() -> tuple[str, ...]:
    others = iter(range(0x100, 0x200))
    return tuple(chr(byte if byte in _PRINTABLE else next(others)) for byte in range(256))


CHARACTERS = _characters()
"""The character of each byte."""
_BYTES = {character: byte for byte, character in enumerate(CHARACTERS)}


def text_of(tokens: Iterable[str]) -> str:
    """Return the text of tokens; what is no whole character of UTF-8 is U+FFFD.

    :raises KeyError: a token is none of byte-level BPE, such as a special one.
    """
    return bytes([_BYTES[sign] for sign in "".join(tokens)]).decode(errors="replace")
