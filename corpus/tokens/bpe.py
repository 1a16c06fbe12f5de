"""Byte-level BPE as in RoBERTa, by Hugging Face's tokenizers: trains vocabularies, tokenizes text.

GPT-2's expression cuts text into words, and no merge crosses the border of a word. The borders are
found here in whole arrays; the library tokenizes each text between two of them, once. The
expression (encoder.py of GPT-2): ``'s|'t|'re|'ve|'m|'ll|'d``, ``| ?\\p{L}+| ?\\p{N}+``,
``| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+``.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer

from corpus.tokens.bpe_model import CHARACTERS, ROBERTA_NAMES, bpe_vocabulary, ids_of, merges_of
from corpus.tokens.vocabulary import MASK, Vocabulary
from corpus.tokens.word_ids import WordTokens
from corpus.tokens.word_split import KEY_BYTES, Words

# Classes of bytes; all bytes of a character have that of the character.
_SPACE, _LETTER, _NUMBER, _OTHER, _APOSTROPHE, _BETWEEN, _UNKNOWN = range(7)
# Bytes that no text has in UTF-8: the separator of pieces, and the substitute for a NUL, which the
# table of words would take for the end of a word.
_SEPARATOR, _NUL = 0xFE, 0xFF
_LEADS = range(0xC0, 0xF8)
_CHARACTERS = 0x110000


def bpe_pipeline(vocabulary: Vocabulary) -> Tokenizer:
    """Return the library's whole tokenizer, whose results :class:`BpeRules` must equal."""
    tokenizer = Tokenizer(BPE(ids_of(vocabulary), merges_of(vocabulary)))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.encode_special_tokens = True
    return tokenizer


class BpeRules:
    """Cuts text before white space, and between letters, numbers and other characters.

    The expression has a border there in any context, except between an apostrophe and a letter,
    where it depends on the text before. All white space before a word stays with it.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        pipeline = bpe_pipeline(vocabulary)
        self._encode = pipeline.encode
        self._split = pipeline.pre_tokenizer.pre_tokenize_str
        # Characters are classified when they first occur.
        self._classes = np.full(_CHARACTERS, _UNKNOWN, np.uint8)
        ascii_classes = [self._class_of(chr(code)) for code in range(128)]
        others = [_UNKNOWN] * 128
        others[_SEPARATOR - 128], others[_NUL - 128] = _BETWEEN, ascii_classes[0]
        self._byte_classes = bytes([*ascii_classes, *others])
        self._borders = _borders()

    def split(self, pieces: Sequence[str]) -> Words:
        """Return the words of pieces of text, with the white space before them."""
        separator = bytes([_SEPARATOR])
        text = separator.join([b"", *[piece.encode() for piece in pieces], b""])
        if b"\0" in text:
            text = text.replace(b"\0", bytes([_NUL]))
        classes = np.frombuffer(text.translate(self._byte_classes), np.uint8)
        if len(text) > sum(map(len, pieces)) + len(pieces) + 1:
            classes = self._classified(text, classes.copy())
        pairs = classes[:-1] << 3
        pairs |= classes[1:]
        bounds = np.flatnonzero(self._borders.take(pairs)) + 1
        starts, lengths = bounds[:-1], np.diff(bounds)
        is_word = classes.take(starts) != _BETWEEN
        starts, lengths = starts[is_word], lengths[is_word]
        ends = np.flatnonzero(classes == _BETWEEN)[1:]
        return Words(text + bytes(KEY_BYTES), starts, lengths, np.searchsorted(starts, ends))

    def tokenize(self, word: bytes) -> WordTokens:
        """Return the tokens of the text between two borders."""
        text = word.replace(bytes([_NUL]), b"\0").decode()
        ids = self._encode(text, add_special_tokens=False).ids
        letters = text.removeprefix(" ")
        return WordTokens(ids, letters if len(ids) > 1 and letters.isalpha() else "")

    def _classified(self, text: bytes, classes: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        """Fill in the classes of characters that are not ASCII."""
        values = np.frombuffer(text, np.uint8)
        leads = np.flatnonzero((values >= _LEADS.start) & (values < _LEADS.stop))
        first = values[leads].astype(np.int32)
        sizes = 2 + (first >= 0xE0) + (first >= 0xF0)
        codes = first & (0x7F >> sizes)
        for number in range(1, 4):
            longer = sizes > number
            follows = values[leads[longer] + number]
            codes[longer] = codes[longer] << 6 | follows & 0x3F
        found = self._classes.take(codes)
        if len(new := np.unique(codes[found == _UNKNOWN])):
            self._classes[new] = [self._class_of(chr(code)) for code in new.tolist()]
            found = self._classes.take(codes)
        for number in range(4):
            longer = sizes > number
            classes[leads[longer] + number] = found[longer]
        return classes

    def _class_of(self, character: str) -> int:
        """Return a character's class, by the characters that the library joins it with."""
        if character == "'":
            return _APOSTROPHE
        for kind, neighbor in {_LETTER: "a", _NUMBER: "1", _OTHER: "!"}.items():
            if len(self._split(neighbor + character)) == 1:
                return kind
        return _SPACE


def _borders() -> npt.NDArray[np.bool_]:
    """Return whether two classes have a border, at 8 times the first plus the second."""
    found = np.zeros((8, 8), np.bool_)
    for before in range(_UNKNOWN):
        for here in range(_UNKNOWN):
            found[before, here] = _is_border(before, here)
    return found.ravel()


def _is_border(before: int, here: int) -> bool:
    if _BETWEEN in (before, here):
        return True
    if before in (_SPACE, here):
        return False
    if before == _APOSTROPHE:
        return here not in (_LETTER, _OTHER)
    return (before, here) != (_OTHER, _APOSTROPHE)


logger = logging.getLogger(__name__)

_MIN_PAIR_COUNT = 2


def train_bpe(pieces: Iterable[str], *, size: int) -> Vocabulary:
    """Return a vocabulary of at most ``size`` tokens; equal text gives an equal one.

    Special tokens have RoBERTa's ids: ``<mask>`` is the last token, the others are the first.
    The 256 bytes follow, so that every text has tokens, and then the merged tokens.
    """
    pipeline = Tokenizer(BPE())
    pipeline.pre_tokenizer = ByteLevel(add_prefix_space=False)
    first = [token for token in ROBERTA_NAMES if token != MASK]
    trainer = BpeTrainer(
        vocab_size=size - 1,
        min_frequency=_MIN_PAIR_COUNT,
        show_progress=False,
        special_tokens=first,
        # All bytes, in a fixed order: ties between merges go by number.
        initial_alphabet=list(CHARACTERS),
    )
    pipeline.train_from_iterator(pieces, trainer)
    logger.info("%d tokens", pipeline.get_vocab_size() + 1)
    model = json.loads(pipeline.to_str())["model"]
    ids = model["vocab"]
    tokens = [*sorted(ids, key=ids.__getitem__), MASK]
    return bpe_vocabulary(tokens, [(first, second) for first, second in model["merges"]])
