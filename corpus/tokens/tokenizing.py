"""Tokenizers that turn text into the ids of a vocabulary of any kind, with a cache of words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from corpus.tokens.new_words import NewWords
from corpus.tokens.vocabulary import Vocabulary
from corpus.tokens.word_ids import MAX_WORDS, WordIds, WordTokens
from corpus.tokens.word_split import Words

# Text that is looked up at once: enough that the cost of an array operation does not count, and
# little enough that the arrays stay in the processor's cache.
_CHUNK_CHARACTERS = 1 << 17

Ids = npt.NDArray[np.int32]
Lengths = npt.NDArray[np.int64]


class Tokenizer(Protocol):
    """Turns text into ids.

    :ivar between: the separator that a document's pieces need between them: empty, or the space
        that is part of byte-level BPE's tokens.
    """

    between: str

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

    A piece's tokens must be those of its words one after the other, in any context.
    """

    def split(self, pieces: Sequence[str]) -> Words:
        """Return the words of pieces of text."""
        ...

    def tokenize(self, spelling: bytes) -> WordTokens:
        """Return the tokens of a word of :meth:`split`."""
        ...


class WordTokenizer:
    """Tokenizes word by word; each distinct word only once, as long as it is cached.

    Not to be used by two threads at once: they would change its cache under each other.

    :param between: see :class:`Tokenizer`.
    """

    def __init__(self, rules: WordRules, *, between: str = "", max_words: int = MAX_WORDS) -> None:
        self.between = between
        self._rules = rules
        self._word_ids = WordIds(rules.tokenize, max_words=max_words)

    def encode(
        self, pieces: Sequence[str], new_words: NewWords | None = None
    ) -> tuple[Ids, Lengths]:
        """See :class:`Tokenizer`."""
        ids: list[Ids] = [np.empty(0, np.int32)]
        lengths: list[Lengths] = [np.empty(0, np.int64)]
        for chunk in _chunks(pieces):
            words = self._rules.split(chunk)
            numbers = self._word_ids.look_up(words)
            chunk_ids, totals = self._word_ids.ids(numbers)
            ids.append(chunk_ids)
            totals = np.concatenate([[0], totals])[words.piece_ends]
            lengths.append(np.diff(totals, prepend=0))
            if new_words is not None:
                new_words.add(self._word_ids.count_new(numbers))
        return np.concatenate(ids), np.concatenate(lengths)


def make_tokenizer(vocabulary: Vocabulary, do_lower_case: bool) -> Tokenizer:
    """Return the tokenizer of a vocabulary of any kind.

    It adds no special tokens; the code that builds rows does. In the text, ``[MASK]`` is ordinary
    characters.

    :param do_lower_case: byte-level BPE takes text as it is.
    """
    if vocabulary.kind == "wordpiece":
        from corpus.tokens.wordpiece import WordPieceRules

        return WordTokenizer(WordPieceRules(vocabulary, do_lower_case))
    if vocabulary.kind == "bpe":
        from corpus.tokens.bpe import BpeRules

        return WordTokenizer(BpeRules(vocabulary), between=" ")
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
