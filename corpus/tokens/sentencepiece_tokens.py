"""SentencePiece (unigram, arXiv 1804.10959) by Google's library: trains vocabularies, tokenizes."""

from __future__ import annotations

import io
import logging
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import sentencepiece

from corpus.tokens.new_words import NewWords
from corpus.tokens.sentencepiece_model import SPACE, parse_sentencepiece
from corpus.tokens.vocabulary import CLS, MASK, PAD, SEP, UNK, Vocabulary
from pipeline_config.row_shapes import SENTINELS

_WORD = re.compile(r"\w+")


def lower_case(text: str) -> str:
    """Return text in lower case and without accents, as ALBERT prepares it for SentencePiece."""
    if text.isascii():
        return text.lower()
    decomposed = unicodedata.normalize("NFKD", text)
    return "".join([sign for sign in decomposed if not unicodedata.combining(sign)]).lower()


class SentencePieceTokenizer:
    """Tokenizes by the library, each piece of text whole.

    A cache of words, as WordPiece has, would double the speed but not give quite the same tokens:
    if two ways to cut a word have the same score, the choice depends on the text before.
    """

    between = ""

    def __init__(self, vocabulary: Vocabulary, do_lower_case: bool) -> None:
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=vocabulary.model)
        self._do_lower_case = do_lower_case
        self._whole = {token.removeprefix(SPACE) for token in vocabulary.tokens}

    def encode(
        self, pieces: Sequence[str], new_words: NewWords | None = None
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        """See :class:`corpus.tokens.tokenizing.Tokenizer`."""
        if self._do_lower_case:
            pieces = [lower_case(piece) for piece in pieces]
        found = self._processor.encode(list(pieces), num_threads=1)
        if new_words is not None:
            counts = Counter(chain.from_iterable(map(_WORD.findall, pieces)))
            new_words.add(item for item in counts.items() if item[0] not in self._whole)
        ids = np.fromiter(chain.from_iterable(found), np.int32)
        return ids, np.array(list(map(len, found)), np.int64)


logger = logging.getLogger(__name__)

# The library holds all its training text in memory. So it is given distinct words with their
# counts, which mean the same to it, and no new ones after this many characters of them.
_MAX_CHARACTERS = 64_000_000
# Bytes. Without spaces a word is a whole piece of text, so the library's default of 4192 would
# leave most of it out.
_MAX_WORD_BYTES = 40_000
# Rarer characters become [UNK].
_MAX_ALPHABET_SHARE = 0.25
# The library refuses a lower one.
_MIN_COVERAGE = 0.98
_ERRORS = 2
_OF_BERT: dict[str, Any] = {
    "pad_id": 0,
    "unk_id": 1,
    "bos_id": -1,
    "eos_id": -1,
    "pad_piece": PAD,
    "unk_piece": UNK,
    "control_symbols": [CLS, SEP, MASK],
}
# The names are the library's own.
_OF_T5: dict[str, Any] = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}


class UntrainableTextError(ValueError):
    """The library cannot make a vocabulary of this size from this text."""


def train_sentencepiece(
    pieces: Iterable[str], *, size: int, do_lower_case: bool, for_t5: bool = False
) -> Vocabulary:
    """Return a vocabulary of at most ``size`` tokens; equal text gives an equal one.

    Special tokens are control symbols, which no text becomes.

    :param for_t5: with T5's special tokens and, within the size, sentinels.
    :raises UntrainableTextError: the text is empty, or has too many different characters.
    """
    counts = _count_words(pieces, do_lower_case)
    logger.info("training on %d different words; this takes minutes and says nothing", len(counts))
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=(f"{word}\t{counts[word]}" for word in sorted(counts)),
            input_format="tsv",
            model_writer=model,
            model_type="unigram",
            vocab_size=size - (SENTINELS if for_t5 else 0),
            hard_vocab_limit=False,
            max_sentence_length=_MAX_WORD_BYTES,
            character_coverage=_coverage(counts, int(size * _MAX_ALPHABET_SHARE)),
            # With more than one, sums are formed in an order that varies.
            num_threads=1,
            minloglevel=_ERRORS,
            **(_OF_T5 if for_t5 else _OF_BERT),
        )
    except RuntimeError:
        raise UntrainableTextError(
            f"SentencePiece cannot make a vocabulary of {size} tokens from a text of "
            f"{len(set().union(*counts))} different characters. With many of them it needs a "
            "larger vocabulary.size."
        ) from None
    return parse_sentencepiece(model.getvalue())


def _count_words(pieces: Iterable[str], do_lower_case: bool) -> dict[str, int]:
    counts: dict[str, int] = {}
    characters = 0
    for piece in pieces:
        for word in (lower_case(piece) if do_lower_case else piece).split():
            if word in counts:
                counts[word] += 1
            elif characters < _MAX_CHARACTERS:
                counts[word] = 1
                characters += len(word)
    return counts


def _coverage(counts: dict[str, int], alphabet: int) -> float:
    """Return the share of the text that its most frequent characters are to make up."""
    characters: Counter[str] = Counter()
    for word, count in counts.items():
        for character in word:
            characters[character] += count
    covered = sum(count for _, count in characters.most_common(alphabet))
    return max(_MIN_COVERAGE, covered / max(1, characters.total()))
