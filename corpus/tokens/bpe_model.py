"""Reads and writes vocabularies of byte-level BPE as RoBERTa has them, without the library.

They are read from a ``tokenizer.json`` of Hugging Face's tokenizers, or from a ``vocab.json`` with
``merges.txt`` next to it (GPT-2, RoBERTa). A lineage keeps a ``tokenizer.json`` of fixed form, so
that equal vocabularies are equal bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from corpus.tokens.vocabulary import CLS, MASK, PAD, SEP, SPECIAL_TOKENS, UNK, Vocabulary

_PRINTABLE = frozenset(chain(range(0x21, 0x7F), range(0xA1, 0xAD), range(0xAE, 0x100)))


def _characters() -> tuple[str, ...]:
    others = iter(range(0x100, 0x200))
    return tuple(chr(byte if byte in _PRINTABLE else next(others)) for byte in range(256))


CHARACTERS = _characters()
"""The character of each byte."""
_BYTES = {character: byte for byte, character in enumerate(CHARACTERS)}


def text_of(tokens: Iterable[str]) -> str:
    """Return the text of tokens; bytes that are no whole character of UTF-8 become U+FFFD.

    :raises KeyError: a token is not of byte-level BPE, such as a special one.
    """
    return bytes([_BYTES[sign] for sign in "".join(tokens)]).decode(errors="replace")


ROBERTA_NAMES = {CLS: "<s>", PAD: "<pad>", SEP: "</s>", UNK: "<unk>", MASK: "<mask>"}
"""RoBERTa's names of BERT's special tokens, in order of id; ``<mask>`` is the last of all."""
_OUR_NAMES = {theirs: ours for ours, theirs in ROBERTA_NAMES.items()}

Merge = tuple[str, str]


def parse_tokenizer_json(data: bytes) -> Vocabulary:
    """Return the vocabulary of a ``tokenizer.json``; special tokens get BERT's names.

    :raises ValueError: it is not of byte-level BPE, or makes other tokens than RoBERTa's.
    """
    try:
        content = json.loads(data)
        model = content["model"]
        kind, vocab, merges = model["type"], dict(model["vocab"]), list(model["merges"])
        added = {token["content"]: token["id"] for token in content.get("added_tokens") or []}
        pairs = [tuple(one.split(" ")) if isinstance(one, str) else tuple(one) for one in merges]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError("is not a tokenizer.json with a BPE vocabulary") from None
    if kind != "BPE":
        raise ValueError("is a tokenizer.json of another kind than BPE")
    if odd := sorted(_odd(content, model)):
        raise ValueError(f"makes other tokens than RoBERTa's tokenizer, by its {', '.join(odd)}")
    return _checked(vocab | added, pairs)


def parse_vocab_json(vocab: bytes, merges: bytes) -> Vocabulary:
    """Return the vocabulary of ``vocab.json`` and ``merges.txt``; special ones get BERT's names."""
    try:
        ids = dict(json.loads(vocab))
        lines = merges.decode().split("\n")
    except (ValueError, TypeError, RecursionError):
        raise ValueError("is not a vocab.json with a merges.txt beside it") from None
    # The first line may name a version.
    first = 1 if lines[0].startswith("#version") else 0
    pairs = [tuple(line.rstrip("\r").split(" ")) for line in lines[first:] if line.strip()]
    return _checked(ids, pairs)


def bpe_vocabulary(tokens: Sequence[str], merges: Sequence[Merge]) -> Vocabulary:
    """Return the vocabulary of tokens in order of id, special ones by BERT's names, and merges."""
    return Vocabulary(tuple(tokens), "bpe", _tokenizer_json(tokens, merges))


def merges_of(vocabulary: Vocabulary) -> list[Merge]:
    """Return the merges of a vocabulary of byte-level BPE, the first ones first."""
    return [(first, second) for first, second in _model(vocabulary)["merges"]]


def ids_of(vocabulary: Vocabulary) -> dict[str, int]:
    """Return ids by token, special tokens by RoBERTa's names."""
    ids: dict[str, int] = _model(vocabulary)["vocab"]
    return ids


def _model(vocabulary: Vocabulary) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(vocabulary.model or b"")["model"]
    return found


def _odd(content: Mapping[str, Any], model: Mapping[str, Any]) -> Iterator[str]:
    """Yield the parts of a ``tokenizer.json`` that change its tokens."""
    for name in ("continuing_subword_prefix", "end_of_word_suffix", "dropout", "byte_fallback"):
        if model.get(name):
            yield name
    normalizer = content.get("normalizer")
    # The data job composes characters itself, if corpus.unicode_normalization says so.
    if normalizer is not None and normalizer != {"type": "NFC"}:
        yield "normalizer"
    if not _is_own_split(content.get("pre_tokenizer")):
        yield "pre_tokenizer"


def _is_own_split(split: Any) -> bool:
    if not isinstance(split, dict) or split.get("type") != "ByteLevel":
        return False
    return not split.get("add_prefix_space") and bool(split.get("use_regex", True))


def _checked(ids: Mapping[str, Any], merges: Sequence[tuple[Any, ...]]) -> Vocabulary:
    if sorted(ids.values(), key=str) != sorted(range(len(ids)), key=str):
        raise ValueError(f"has {len(ids)} tokens whose ids are not 0 to {len(ids) - 1}")
    if missing := [token for token in _OUR_NAMES if token not in ids]:
        raise ValueError(f"lacks {', '.join(missing)}; RoBERTa needs {', '.join(_OUR_NAMES)}")
    if taken := [token for token in SPECIAL_TOKENS if token in ids]:
        raise ValueError(f"has {', '.join(taken)}, which RoBERTa's special tokens are called here")
    if lost := [byte for byte, sign in enumerate(CHARACTERS) if sign not in ids]:
        raise ValueError(
            f"has no token for {len(lost)} of the 256 bytes, the first is {lost[0]}; text "
            "with them would lose them"
        )
    for number, merge in enumerate(merges, 1):
        if len(merge) != 2 or not {*merge, "".join(map(str, merge))} <= ids.keys():
            raise ValueError(f"has a merge (number {number}) whose tokens it does not have")
    return bpe_vocabulary(
        [_OUR_NAMES.get(token, token) for token in sorted(ids, key=ids.__getitem__)],
        [(first, second) for first, second in merges],
    )


def _tokenizer_json(tokens: Sequence[str], merges: Sequence[Merge]) -> bytes:
    names = [ROBERTA_NAMES.get(token, token) for token in tokens]
    ids = {name: number for number, name in enumerate(names)}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    sep, cls = ([ROBERTA_NAMES[token], ids[ROBERTA_NAMES[token]]] for token in (SEP, CLS))
    content = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added(name, ids[name]) for name in names if name in _OUR_NAMES],
        "normalizer": None,
        "pre_tokenizer": level | {"use_regex": True},
        "post_processor": level | {"type": "RobertaProcessing", "sep": sep, "cls": cls},
        "decoder": level | {"use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": ids,
            "merges": merges,
        },
    }
    return (json.dumps(content, ensure_ascii=False, indent=1) + "\n").encode()


def _added(name: str, number: int) -> dict[str, Any]:
    return {
        "id": number,
        "content": name,
        "single_word": False,
        # As in RobertaTokenizer: the space before a mask belongs to what is masked.
        "lstrip": name == ROBERTA_NAMES[MASK],
        "rstrip": False,
        "normalized": False,
        "special": True,
    }
