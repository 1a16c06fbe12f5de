"""Text to the ids of a vocabulary: the tokenizers of both kinds, with a memory for words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from corpus.tokens.new_words import NewWords
from corpus.tokens.vocabulary import Vocabulary
from corpus.tokens.word_ids import MAX_WORDS, WordIds, WordTokens
from corpus.tokens.word_split import ByteRules, split_words

# Text that is looked up at once: enough that the cost of an array operation does not count, and
# little enough that the arrays stay in the processor's cache.
_CHUNK_CHARACTERS = 1 << 17

Ids = npt.NDArray[np.int32]
Lengths = npt.NDArray[np.int64]


class Tokenizer(Protocol):
    """Turns text into ids."""

    def encode(
        self, pieces: Sequence[str], new_words: NewWords | None = None
    ) -> tuple[Ids, Lengths]:
        """Return the ids of all pieces, one after the other, and each piece's number of ids.

        :param pieces: text without lone surrogates.
        :param new_words: counts the words that the vocabulary does not have whole.
        """
        ...


class WordRules(Protocol):
    """A kind of vocabulary, seen word by word.

    A piece's tokens must be those of its words one after the other, whatever stands around them.
    """

    @property
    def bytes(self) -> ByteRules:
        """Where words begin and end."""
        ...

    def prepare(self, text: str) -> str:
        """Return text that is not ASCII with more spaces in it, and the same tokens."""
        ...

    def tokenize(self, word: str) -> WordTokens:
        """Return the tokens of a word."""
        ...


class WordTokenizer:
    """Tokenizes word by word; each different word only once, as long as it is remembered.

    Not to be used by two threads at once: they would change its memory under each other.
    """

    def __init__(self, rules: WordRules, *, max_words: int = MAX_WORDS) -> None:
        self._rules = rules
        self._word_ids = WordIds(rules.tokenize, max_words=max_words)

    def encode(
        self, pieces: Sequence[str], new_words: NewWords | None = None
    ) -> tuple[Ids, Lengths]:
        """See :class:`Tokenizer`."""
        ids: list[Ids] = [np.empty(0, np.int32)]
        lengths: list[Lengths] = [np.empty(0, np.int64)]
        for chunk in _chunks(pieces):
            words = split_words(self._to_bytes(chunk), self._rules.bytes)
            numbers = self._word_ids.look_up(words)
            chunk_ids, totals = self._word_ids.ids(numbers)
            ids.append(chunk_ids)
            totals = np.concatenate([[0], totals])[words.piece_ends]
            lengths.append(np.diff(totals, prepend=0))
            if new_words is not None:
                new_words.add(self._word_ids.count_new(numbers))
        return np.concatenate(ids), np.concatenate(lengths)

    def _to_bytes(self, pieces: list[str]) -> list[bytes]:
        """Return pieces as UTF-8 without newlines; those that are not ASCII are prepared."""
        pieces = [piece.replace("\n", " ") if "\n" in piece else piece for piece in pieces]
        others = [number for number, piece in enumerate(pieces) if not piece.isascii()]
        if others:
            text = self._rules.prepare("\n".join([pieces[number] for number in others]))
            for number, piece in zip(others, text.split("\n"), strict=True):
                pieces[number] = piece
        return [piece.encode() for piece in pieces]


def make_tokenizer(vocabulary: Vocabulary, do_lower_case: bool) -> Tokenizer:
    """Return the tokenizer of a vocabulary, whichever kind it is.

    Special tokens are added by whoever builds rows. In the text, ``[MASK]`` is four characters and
    a word like any other.
    """
    if vocabulary.sentencepiece_model is None:
        from corpus.tokens.wordpiece import WordPieceRules

        return WordTokenizer(WordPieceRules(vocabulary, do_lower_case))
    from corpus.tokens.sentencepiece_tokens import SentencePieceTokenizer

    return SentencePieceTokenizer(vocabulary, do_lower_case)


def _chunks(pieces: Sequence[str]) -> Iterator[list[str]]:
    chunk: list[str] = []
    characters = 0
    for piece in pieces:
        chunk.append(piece)
        characters += len(piece)
        if characters >= _CHUNK_CHARACTERS:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk
