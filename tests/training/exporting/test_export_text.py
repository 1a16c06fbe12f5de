"""Tokens in a TensorFlow graph and in Hugging Face's format are those that the data job makes."""

from __future__ import annotations

import unicodedata
from difflib import SequenceMatcher
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text
from tokenizers import Tokenizer

from corpus.tokens.sentencepiece_tokens import train_sentencepiece
from corpus.tokens.tokenizing import make_tokenizer
from corpus.tokens.vocabulary import SPECIAL_TOKENS, Vocabulary
from corpus.tokens.wordpiece_training import train_wordpiece
from tests.corpus.google_differences import DIFFERENCES, Difference
from tests.corpus.real_text import docstrings
from training.exporting.text_ops import RowBuilder, SentencePieceText, WordPieceText
from training.exporting.tokenizer_files import wordpiece_tokenizer

ROOT = Path(__file__).parents[3]
SCRIPTS = [
    "Fußgänger ÄÖÜ: „Straße“ \N{EN DASH} 12,5 % … ½ ﬁne ™ naïve café e\u0301tude cafe\u0301.",
    "Быстрая коричневая лиса; ёлка, Ёлка и Й.",
    "ΟΔΥΣΣΕΥΣ και Σίσυφος, ΣΑΣ.",
    "日本語のテキスト、です。中文没有空格。㐀𠀀",
    "हिन्दी में लिखा हुआ। ไทยภาษา ខ្មែរ",
    "한국어 텍스트 العربية، עברית? İstanbul \u0131I Ǆ",
    "emoji 👩\u200d👩\u200d👧 a\u00adb \ufeffc d\x00e f\ufffdg \u3000h\ti",
    "[MASK] [unused1] ##ing http://a.b/c_d?e=f&g C++ don't",
]
# Hugging Face's tables of characters are those of Unicode 8; TensorFlow Text's are newer.
OLDER_TABLES = DIFFERENCES[3:]
# And for lower case it is the other way round: letters of Unicode 13 and 14.
NEWER_LETTERS = Difference(
    "TensorFlow Text knows no lower case of these letters.",
    "2c2f a7c0 a7d0 a7d6 a7d8 10570-1057a 1057c-1058a 1058c-10592 10594-10595",
    only_lower_case=True,
)


@cache
def texts() -> list[str]:
    """Return what people wrote, paragraph by paragraph, and other scripts."""
    pages = [path.read_text() for path in sorted((ROOT / "docs").rglob("*.md"))]
    paragraphs = [part for page in pages for part in page.split("\n\n")]
    return [*docstrings(400_000), *paragraphs, *SCRIPTS]


@cache
def wordpiece(do_lower_case: bool) -> Vocabulary:
    return train_wordpiece(texts()[::2] + SCRIPTS, size=3000, do_lower_case=do_lower_case)


def of_the_data_job(
    vocabulary: Vocabulary, do_lower_case: bool, texts: list[str]
) -> list[list[int]]:
    ids, lengths = make_tokenizer(vocabulary, do_lower_case).encode(texts)
    return [part.tolist() for part in np.split(ids, np.cumsum(lengths)[:-1])]


@pytest.mark.parametrize("do_lower_case", [True, False])
def test_real_text_has_the_data_jobs_tokens(do_lower_case: bool) -> None:
    vocabulary = wordpiece(do_lower_case)
    settings = {"do_lower_case": do_lower_case, "normalization": "none"}
    wanted = of_the_data_job(vocabulary, do_lower_case, texts())
    count = sum(map(len, wanted))
    print(f"{len(wanted)} texts, {sum(map(len, texts()))} characters, {count} tokens")
    assert count > 100_000
    in_graph = WordPieceText(vocabulary.tokens, **settings)(tf.constant(texts())).to_list()
    assert in_graph == wanted
    tokenizer = wordpiece_tokenizer(vocabulary.tokens, **settings)
    # There, unlike in the data job, special tokens may be written in the text.
    plain = [text for text in texts() if not any(token in text for token in SPECIAL_TOKENS)]
    known = dict(zip(texts(), wanted, strict=True))
    found = [e.ids for e in tokenizer.encode_batch(plain, add_special_tokens=False)]
    assert found == [known[text] for text in plain]


def test_none_of_the_ready_made_tokenizers_does_that() -> None:
    vocabulary = wordpiece(True)
    wanted = of_the_data_job(vocabulary, True, texts())
    ids = tf.range(len(vocabulary.tokens), dtype=tf.int64)
    entries = tf.lookup.KeyValueTensorInitializer(tf.constant(vocabulary.tokens), ids)
    table = tf.lookup.StaticHashTable(entries, 1)
    ready_made = {
        "BertTokenizer": tensorflow_text.BertTokenizer(
            table, token_out_type=tf.int32, lower_case=True
        ),
        "FastBertTokenizer": tensorflow_text.FastBertTokenizer(
            list(vocabulary.tokens), token_out_type=tf.int32, lower_case_nfd_strip_accents=True
        ),
    }
    for name, tokenizer in ready_made.items():
        tokens = tokenizer.tokenize(tf.constant(texts()))
        found = (tokens.merge_dims(1, 2) if tokens.ragged_rank == 2 else tokens).to_list()
        differing = sum(f != w for f, w in zip(found, wanted, strict=True))
        print(f"{name} differs in {differing} texts")
        assert differing


def words_of(tokenizer: Tokenizer, text: str) -> list[str]:
    clean = tokenizer.normalizer.normalize_str(text)
    return [word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(clean)]


def characters() -> list[str]:
    """Return every assigned character; of the large scripts samples."""
    codes = [*range(0x20000), *range(0x20000, 0x110000, 97), *range(0xE0000, 0xE0200)]
    all_of_them = [chr(code) for code in codes]
    return [c for c in all_of_them if unicodedata.category(c) not in ("Cn", "Cs")]


@pytest.mark.parametrize("do_lower_case", [True, False])
def test_every_character_but_those_in_the_docs_makes_the_same_words(do_lower_case: bool) -> None:
    settings = {"do_lower_case": do_lower_case, "normalization": "none"}
    text_ops = WordPieceText(SPECIAL_TOKENS, **settings)
    tokenizer = wordpiece_tokenizer(SPECIAL_TOKENS, **settings)
    around = [f"a{character}B" for character in characters()]
    found = [[w.decode() for w in words] for words in text_ops.words(tf.constant(around)).to_list()]
    differing = {
        ord(text[1])
        for text, words in zip(around, found, strict=True)
        if words != words_of(tokenizer, text)
    }
    expected = {
        code
        for difference in (*OLDER_TABLES, NEWER_LETTERS)
        if do_lower_case or not difference.only_lower_case
        for code in difference.codes()
    }
    assert differing == expected


@pytest.mark.parametrize("form", ["NFC", "NFKC"])
@pytest.mark.parametrize("do_lower_case", [True, False])
def test_unicode_is_normalized_as_in_the_corpus(
    form: Literal["NFC", "NFKC"], do_lower_case: bool
) -> None:
    settings = {"do_lower_case": do_lower_case, "normalization": form}
    tokenizer = wordpiece_tokenizer(SPECIAL_TOKENS, **settings)
    plain = wordpiece_tokenizer(SPECIAL_TOKENS, do_lower_case=do_lower_case, normalization="none")
    found = WordPieceText(SPECIAL_TOKENS, **settings).words(tf.constant(SCRIPTS)).to_list()
    for text, words in zip(SCRIPTS, found, strict=True):
        wanted = words_of(plain, unicodedata.normalize(form, text))
        assert [word.decode() for word in words] == wanted
        assert words_of(tokenizer, text) == wanted


def test_long_words_are_unknown_by_characters_not_bytes() -> None:
    tokens = (*SPECIAL_TOKENS, "ж", "##ж", "x", "##x")
    text_ops = WordPieceText(tokens, do_lower_case=True, normalization="none")
    tokenizer = wordpiece_tokenizer(tokens, do_lower_case=True, normalization="none")
    words = [letter * length for letter in "жx" for length in (99, 100, 101, 399, 401)]
    found = text_ops(tf.constant(words)).to_list()
    assert found == [e.ids for e in tokenizer.encode_batch(words, add_special_tokens=False)]
    assert [len(ids) for ids in found] == [99, 100, 1, 1, 1] * 2


def test_rows_of_texts() -> None:
    tokens = (*SPECIAL_TOKENS, "a", "b", "##b", "mask")
    text_ops = WordPieceText(tokens, do_lower_case=True, normalization="NFC")
    rows = RowBuilder(text_ops, tokens, max_seq_length=6)
    texts = ["A [MASK]b", "", "[MASK][MASK]", "a b a b a b", b"\xffa\xfe", "ab [mask]"]
    ids, mask = rows(tf.constant(texts))
    cls, sep, masked, a, b, more_b = 2, 3, 4, 5, 6, 7
    assert ids.numpy().tolist() == [
        [cls, a, masked, b, sep, 0],
        [cls, sep, 0, 0, 0, 0],
        [cls, masked, masked, sep, 0, 0],
        [cls, a, b, a, b, sep],
        [cls, a, sep, 0, 0, 0],
        # Only as the vocabulary writes it; in brackets it is a word like any other.
        [cls, a, more_b, 1, 8, sep],
    ]
    assert mask.numpy().sum(axis=1).tolist() == [5, 2, 4, 6, 3, 6]


@pytest.mark.parametrize("do_lower_case", [True, False])
def test_sentencepiece_differs_in_runs_of_one_character_only(do_lower_case: bool) -> None:
    vocabulary = train_sentencepiece(texts()[::2], size=3000, do_lower_case=do_lower_case)
    assert vocabulary.model is not None
    text_ops = SentencePieceText(
        vocabulary.model, do_lower_case=do_lower_case, normalization="none"
    )
    # The data job cleans text first, so that no NUL is left.
    clean = [text.replace("\0", "") for text in texts()]
    wanted = of_the_data_job(vocabulary, do_lower_case, clean)
    found = text_ops(tf.constant(texts())).to_list()
    differing = [(f, w) for f, w in zip(found, wanted, strict=True) if f != w]
    assert len(differing) < len(wanted) / 100
    places = sum(
        tag != "equal"
        for pair in differing
        for tag, *_ in SequenceMatcher(None, *pair, autojunk=False).get_opcodes()
    )
    print(f"{places} places in {sum(map(len, wanted))} tokens")
    for pair in differing:
        # The same characters, cut elsewhere: both are equally likely to the model.
        first, second = ("".join(vocabulary.tokens[number] for number in ids) for ids in pair)
        assert first == second
