from __future__ import annotations

from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus.tokens import tokenizing
from corpus.tokens.new_words import NewWords
from corpus.tokens.tokenizing import WordTokenizer, make_tokenizer
from corpus.tokens.vocabulary import SPECIAL_TOKENS, Vocabulary
from corpus.tokens.wordpiece import WordPieceRules, wordpiece_pipeline
from corpus.tokens.wordpiece_training import train_wordpiece
from tests.corpus.real_text import docstrings

SMALL = Vocabulary((*SPECIAL_TOKENS, "mask", "[", "]", "un", "##known", "ren", "##e", "Un"))
LETTERS = "abcdefghijklmnopqrstuvwxyzABC0123456789.,-'\u00e9\u0436\u0301\u4e2d\u3042\u03c3\u03c2"
VOCABULARY = Vocabulary((*SPECIAL_TOKENS, *LETTERS, *(f"##{sign}" for sign in LETTERS), "the"))
TOKENIZERS = {case: make_tokenizer(VOCABULARY, case) for case in (True, False)}
LIBRARY = {case: wordpiece_pipeline(VOCABULARY, case) for case in (True, False)}


def tokens(text: str, do_lower_case: bool = True) -> list[str]:
    ids, lengths = make_tokenizer(SMALL, do_lower_case).encode([text])
    assert lengths.tolist() == [len(ids)]
    return [SMALL.tokens[i] for i in ids]


def assert_as_the_library(texts: list[str], do_lower_case: bool) -> None:
    """Compare with Hugging Face's own tokenizer from one end to the other."""
    ids, lengths = TOKENIZERS[do_lower_case].encode(texts)
    found = LIBRARY[do_lower_case].encode_batch_fast(texts, add_special_tokens=False)
    assert lengths.tolist() == [len(encoding.ids) for encoding in found]
    assert ids.tolist() == list(chain.from_iterable(encoding.ids for encoding in found))


def test_words_are_cut_into_pieces() -> None:
    assert tokens("Unknown Ren\u00e9") == ["un", "##known", "ren", "##e"]
    assert tokens("Unknown", do_lower_case=False) == ["Un", "##known"]


def test_special_tokens_in_text_are_text() -> None:
    assert tokens("[MASK]") == ["[", "mask", "]"]
    assert tokens("[UNK]") == ["[", "[UNK]", "]"]


def test_unknown_and_overlong_words_are_unknown() -> None:
    assert tokens("zebra") == ["[UNK]"]
    assert tokens("un" + "known" * 19 + "know") == ["[UNK]"]
    assert tokens("un" + "known" * 19) == ["un", *["##known"] * 19]
    assert tokens("un" + "known" * 20) == ["[UNK]"]


def test_control_characters_alone_are_nothing() -> None:
    assert tokens("\u200b\u0007") == []


def test_line_ends_and_tabs_inside_a_piece_are_spaces() -> None:
    texts = ["one\ntwo", "\n", "a\tb\r\nc\n", "\u00e9\n\u00e9"]
    for case in (True, False):
        assert_as_the_library(texts, case)


def test_nothing_encodes_to_nothing() -> None:
    ids, lengths = make_tokenizer(SMALL, True).encode([])
    assert (len(ids), len(lengths)) == (0, 0)
    assert (ids.dtype, lengths.dtype) == (np.int32, np.int64)


ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
# Mostly what words are made of, so that there are long ones, short ones, known and unknown ones.
LIKELY_TEXT = st.text(
    st.sampled_from([*LETTERS, *"   \u00a0\u3000\u2028\u0308\u302e\U0001d165\u200d\u201c\x07\0\n"]),
    max_size=80,
)
TEXTS = st.lists(st.one_of(ANY_TEXT, LIKELY_TEXT), max_size=8)


@settings(max_examples=400, deadline=None)
@given(TEXTS, st.booleans())
def test_any_text_has_the_ids_that_the_library_gives(texts: list[str], do_lower_case: bool) -> None:
    assert_as_the_library(texts, do_lower_case)


@settings(max_examples=100, deadline=None)
@given(TEXTS, st.integers(1, 60))
def test_what_is_encoded_at_once_changes_nothing(texts: list[str], chunk: int) -> None:
    tokenizer = TOKENIZERS[True]
    ids, lengths = tokenizer.encode(texts)
    words = NewWords()
    tokenizer.encode(texts, words)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokenizing, "_CHUNK_CHARACTERS", chunk)
        again = NewWords()
        other_ids, other_lengths = tokenizer.encode(texts, again)
    np.testing.assert_array_equal(ids, other_ids)
    np.testing.assert_array_equal(lengths, other_lengths)
    assert words.top(1000) == again.top(1000)


@pytest.fixture(scope="module")
def trained() -> Vocabulary:
    return train_wordpiece(docstrings(300_000), size=3000, do_lower_case=True)


def test_real_text_has_the_ids_that_the_library_gives(trained: Vocabulary) -> None:
    texts = list(docstrings(700_000))
    ids, lengths = make_tokenizer(trained, True).encode(texts)
    found = wordpiece_pipeline(trained, True).encode_batch_fast(texts, add_special_tokens=False)
    assert lengths.tolist() == [len(encoding.ids) for encoding in found]
    assert ids.tolist() == list(chain.from_iterable(encoding.ids for encoding in found))


def test_a_small_memory_gives_the_same(
    trained: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = docstrings(300_000)
    ids, lengths = make_tokenizer(trained, True).encode(texts)
    monkeypatch.setattr(tokenizing, "_CHUNK_CHARACTERS", 10_000)
    forgetful = WordTokenizer(WordPieceRules(trained, True), max_words=500)
    other_ids, other_lengths = forgetful.encode(texts)
    np.testing.assert_array_equal(ids, other_ids)
    np.testing.assert_array_equal(lengths, other_lengths)


def test_new_words_are_those_that_are_not_whole() -> None:
    words = NewWords()
    TOKENIZERS[True].encode(
        ["The zebra, the Zebra; a \u201cna\u00efve\u201d ren\u00e9-naive."], words
    )
    # Without their accents, and without the signs around them. "the" and "a" are whole.
    assert words.top(10) == {"naive": 2, "zebra": 2, ";": 1, "rene": 1, "\u201c": 1, "\u201d": 1}
    assert words.top(2) == {"naive": 2, "zebra": 2}


def test_rare_new_words_are_forgotten_and_frequent_ones_kept() -> None:
    words = NewWords(kept=3)
    words.add([("a b", 5), ("c", 9), ("e", 1), ("d", 1)])
    words.prune()
    assert words.top(10) == {"c": 9, "a": 5, "b": 5}
    words.add([("d", 2)])
    assert words.top(10) == {"c": 9, "a": 5, "b": 5, "d": 2}
