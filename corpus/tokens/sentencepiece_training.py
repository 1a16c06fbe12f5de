"""Trains SentencePiece vocabularies (unigram, arXiv 1804.10959) by Google's library."""

from __future__ import annotations

import io
import logging
from collections import Counter
from collections.abc import Iterable

import sentencepiece

from corpus.tokens.sentencepiece_model import parse_sentencepiece
from corpus.tokens.sentencepiece_tokens import lower_case
from corpus.tokens.vocabulary import CLS, MASK, PAD, SEP, UNK, Vocabulary

logger = logging.getLogger(__name__)

# The library holds all it is trained on in memory. So it is given different words with their
# counts, which mean the same to it, and no new ones after this many characters of them.
_MAX_CHARACTERS = 64_000_000
# Bytes. Without spaces a word is a whole piece of text, so the library's own 4192 would leave most
# of it out.
_MAX_WORD_BYTES = 40_000
# Rarer characters become [UNK].
_MAX_ALPHABET_SHARE = 0.25
# The library refuses a lower one.
_MIN_COVERAGE = 0.98
_ERRORS = 2


class UntrainableTextError(ValueError):
    """The library cannot make a vocabulary of this size from this text."""


def train_sentencepiece(pieces: Iterable[str], *, size: int, do_lower_case: bool) -> Vocabulary:
    """Return a vocabulary of at most ``size`` tokens; equal text gives an equal one.

    Special tokens are control symbols, which no text becomes.

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
            vocab_size=size,
            hard_vocab_limit=False,
            max_sentence_length=_MAX_WORD_BYTES,
            character_coverage=_coverage(counts, int(size * _MAX_ALPHABET_SHARE)),
            # With more than one, sums are formed in an order that varies.
            num_threads=1,
            pad_id=0,
            unk_id=1,
            bos_id=-1,
            eos_id=-1,
            pad_piece=PAD,
            unk_piece=UNK,
            control_symbols=[CLS, SEP, MASK],
            minloglevel=_ERRORS,
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
