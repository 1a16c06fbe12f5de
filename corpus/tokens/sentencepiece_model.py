"""Reads the vocabulary of a SentencePiece ``.model``, without the library.

The file is a protocol buffer (``ModelProto`` of sentencepiece_model.proto). The library's Python
classes for it need a newer protobuf than Beam has, and checks before a run should not need the
library at all; so the few fields of interest are read here.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from corpus.tokens.vocabulary import CLS, PAD, SEP, SPECIAL_TOKENS, UNK, Vocabulary, sentinel
from pipeline_config.row_shapes import SENTINELS

SPACE = "\u2581"
"""The character that stands for a space before a word in a piece."""

# Wire types: how the value of a field is written.
_VARINT, _BYTES = 0, 2
_FIXED_SIZES = {1: 8, 5: 4}
# Field of ModelProto, fields of its pieces.
_PIECES = 1
_PIECE_TEXT, _PIECE_TYPE = 1, 3


class PieceType(IntEnum):
    """``ModelProto.SentencePiece.Type``."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


class Piece(NamedTuple):
    """A piece of the vocabulary."""

    text: str
    type: PieceType


def read_pieces(data: bytes) -> list[Piece]:
    """Return the pieces of a ``.model`` in order of id.

    :raises ValueError: it is no such file.
    """
    try:
        fields = list(_fields(data))
        pieces = [_piece(field.data) for field in fields if field.number == _PIECES]
    except (IndexError, KeyError, ValueError):
        raise ValueError("is not a SentencePiece model") from None
    if not pieces:
        raise ValueError("is not a SentencePiece model, as it has no pieces")
    return pieces


def parse_sentencepiece(data: bytes) -> Vocabulary:
    """Return the vocabulary of a ``.model``; padding and unknown get BERT's names, whatever theirs.

    The vocabulary of a T5, which ends texts with token 1, gets its sentinels after its pieces, the
    last one first, unless it has them, as in the library transformers. ``</s>`` is its ``[SEP]``.

    :raises ValueError: it is no model, or a special token in a text would not be text.
    """
    pieces = read_pieces(data)
    tokens = [_token(piece) for piece in pieces]
    not_control = [
        token
        for token, piece in zip(tokens, pieces, strict=True)
        if token in SPECIAL_TOKENS and piece.type not in (PieceType.CONTROL, PieceType.UNKNOWN)
    ]
    if not_control:
        raise ValueError(
            f"has {', '.join(not_control)} as ordinary or user-defined symbols, so that these "
            "words in a text would become special tokens; train it with them in control_symbols"
        )
    is_t5 = pieces[:_T5_PIECES] == list(_OF_T5) and CLS not in tokens
    if not is_t5:
        return Vocabulary(tuple(tokens), "sentencepiece", data)
    tokens[tokens.index(_END)] = SEP
    if sentinel(0) not in tokens:
        tokens += map(sentinel, reversed(range(SENTINELS)))
    return Vocabulary(tuple(tokens), "t5", data)


def _token(piece: Piece) -> str:
    if piece.type is PieceType.UNKNOWN:
        return UNK
    return PAD if piece == ("<pad>", PieceType.CONTROL) else piece.text


def _piece(data: bytes) -> Piece:
    fields = {field.number: field for field in _fields(data)}
    kind = fields[_PIECE_TYPE].value if _PIECE_TYPE in fields else PieceType.NORMAL
    return Piece(fields[_PIECE_TEXT].data.decode(), PieceType(kind))


_END = "</s>"
# The first pieces of the vocabulary of every T5.
_OF_T5 = (Piece("<pad>", PieceType.CONTROL), Piece(_END, PieceType.CONTROL))
_T5_PIECES = len(_OF_T5)


class _Field(NamedTuple):
    number: int
    value: int
    data: bytes


def _fields(message: bytes) -> Iterator[_Field]:
    """Yield the fields of a protocol buffer message; each has a value or data, not both."""
    place = 0
    while place < len(message):
        tag, place = _varint(message, place)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == _VARINT:
            value, place = _varint(message, place)
            yield _Field(number, value, b"")
            continue
        if wire_type == _BYTES:
            size, place = _varint(message, place)
        elif wire_type in _FIXED_SIZES:
            size = _FIXED_SIZES[wire_type]
        else:
            raise ValueError(f"wire type {wire_type}")
        if place + size > len(message):
            raise ValueError("cut short")
        yield _Field(number, 0, message[place : place + size])
        place += size


def _varint(message: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[place]
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return value, place
