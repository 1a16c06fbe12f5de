"""Trains WordPiece vocabularies, by Hugging Face's tokenizers, reproducibly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.trainers import WordPieceTrainer

from beam_jobs.tokenizing import untrained_tokenizer
from beam_jobs.vocabulary import SPECIAL_TOKENS, UNK, Vocabulary

_CONTINUATION = "##"
# Characters take up to two places each; rarer ones become [UNK].
_MAX_ALPHABET = 1000
_MAX_ALPHABET_SHARE = 0.25
_MIN_PAIR_COUNT = 2


def train_wordpiece(sentences: Iterable[str], *, size: int, do_lower_case: bool) -> Vocabulary:
    """Return a vocabulary of at most ``size`` tokens; equal text gives an equal one.

    The special tokens come first, then single characters, then merged pieces.

    :param sentences: iterated over twice, so not an iterator.
    """
    tokenizer = untrained_tokenizer(do_lower_case, WordPiece(unk_token=UNK))
    alphabet = _alphabet(sentences, tokenizer, size)
    trainer = WordPieceTrainer(
        vocab_size=size,
        min_frequency=_MIN_PAIR_COUNT,
        show_progress=False,
        special_tokens=[*SPECIAL_TOKENS, *alphabet, *_inside_words(alphabet, tokenizer)],
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        continuing_subword_prefix=_CONTINUATION,
    )
    tokenizer.train_from_iterator(sentences, trainer)
    ids = tokenizer.get_vocab()
    return Vocabulary(tuple(sorted(ids, key=ids.__getitem__)))


def _alphabet(sentences: Iterable[str], tokenizer: Tokenizer, size: int) -> list[str]:
    """Return the most frequent characters in a fixed order.

    The trainer numbers pieces in the order of a hash table with a random seed, and ties between
    merges go by number, so every training would give another vocabulary. Pieces that it is given
    keep their numbers.
    """
    counts: Counter[str] = Counter()
    for sentence in sentences:
        counts.update(tokenizer.normalizer.normalize_str(sentence))
    limit = min(_MAX_ALPHABET, int(size * _MAX_ALPHABET_SHARE))
    by_count = sorted(counts, key=lambda character: (-counts[character], character))
    return sorted([character for character in by_count if not character.isspace()][:limit])


def _inside_words(alphabet: list[str], tokenizer: Tokenizer) -> list[str]:
    """Return the characters that do not stand alone, as they are written inside a word."""
    split = tokenizer.pre_tokenizer.pre_tokenize_str
    return [
        f"{_CONTINUATION}{character}" for character in alphabet if len(split(f"a{character}")) == 1
    ]
