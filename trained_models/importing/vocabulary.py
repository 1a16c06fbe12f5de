"""Maps the rows of a source's embedding to rows here, token by token of the vocabularies."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from corpus.tokens.bpe_model import ROBERTA_NAMES
from corpus.tokens.sentencepiece_model import parse_sentencepiece
from corpus.tokens.vocabulary import CLS, PAD, SEP, UNK, VocabularyKind, sentinel, special_tokens
from pipeline_config.unquoted import UNPARSABLE, fault
from pipeline_store import uris
from trained_models.errors import UserError
from trained_models.importing.sources import (
    ADDED_TOKENS,
    SENTENCEPIECE,
    TOKENIZER,
    TOKENIZER_CONFIG,
    VOCAB_JSON,
    VOCABULARY,
    SourceKind,
    split,
)
from trained_models.record_sources import split_tokens

# Far beyond any vocabulary. It is limited because a list of tokens is as long as the largest id.
_LARGEST_ID = 10_000_000
# WordPiece has this before a piece that continues a word; SentencePiece and byte-level BPE have
# these before one that begins a word.
CONTINUING = "##"
BEGINNINGS: dict[str, VocabularyKind] = {"\u2581": "sentencepiece", "\u0120": "bpe"}


@dataclass(frozen=True)
class SourceVocabulary:
    """Ids by token, and the file that they are from."""

    uri: str
    ids: Mapping[str, int]

    @cached_property
    def tokens(self) -> tuple[str, ...]:
        """The tokens in order of id; an id without a token has an empty one."""
        by_id = {number: token for token, number in self.ids.items()}
        return tuple(by_id.get(number, "") for number in range(max(by_id) + 1))


def source_vocabulary(
    uri: str, kind: SourceKind, read: uris.Reader = uris.read
) -> SourceVocabulary | None:
    """Return the vocabulary next to weights, or None if there is none.

    :param read: function that reads its files.
    :raises UserError: there is one that cannot be read.
    """
    folder = uri if kind is not SourceKind.TENSORFLOW else split(uri)[0]
    for name, parse in _PARSERS.items():
        file, added = uris.join(folder, name), uris.join(folder, ADDED_TOKENS)
        if not uris.exists(file):
            continue
        data, more = read(file), read(added) if uris.exists(added) else b""
        try:
            ids = _named(parse(data) | (json.loads(more) if more else {}))
            if not all(isinstance(n, int) and 0 <= n <= _LARGEST_ID for n in ids.values()):
                raise TypeError
        except UNPARSABLE as error:
            raise UserError(
                f"{file} is not a vocabulary that can be read ({fault(error)}); get the file again."
            ) from None
        if not ids:
            raise UserError(f"{file} has no token; get the file again.")
        return SourceVocabulary(file, ids)
    return None


def tokenizer_lower_cases(folder: str, read: uris.Reader = uris.read) -> bool | None:
    """Return whether the tokenizer next to weights lowercases text; None if it does not say.

    :param read: function that reads its file.
    :raises UserError: the file cannot be read.
    """
    file = uris.join(folder, TOKENIZER_CONFIG)
    if not uris.exists(file):
        return None
    try:
        says = json.loads(read(file)).get("do_lower_case")
    except (*UNPARSABLE, AttributeError) as error:
        raise UserError(f"{file} is no JSON object ({fault(error)}); get it again.") from None
    return None if says is None else bool(says)


def _read_vocabulary(data: bytes) -> dict[str, int]:
    # If a token is repeated, its last place counts, as in BERT's own reader.
    return {token: number for number, token in enumerate(split_tokens(data.decode()))}


def _read_tokenizer(data: bytes) -> dict[str, int]:
    content = json.loads(data)
    found = content["model"]["vocab"]
    # Unigram models have a list of pieces and scores.
    ids = found if isinstance(found, dict) else {piece: n for n, (piece, _) in enumerate(found)}
    return ids | {token["content"]: token["id"] for token in content.get("added_tokens", [])}


_PARSERS: dict[str, Callable[[bytes], dict[str, int]]] = {
    VOCABULARY: _read_vocabulary,
    TOKENIZER: _read_tokenizer,
    VOCAB_JSON: json.loads,
    SENTENCEPIECE: lambda data: parse_sentencepiece(data).ids,
}
_T5_NAMES = {"<pad>": PAD, "</s>": SEP, "<unk>": UNK}


def _named(ids: Mapping[str, int]) -> dict[str, int]:
    """Return a vocabulary with BERT's names of RoBERTa's and T5's special tokens."""
    kind = vocabulary_kind([*ids])
    if kind not in {"bpe", "t5"}:
        return dict(ids)
    names = {theirs: ours for ours, theirs in ROBERTA_NAMES.items()} if kind == "bpe" else _T5_NAMES
    return {names.get(token, token): number for token, number in ids.items()}


@dataclass(frozen=True)
class Rows:
    """The mapping of the rows of a table that has one for each token.

    :param size: rows of the source.
    :param copied: rows that are copied: their numbers here and in the source.
    :param means: by row here, the rows of the source whose mean it starts as.
    :param random: rows of tokens that keep the random weights they have.
    :param dropped: tokens of the source that are not in the vocabulary here.
    :param notes: other remarks, a sentence each.
    """

    size: int
    copied: tuple[list[int], list[int]]
    means: Mapping[int, list[int]]
    random: list[int]
    dropped: list[str]
    notes: tuple[str, ...] = ()

    def apply(
        self, source: npt.NDArray[np.float32], initial: npt.NDArray[np.float32]
    ) -> npt.NDArray[np.float32]:
        """Return a table's value here.

        :param source: the source's table, [size, ...].
        :param initial: its present value, which rows without a known token keep.
        """
        here, there = self.copied
        if here == there and len(here) == self.size == len(initial):
            return source
        value = initial.copy()
        value[here] = source[there]
        for row, pieces in self.means.items():
            value[row] = source[pieces].mean(axis=0)
        return value

    def refuse_random(self, uri: str) -> None:
        """Stop if a token would have random weights: the source's predictions would be noise.

        :raises UserError: there are such tokens.
        """
        if self.random:
            raise UserError(
                f"{uri} cannot be scored: of {len(self.random)} tokens of the lineage's vocabulary "
                "it knows neither the token nor all its pieces, so they would have random weights. "
                "Give a model with the lineage's vocabulary, or one that was trained from this "
                "one with it."
            )

    def sentences(self) -> Iterator[str]:
        """Yield sentences on the mapping of the vocabulary."""
        if self.means or self.random or self.dropped:
            yield (
                f"Vocabulary: {len(self.copied[0])} tokens keep their weights, {len(self.means)} "
                "new ones start as the mean of the pieces that the source splits them into, "
                f"{len(self.random)} at random, {len(self.dropped)} of the source are dropped."
            )
        yield from self.notes


def plan_rows(
    source: SourceVocabulary | None, rows: int, vocabulary: Sequence[str], vocab_size: int
) -> Rows:
    """Return the mapping by which the tokens of a vocabulary get their rows.

    :param source: the source's vocabulary; None: it is not known.
    :param rows: rows of the source's embedding.
    :param vocabulary: tokens here, in order of id.
    :param vocab_size: rows of the embedding here; those beyond the vocabulary are never looked up.
    :raises UserError: a special token has no row, or the source's tokens are not known and it has
        another number of them.
    """
    if source is None:
        return _unknown_rows(rows, vocabulary, vocab_size)
    if len(source.tokens) > rows:
        raise UserError(
            f"{source.uri} has {len(source.tokens)} tokens, but the embedding has {rows} rows: "
            "they do not belong together. Get both files from the same place."
        )
    needed = special_tokens(vocabulary_kind(source.tokens))
    missing = [token for token in needed if token not in source.ids]
    if missing:
        raise UserError(
            f"{source.uri} lacks {', '.join(missing[:5])}; needed are {', '.join(needed[:5])}. It "
            "is no vocabulary of such a model, or its tokens have other names."
        )
    kinds = vocabulary_kind(source.tokens), vocabulary_kind(vocabulary)
    if kinds[0] != kinds[1]:
        raise UserError(
            f"{source.uri} is a {kinds[0]} vocabulary, the lineage's is {kinds[1]}: hardly a token "
            f"is the same. Set vocabulary.kind={kinds[0]} in another model.lineage_id."
        )
    if source.tokens == tuple(vocabulary):
        return _same_rows(rows, len(vocabulary), vocab_size)
    if kinds[0] == "t5":
        raise UserError(
            f"{source.uri} is another vocabulary than the lineage's. A T5 keeps its own: use it as "
            "vocabulary.uri of another model.lineage_id."
        )
    return _grown_rows(source, rows, vocabulary)


def vocabulary_kind(tokens: Sequence[str]) -> VocabularyKind:
    """Return the kind of a vocabulary: the one whose mark the most tokens begin with."""
    counts: dict[VocabularyKind, int] = {
        "wordpiece": sum(token.startswith(CONTINUING) for token in tokens)
    }
    for beginning, kind in BEGINNINGS.items():
        counts[kind] = sum(token.startswith(beginning) for token in tokens)
    kind = max(counts, key=counts.__getitem__)
    is_t5 = kind == "sentencepiece" and sentinel(0) in tokens and CLS not in tokens
    return "t5" if is_t5 else kind


def _same_rows(rows: int, tokens: int, vocab_size: int, *notes: str) -> Rows:
    # This includes the embedding's padding, if both have the same: then nothing at all changes.
    count = rows if rows == vocab_size else tokens
    return Rows(rows, (list(range(count)), list(range(count))), {}, [], [], notes)


def _unknown_rows(rows: int, vocabulary: Sequence[str], vocab_size: int) -> Rows:
    if rows not in {len(vocabulary), vocab_size}:
        raise UserError(
            f"Its vocabulary is not known ({VOCABULARY} or {TOKENIZER} beside the weights), and "
            f"the embedding has {rows} rows, while the vocabulary here has {len(vocabulary)} "
            f"tokens (model.vocab_size={vocab_size}). Put its {VOCABULARY} there."
        )
    note = (
        f"WARNING: there is no {VOCABULARY} beside the weights. Rows are taken over by number, "
        "which is right only if the vocabularies are the same."
    )
    return _same_rows(rows, len(vocabulary), vocab_size, note)


def _grown_rows(source: SourceVocabulary, rows: int, vocabulary: Sequence[str]) -> Rows:
    here = [number for number, token in enumerate(vocabulary) if token in source.ids]
    there = [source.ids[vocabulary[number]] for number in here]
    known, means, random = set(here), {}, []
    continuing = CONTINUING if vocabulary_kind(source.tokens) == "wordpiece" else ""
    for number, token in enumerate(vocabulary):
        if number in known:
            continue
        if pieces := split_into_pieces(token, source.ids, continuing):
            means[number] = [source.ids[piece] for piece in pieces]
        else:
            random.append(number)
    kept = set(vocabulary)
    dropped = [token for token in source.ids if token not in kept]
    return Rows(rows, (here, there), means, random, dropped)


def split_into_pieces(token: str, ids: Mapping[str, Any], continuing: str) -> list[str]:
    """Return the pieces of a new token, each the longest that fits, as WordPiece finds them.

    Written out here, so that no machine needs a tokenizer for it and all find the same.

    :param token: a word, or, if it begins with ``continuing``, the continuation of one.
    :param ids: ids of the known pieces.
    :param continuing: prefix of pieces that continue a word, such as ``##``.
    :returns: the pieces; empty if a part of it is no known piece.
    """
    prefix = continuing if token.startswith(continuing) else ""
    rest, pieces = token.removeprefix(continuing), []
    while rest:
        fits = (end for end in range(len(rest), 0, -1) if prefix + rest[:end] in ids)
        end = next(fits, None)
        if end is None:
            return []
        pieces.append(prefix + rest[:end])
        rest, prefix = rest[end:], continuing
    return pieces
