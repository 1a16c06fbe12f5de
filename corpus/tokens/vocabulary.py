"""Defines and checks vocabularies of any kind. Light: checks before a run import it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from pipeline_config.row_shapes import SENTINELS

VocabularyKind = Literal["wordpiece", "sentencepiece", "bpe", "t5"]
"""As in ``vocabulary.kind``."""

PAD, UNK, CLS, SEP, MASK = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"
# Also their order, and ids, in a vocabulary that is trained here.
SPECIAL_TOKENS = (PAD, UNK, CLS, SEP, MASK)
# T5's rows begin with text, and it has sentinels instead of a mask.
T5_SPECIAL_TOKENS = (PAD, SEP, UNK)
# The padding token's id in RoBERTa, where positions are counted from it, too.
BPE_PAD_ID = 1
_RESERVED = re.compile(r"\[(?:PAD|UNK|CLS|SEP|MASK|unused\d+)\]")
# A vocabulary is cased if a fair share of the tokens that could have capitals has; an uncased one
# has none. With fewer such tokens than the minimum (as in Chinese) the share says nothing.
_MIN_TOKENS_WITH_CASE = 100
_CASED_SHARE = 0.02


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of a vocabulary; a token's id is its place.

    :param tokens: the lines of ``vocab.txt``; special ones have BERT's names in every kind.
    :param kind: how text becomes tokens.
    :param model: the file that the tokens are read from: a SentencePiece ``.model``, or the
        ``tokenizer.json`` of byte-level BPE. None for WordPiece, which the tokens alone define.
    """

    tokens: tuple[str, ...]
    kind: VocabularyKind = "wordpiece"
    model: bytes | None = None

    @cached_property
    def ids(self) -> dict[str, int]:
        """Ids by token."""
        return {token: number for number, token in enumerate(self.tokens)}

    @property
    def ordinary_ids(self) -> list[int]:
        """Ids of the tokens that stand for text: no ``[CLS]`` and the like, no ``[unused7]``."""
        return [i for i, token in enumerate(self.tokens) if not _RESERVED.fullmatch(token)]

    def to_bytes(self) -> bytes:
        """Return the content of ``vocab.txt``: one token per line."""
        return "".join(f"{token}\n" for token in self.tokens).encode()

    @cached_property
    def tokens_sha256(self) -> str:
        """Hash of :meth:`to_bytes`."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    @cached_property
    def sha256(self) -> str:
        """Hash of what defines the vocabulary: :attr:`model`, or else ``vocab.txt``."""
        if self.model is None:
            return self.tokens_sha256
        return hashlib.sha256(self.model).hexdigest()


def parse_vocabulary(data: bytes) -> Vocabulary:
    """Read a ``vocab.txt``; Windows line ends and a byte order mark are removed.

    :raises ValueError: it is not UTF-8 text.
    """
    lines = data.decode("utf-8-sig").split("\n")
    if lines[-1] == "":
        lines.pop()
    return Vocabulary(tuple(line.removesuffix("\r") for line in lines))


def check_vocabulary(
    tokens: Sequence[str],
    *,
    do_lower_case: bool,
    vocab_size: int,
    kind: VocabularyKind = "wordpiece",
) -> list[str]:
    """Return one line for every reason why a vocabulary is unusable; empty if it is usable.

    :param tokens: the lines of ``vocab.txt``.
    :param do_lower_case: ``vocabulary.do_lower_case``.
    :param vocab_size: ``model.vocab_size``, the rows of the embedding.
    :param kind: byte-level BPE has no casing, and pads with another token. T5 has sentinels.
    """
    return [
        *_special_tokens_are_there(tokens, kind),
        *_tokens_are_tokens(tokens),
        *_fits_embedding(tokens, vocab_size),
        *([] if kind in {"bpe", "t5"} else _case_fits(tokens, do_lower_case)),
    ]


def sentinel(number: int) -> str:
    """Return the name of a sentinel in T5's vocabularies; that of the first span has number 0."""
    return f"<extra_id_{number}>"


def special_tokens(kind: VocabularyKind) -> tuple[str, ...]:
    """Return the tokens that a vocabulary of a kind must have."""
    if kind != "t5":
        return SPECIAL_TOKENS
    return (*T5_SPECIAL_TOKENS, *map(sentinel, range(SENTINELS)))


def _special_tokens_are_there(tokens: Sequence[str], kind: VocabularyKind) -> Iterator[str]:
    needed, known = special_tokens(kind), set(tokens)
    pad_id = BPE_PAD_ID if kind == "bpe" else 0
    missing = [token for token in needed if token not in known]
    if missing and kind == "t5":
        yield (
            f"the vocabulary lacks {missing[0]} and {len(missing) - 1} more of what T5 needs: "
            f"{', '.join(T5_SPECIAL_TOKENS)} and {SENTINELS} sentinels."
        )
    elif missing:
        yield f"the vocabulary lacks {', '.join(missing)}; BERT needs {', '.join(needed)}."
    elif tokens[pad_id] != PAD:
        yield (
            f"{PAD} is token {tokens.index(PAD)} of the vocabulary; it must be token {pad_id}, "
            "which rows are padded with."
        )


def _tokens_are_tokens(tokens: Sequence[str]) -> Iterator[str]:
    first_lines: dict[str, int] = {}
    repeated = [
        (first, number)
        for number, token in enumerate(tokens, 1)
        if (first := first_lines.setdefault(token, number)) != number
    ]
    if repeated:
        yield (
            f"{len(repeated)} lines of the vocabulary repeat a token, such as line "
            f"{repeated[0][1]} that of line {repeated[0][0]}; the ids after them would be shifted "
            "in some programs."
        )
    spaced = [number for number, token in enumerate(tokens, 1) if token.split() != [token]]
    if spaced:
        yield (
            f"{len(spaced)} lines of the vocabulary are empty or contain white space, the first "
            f"is line {spaced[0]}; a line is one token."
        )


def _fits_embedding(tokens: Sequence[str], vocab_size: int) -> Iterator[str]:
    if len(tokens) > vocab_size:
        yield (
            f"the vocabulary has {len(tokens)} tokens but model.vocab_size is {vocab_size}; token "
            "ids beyond it give NaN losses."
        )


def is_cased(tokens: Sequence[str]) -> bool | None:
    """Return whether a vocabulary has words with capitals; None: too few tokens could have any."""
    with_case, capitals = _count_case(tokens)
    return None if with_case < _MIN_TOKENS_WITH_CASE else capitals >= _CASED_SHARE * with_case


def _count_case(tokens: Sequence[str]) -> tuple[int, int]:
    """Return how many tokens have letters with case, and how many have capitals."""
    words = [token for token in tokens if not _RESERVED.fullmatch(token)]
    with_case = sum(token.lower() != token.upper() for token in words)
    return with_case, sum(token != token.lower() for token in words)


def _case_fits(tokens: Sequence[str], do_lower_case: bool) -> Iterator[str]:
    cased = is_cased(tokens)
    if cased is None:
        return
    with_case, capitals = _count_case(tokens)
    numbers = f"{capitals} of {with_case} tokens with letters have capitals"
    if cased and do_lower_case:
        yield (
            f"vocabulary.do_lower_case is true but the vocabulary is cased ({numbers}): those "
            "tokens would never be used. Set vocabulary.do_lower_case to false or use an uncased "
            "vocabulary."
        )
    if not cased and not do_lower_case:
        yield (
            f"vocabulary.do_lower_case is false but the vocabulary is uncased ({numbers}): "
            "capitalized words would become [UNK]. Set vocabulary.do_lower_case to true or use a "
            "cased vocabulary."
        )


_UNUSED = re.compile(r"\[unused\d+\]")


def with_domain_words(vocabulary: Vocabulary, words: Iterable[str]) -> Vocabulary:
    """Return a vocabulary with words in its first ``[unused…]`` places; all others stay."""
    places = (i for i, token in enumerate(vocabulary.tokens) if _UNUSED.fullmatch(token))
    tokens = list(vocabulary.tokens)
    for place, word in zip(places, words, strict=False):
        tokens[place] = word
    return Vocabulary(tuple(tokens))


def domain_words(given: Vocabulary, own: Vocabulary) -> list[str] | None:
    """Return the words by which a vocabulary differs from the given one that it was made from.

    :returns: None if it was not made from it, because more than unused places differ.
    """
    if given.kind != own.kind or len(given.tokens) != len(own.tokens):
        return None
    if given.kind != "wordpiece":
        return [] if given == own else None
    differ = [(a, b) for a, b in zip(given.tokens, own.tokens, strict=True) if a != b]
    return [b for _, b in differ] if all(_UNUSED.fullmatch(a) for a, _ in differ) else None


def unused_places(vocabulary: Vocabulary) -> int:
    """Return how many words a vocabulary can take in its ``[unused…]`` places."""
    return sum(_UNUSED.fullmatch(token) is not None for token in vocabulary.tokens)
