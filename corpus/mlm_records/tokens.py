"""The properties of a vocabulary that masking needs."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

VocabularyKind = Literal["wordpiece", "sentencepiece", "bpe", "t5"]

MASK = "[MASK]"
# T5's sentinels; that of the first span has number 0.
_SENTINEL = "<extra_id_{}>"
# Tokens that stand for no text: BERT's, and those that SentencePiece models have besides, such as
# <s> and <eod>. (A byte, <0x0A>, does stand for text.)
_RESERVED = re.compile(r"\[(?:PAD|UNK|CLS|SEP|MASK|unused\d+)\]|</?[a-z]\w*>")
# The same in a vocabulary of RoBERTa, whose text never becomes such a token: letters and
# punctuation are not merged with each other.
_RESERVED_OF_BPE = re.compile(rf"{_RESERVED.pattern}|<\|[a-z]+\|>|madeupword\d+")
# Begins a word in SentencePiece (arXiv 1808.06226, section 3.1).
_WORD_START = "\u2581"
# Byte-level BPE's tab, newline, vertical tab, form feed, carriage return and space, with which a
# token begins a word.
_WORD_STARTS_OF_BPE = ("\u0109", "\u010a", "\u010b", "\u010c", "\u010d", "\u0120")
_CONTINUATION = "##"


@dataclass(frozen=True, eq=False)
class TokenTable:
    """The V tokens of a vocabulary, as masking sees them.

    ``maskable`` [V]: the token stands for text, so it may be predicted; special tokens, ``[UNK]``
    among them, do not. ``continues_word`` [V]: it continues the word of the token before it.
    ``replacement_ids`` [K] int32: ids that a random token is drawn from. ``mask_id``: id of
    ``[MASK]``, which only T5's vocabularies lack; ``sentinels`` int32: ids of the sentinels that
    they have instead, in order.
    """

    maskable: npt.NDArray[np.bool_]
    continues_word: npt.NDArray[np.bool_]
    replacement_ids: npt.NDArray[np.int32]
    mask_id: int | None
    sentinels: npt.NDArray[np.int32]


def token_table(tokens: Sequence[str], kind: VocabularyKind) -> TokenTable:
    """Return the table of a vocabulary.

    ``[UNK]`` is not maskable: what an unknown word was cannot be learned.

    :param tokens: the lines of ``vocab.txt``, in order of id.
    :raises ValueError: it has no ``[MASK]`` (T5: no sentinel), or only special tokens.
    """
    needed = _SENTINEL.format(0) if kind == "t5" else MASK
    if needed not in tokens:
        raise ValueError(f"the vocabulary of {len(tokens)} tokens has no {needed}")
    reserved = _RESERVED_OF_BPE if kind == "bpe" else _RESERVED
    maskable = np.array([reserved.fullmatch(token) is None for token in tokens], bool)
    if not maskable.any():
        raise ValueError(f"the vocabulary of {len(tokens)} tokens has only special tokens")
    if kind == "wordpiece":
        continues = [token.startswith(_CONTINUATION) for token in tokens]
    elif kind == "bpe":
        continues = [not token.startswith(_WORD_STARTS_OF_BPE) for token in tokens]
    else:
        continues = [not token.startswith(_WORD_START) for token in tokens]
    return TokenTable(
        maskable=maskable,
        continues_word=np.array(continues, bool) & maskable,
        replacement_ids=np.flatnonzero(maskable).astype(np.int32),
        mask_id=None if kind == "t5" else list(tokens).index(MASK),
        sentinels=np.array(_sentinels(tokens) if kind == "t5" else [], np.int32),
    )


def _sentinels(tokens: Sequence[str]) -> list[int]:
    """Return the ids of the sentinels in order, up to the first number that is missing."""
    ids = {token: number for number, token in enumerate(tokens)}
    names = itertools.takewhile(ids.__contains__, map(_SENTINEL.format, itertools.count()))
    return [ids[name] for name in names]
