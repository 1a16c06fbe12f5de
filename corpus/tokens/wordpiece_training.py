"""Trains WordPiece vocabularies, by Hugging Face's tokenizers, reproducibly."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator

from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.trainers import WordPieceTrainer

from corpus.tokens.vocabulary import SPECIAL_TOKENS, UNK, Vocabulary
from corpus.tokens.wordpiece import bert_pipeline

logger = logging.getLogger(__name__)

_CONTINUATION = "##"
# Characters take up to two places each; rarer ones become [UNK].
_MAX_ALPHABET = 1000
_MAX_ALPHABET_SHARE = 0.25
_MIN_PAIR_COUNT = 2


def train_wordpiece(pieces: Iterable[str], *, size: int, do_lower_case: bool) -> Vocabulary:
    """Return a vocabulary of at most ``size`` tokens; equal text gives an equal one.

    The special tokens come first, then single characters, then merged pieces.

    :param pieces: iterated over twice, so not an iterator.
    """
    pipeline = bert_pipeline(do_lower_case, WordPiece(unk_token=UNK))
    logger.info("first of two readings: which characters there are")
    alphabet = _alphabet(pieces, pipeline, size)
    trainer = WordPieceTrainer(
        vocab_size=size,
        min_frequency=_MIN_PAIR_COUNT,
        show_progress=False,
        special_tokens=[*SPECIAL_TOKENS, *alphabet, *_inside_words(alphabet, pipeline)],
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        continuing_subword_prefix=_CONTINUATION,
    )
    logger.info("second of two readings: how often words occur")
    pipeline.train_from_iterator(_announcing_the_end(pieces), trainer)
    ids = pipeline.get_vocab()
    return Vocabulary(tuple(sorted(ids, key=ids.__getitem__)))


def _announcing_the_end(pieces: Iterable[str]) -> Iterator[str]:
    """Yield the pieces, then log that the library's silent part begins."""
    yield from pieces
    logger.info("merging pieces of words; this takes seconds to minutes and says nothing")


def _alphabet(pieces: Iterable[str], pipeline: Tokenizer, size: int) -> list[str]:
    """Return the most frequent characters in a fixed order.

    The trainer numbers pieces in the order of a hash table with a random seed, and ties between
    merges go by number, so every training would give another vocabulary. Pieces that it is given
    keep their numbers.
    """
    counts: Counter[str] = Counter()
    for piece in pieces:
        counts.update(pipeline.normalizer.normalize_str(piece))
    limit = min(_MAX_ALPHABET, int(size * _MAX_ALPHABET_SHARE))
    by_count = sorted(counts, key=lambda character: (-counts[character], character))
    return sorted([character for character in by_count if not character.isspace()][:limit])


def _inside_words(alphabet: list[str], pipeline: Tokenizer) -> list[str]:
    """Return the characters that do not stand alone, as they are written inside a word."""
    split = pipeline.pre_tokenizer.pre_tokenize_str
    return [
        f"{_CONTINUATION}{character}" for character in alphabet if len(split(f"a{character}")) == 1
    ]
