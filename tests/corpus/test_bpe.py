from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus.mlm_records import token_table
from corpus.tokens.bpe import bpe_pipeline, train_bpe
from corpus.tokens.bpe_model import (
    CHARACTERS,
    bpe_vocabulary,
    ids_of,
    merges_of,
    parse_tokenizer_json,
    parse_vocab_json,
    text_of,
)
from corpus.tokens.new_words import NewWords
from corpus.tokens.tokenizing import Tokenizer, make_tokenizer
from corpus.tokens.vocabulary import MASK, PAD, Vocabulary, check_vocabulary
from tests.corpus.real_text import docstrings


@cache
def trained() -> Vocabulary:
    return train_bpe(docstrings(300_000), size=1000)


@cache
def tokenizer() -> Tokenizer:
    return make_tokenizer(trained(), do_lower_case=False)


def assert_as_the_library(texts: list[str]) -> None:
    """Compare with Hugging Face's own tokenizer from one end to the other."""
    ids, lengths = tokenizer().encode(texts)
    found = bpe_pipeline(trained()).encode_batch_fast(texts, add_special_tokens=False)
    assert lengths.tolist() == [len(encoding.ids) for encoding in found]
    assert ids.tolist() == list(chain.from_iterable(encoding.ids for encoding in found))


def tokens(text: str) -> list[str]:
    ids, _ = tokenizer().encode([text])
    return [trained().tokens[number] for number in ids]


def test_the_borders_of_words_are_the_librarys() -> None:
    assert_as_the_library(
        [
            "it's 'tis I'll can't 'stop' \"'quoted'\" o'clock '''s rock'n'roll x''s '1 1's",
            "  two   spaces\t\ttabs\n\nlines \r\n end  ",
            "abc123def 3.14 v1.2.3-rc4 <mask> </s> [MASK] a_b __init__ e=mc\u00b2 \u2460\u00bd",
            "\u00e9t\u00e9 \u4e2d\u6587\u3002\u65e5\u672c\u8a9e \u0440\u0443\u0441 e\u0301",
            "\U0001f600\U0001f468\u200d\U0001f469 \u00a0nbsp\u00a0 \u3000wide\u3000\u2003",
            "a\u2028b\x85c",
            "\0 a\0 !\0 !\0\0 \x01\x1c\x1d\x1e\x1f\x7f\x0b\x0c z",
            "",
            " ",
            "x" * 100 + " " + "ab!" * 40,
        ]
    )


ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
LIKELY_TEXT = st.text(
    st.sampled_from(
        "abst' '' 12.,!\n\t\0\u00e9\u4e2d\u00a0\u3000\u2028\u0301\u00b2\u0660\U0001f600"
    ),
    max_size=60,
)


@settings(max_examples=400, deadline=None)
@given(st.lists(st.one_of(ANY_TEXT, LIKELY_TEXT), max_size=8))
def test_tokens_are_those_of_the_library(texts: list[str]) -> None:
    assert_as_the_library(texts)


def test_every_character_of_unicode_is_of_the_librarys_class() -> None:
    codes = [*range(0xD800), *range(0xF900, 0x10000), *range(0x1F000, 0x1FB00)]
    texts = [f"a{chr(code)}b !{chr(code)}1 '{chr(code)} {chr(code)}x" for code in codes[::11]]
    assert_as_the_library(texts)


def test_real_text_has_the_librarys_tokens() -> None:
    assert_as_the_library(list(docstrings(300_000)))


def test_the_text_comes_back() -> None:
    text = "It's na\u00efve: \U0001f600  two\nlines\0"
    assert text_of(tokens(text)) == text


def test_special_tokens_have_the_ids_of_roberta() -> None:
    assert [ids_of(trained())[name] for name in ("<s>", "<pad>", "</s>", "<unk>")] == [0, 1, 2, 3]
    assert ids_of(trained())["<mask>"] == len(trained().tokens) - 1 == 999
    assert "<mask>" not in tokens("a <mask> b")


def test_training_is_reproducible() -> None:
    program = "from tests.corpus.test_bpe import trained; print(trained().sha256)"
    run = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    assert run.stdout.decode().strip() == trained().sha256


def test_all_forms_of_a_vocabulary_are_one() -> None:
    assert trained().model is not None
    assert parse_tokenizer_json(trained().model) == trained()
    lines = "".join(f"{first} {second}\n" for first, second in merges_of(trained()))
    vocab = json.dumps(ids_of(trained())).encode()
    for head in ("", "#version: 0.2\n"):
        assert parse_vocab_json(vocab, (head + lines).encode()) == trained()
    old = json.loads(trained().model)
    old["model"]["merges"] = [" ".join(pair) for pair in old["model"]["merges"]]
    assert parse_tokenizer_json(json.dumps(old).encode()) == trained()


def _changed(**parts: object) -> bytes:
    return json.dumps(json.loads(trained().model or b"") | parts).encode()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"{}", "not a tokenizer.json"),
        (_changed(model={"type": "Unigram", "vocab": {}, "merges": []}), "another kind than BPE"),
        (_changed(normalizer={"type": "Lowercase"}), "by its normalizer"),
        (_changed(pre_tokenizer={"type": "Whitespace"}), "by its pre_tokenizer"),
        (_changed(pre_tokenizer={"type": "ByteLevel", "add_prefix_space": True}), "pre_tokenizer"),
    ],
)
def test_other_tokenizers_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_tokenizer_json(data)


def test_incomplete_vocabularies_are_refused() -> None:
    ids, merges = ids_of(trained()), b""
    for missing, message in {
        "<mask>": "lacks <mask>",
        CHARACTERS[0]: "no token for 1 of the 256 bytes, the first is 0",
    }.items():
        kept = [token for token in ids if token != missing]
        vocab = json.dumps({token: number for number, token in enumerate(kept)}).encode()
        with pytest.raises(ValueError, match=message):
            parse_vocab_json(vocab, merges)
    with pytest.raises(ValueError, match=r"merge \(number 1\)"):
        parse_vocab_json(json.dumps(ids).encode(), "zz\u0120 zz".encode())
    with pytest.raises(ValueError, match="are not 0 to"):
        parse_vocab_json(json.dumps(ids | {"<s>": 5000}).encode(), merges)
    with pytest.raises(ValueError, match=r"has \[MASK\]"):
        parse_vocab_json(json.dumps(ids | {MASK: len(ids)}).encode(), merges)


def test_padding_is_token_1() -> None:
    fits = {"do_lower_case": False, "vocab_size": 1000, "kind": "bpe"}
    assert check_vocabulary(trained().tokens, **fits) == []
    moved = [*trained().tokens]
    moved[1], moved[2] = moved[2], moved[1]
    [line] = check_vocabulary(moved, **fits)
    assert f"{PAD} is token 2" in line
    assert "must be token 1" in line


def test_words_begin_with_a_space() -> None:
    table = token_table(trained().tokens, "bpe")
    text = "It is\nunbelievable"
    ids, _ = tokenizer().encode([text])
    begins = [trained().tokens[number] for number in ids if not table.continues_word[number]]
    assert [text_of([token])[0] for token in begins] == [" ", "\n"]
    assert not table.maskable[:4].any()
    assert not table.maskable[-1]
    assert table.maskable[4:-1].all()
    assert table.mask_id == 999
    fairseq = bpe_vocabulary([*trained().tokens[:-1], "madeupword0000", "<|endoftext|>", MASK], [])
    assert not token_table(fairseq.tokens, "bpe").maskable[-3:].any()


def test_new_words_are_counted_with_their_spaces_off() -> None:
    new = NewWords()
    tokenizer().encode(["Xylophonist xylophonist, the xylophonist2"], new)
    assert new.top(3) == {"xylophonist": 2, "Xylophonist": 1}


def test_nothing_encodes_to_nothing() -> None:
    ids, lengths = tokenizer().encode([])
    assert (len(ids), len(lengths)) == (0, 0)
    assert (ids.dtype, lengths.dtype) == (np.int32, np.int64)
