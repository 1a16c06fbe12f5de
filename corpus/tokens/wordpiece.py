"""Tokenizes text with WordPiece as BERT does: by Hugging Face's tokenizers, word by word.

Cleaning, splitting and WordPiece are the library's. The code here only finds the borders of words,
so that no word has to be tokenized twice; and even those are found by calling the library.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from corpus.tokens.vocabulary import UNK, Vocabulary
from corpus.tokens.word_ids import WordTokens
from corpus.tokens.word_split import (
    ALONE,
    INSIDE_WORD,
    SEPARATOR,
    ByteRules,
    Words,
    split_words,
)

# Words longer than this are [UNK], as in Hugging Face's BERT tokenizer.
_MAX_WORD_CHARACTERS = 100
# Blocks that are searched for characters that are always words of their own, or part of none:
# punctuation and spaces of many scripts. Such characters elsewhere only cost time.
_BLOCKS = [
    range(0xA0, 0xC0),
    range(0x370, 0x700),
    range(0x900, 0x980),
    range(0xE00, 0xE80),
    range(0x2000, 0x2070),
    range(0x3000, 0x3100),
    range(0xFE30, 0xFE70),
    range(0xFF00, 0xFF70),
]
# The library puts spaces around each of these by itself.
_IDEOGRAPHS = [range(0x3400, 0x4DC0), range(0x4E00, 0xA000)]


def bert_pipeline(do_lower_case: bool, model: WordPiece) -> Tokenizer:
    """Return BERT's text cleaning and word splitting around a WordPiece model."""
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = BertNormalizer(lowercase=do_lower_case)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    tokenizer.encode_special_tokens = True
    return tokenizer


def wordpiece_pipeline(vocabulary: Vocabulary, do_lower_case: bool) -> Tokenizer:
    """Return the library's whole tokenizer, whose results :class:`WordPieceRules` must equal."""
    model = WordPiece(vocabulary.ids, unk_token=UNK, max_input_chars_per_word=_MAX_WORD_CHARACTERS)
    return bert_pipeline(do_lower_case, model)


class WordPieceRules:
    """Cuts text between ASCII words and punctuation characters, at ASCII spaces, and nowhere else.

    Cleaning treats each character by itself, except for the order of combining marks, none of which
    belongs to an ASCII character; so it never reaches across such a border.
    """

    def __init__(self, vocabulary: Vocabulary, do_lower_case: bool) -> None:
        pipeline = wordpiece_pipeline(vocabulary, do_lower_case)
        self._normalize = pipeline.normalizer.normalize_str
        self._split = pipeline.pre_tokenizer.pre_tokenize_str
        self._model = pipeline.model
        self._unknown = vocabulary.ids[UNK]
        self._bytes = self._byte_rules()
        self._borders = np.zeros(0x10000, np.bool_)
        for code in chain.from_iterable(_BLOCKS):
            self._borders[code] = self._is_border(code)
        for block in _IDEOGRAPHS:
            self._borders[block.start : block.stop] = True

    def split(self, pieces: Sequence[str]) -> Words:
        """Return the words of pieces of text, without the spaces between them."""
        pieces = [piece.replace("\n", " ") if "\n" in piece else piece for piece in pieces]
        others = [number for number, piece in enumerate(pieces) if not piece.isascii()]
        if others:
            text = self._prepare("\n".join([pieces[number] for number in others]))
            for number, piece in zip(others, text.split("\n"), strict=True):
                pieces[number] = piece
        return split_words([piece.encode() for piece in pieces], self._bytes)

    def _prepare(self, text: str) -> str:
        """Put spaces around characters that are words of their own anyway."""
        codes = np.frombuffer(text.encode("utf-32-le"), "<u4")
        # The last code of the table is no character.
        alone = np.flatnonzero(self._borders.take(codes, mode="clip"))
        if not len(alone):
            return text
        around = np.sort(np.concatenate([alone, alone + 1]))
        return np.insert(codes, around, ord(" ")).tobytes().decode("utf-32-le")

    def tokenize(self, spelling: bytes) -> WordTokens:
        """Return the pieces of the text between two borders, usually one word."""
        word = spelling.decode()
        # ASCII is clean and split already.
        if word.isascii():
            ids = [token.id for token in self._model.tokenize(word)]
            whole = len(ids) == 1 and ids[0] != self._unknown
            return WordTokens(ids, "" if whole else word)
        ids = []
        new = []
        for part in self._words(word):
            pieces = [token.id for token in self._model.tokenize(part)]
            ids += pieces
            if len(pieces) > 1 or pieces == [self._unknown]:
                new.append(part)
        return WordTokens(ids, " ".join(new))

    def _words(self, text: str) -> list[str]:
        return [word for word, _ in self._split(self._normalize(text))]

    def _is_border(self, code: int) -> bool:
        character = chr(code)
        return self._words(f"a{character}a") == self._words(f"a {character} a")

    def _byte_rules(self) -> ByteRules:
        """Return the rules that follow from what the library does with each ASCII character."""
        cleaned = [self._normalize(chr(code)) for code in range(128)]
        replace = [ord(character or " ") for character in cleaned] + [*range(128, 256)]
        delete = [code for code, character in enumerate(cleaned) if not character]
        classes = [INSIDE_WORD] * 256
        for code in range(128):
            if chr(code).isspace():
                classes[code] = SEPARATOR
            elif self._is_border(code):
                classes[code] = ALONE
        # The tokenizer itself puts newlines between pieces.
        replace[ord("\n")] = ord("\n")
        return ByteRules(bytes(replace), bytes(delete), bytes(classes))
