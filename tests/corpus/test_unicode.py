"""Every script there is, compared with Hugging Face's tokenizer and with Google's own."""

from __future__ import annotations

import unicodedata
from functools import cache
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

from corpus.tokens.tokenizing import make_tokenizer
from corpus.tokens.vocabulary import SPECIAL_TOKENS, Vocabulary
from corpus.tokens.wordpiece import wordpiece_pipeline
from corpus.tokens.wordpiece_training import train_wordpiece
from tests.corpus.google_differences import DIFFERENCES
from tests.corpus.real_text import docstrings

# Of these thousands of characters are alike, so one in so many is looked at.
ALIKE = (
    "CJK ",
    "HANGUL SYLLABLE",
    "TANGUT",
    "EGYPTIAN",
    "CUNEIFORM",
    "ANATOLIAN",
    "NUSHU",
    "KHITAN",
)
ONE_IN = 41
# All characters take long with both libraries, so `make test` looks at some of every script.
SHARE = pytest.mark.parametrize(
    "one_in", [pytest.param(7, id="some"), pytest.param(1, id="all", marks=pytest.mark.thorough)]
)


@cache
def characters(one_in: int) -> list[str]:
    """Return assigned characters, one in so many; of large uniform scripts fewer."""
    assigned = [
        chr(code)
        for code in range(1, 0x110000)
        if unicodedata.category(chr(code)) not in ("Cn", "Cs")
        and (unicodedata.category(chr(code)) != "Co" or code % 997 == 0)
    ]
    different = [
        sign
        for sign in assigned
        if not unicodedata.name(sign, "").startswith(ALIKE) or ord(sign) % ONE_IN == 0
    ]
    return different[::one_in]


@cache
def vocabulary(one_in: int) -> Vocabulary:
    """Return one in which every character, alone and inside a word, has an id of its own."""
    signs = chain(characters(one_in), "abcx.,\u0301\u4e2d\u3042")
    forms = (form for c in signs for form in (c, c.lower(), unicodedata.normalize("NFD", c)))
    alone = sorted({part for form in forms for part in form.lower() + form if not part.isspace()})
    alone = [sign for sign in alone if unicodedata.category(sign) != "Cc"]
    return Vocabulary((*SPECIAL_TOKENS, *alone, *(f"##{sign}" for sign in alone)))


def uses(sign: str) -> str:
    """Return a character alone, inside words, doubled, between signs, with accents, in Chinese."""
    return (
        f"{sign} a{sign}b {sign}{sign} .{sign}, {sign}\u0301x \u0323{sign}\u0301\u0323 "
        f"a\u0301{sign} \u4e2d{sign}\u3042 A\u00a0{sign}\u3000{sign}\u2028B \u03a3{sign}\u03a3 "
        # Marks that lower-casing puts in order, but does not take away.
        f"b\u302e{sign}\u302f\U0001d165{sign}\u302e."
    )


def assert_as_hugging_face(texts: list[str], tokens: Vocabulary, do_lower_case: bool) -> None:
    ids, lengths = make_tokenizer(tokens, do_lower_case).encode(texts)
    library = wordpiece_pipeline(tokens, do_lower_case)
    found = [e.ids for e in library.encode_batch_fast(texts, add_special_tokens=False)]
    parts = [part.tolist() for part in np.split(ids, np.cumsum(lengths)[:-1])]
    differ = [text for text, a, b in zip(texts, parts, found, strict=True) if a != b]
    assert differ == []


@SHARE
@pytest.mark.parametrize("do_lower_case", [True, False])
def test_every_script_is_as_in_hugging_face(do_lower_case: bool, one_in: int) -> None:
    texts = [uses(sign) for sign in characters(one_in)]
    assert_as_hugging_face(texts, vocabulary(one_in), do_lower_case)


def googles_tokens(texts: list[str], tokens: Vocabulary, case: bool, path: Path) -> list[list[str]]:
    from official.nlp.tools.tokenization import FullTokenizer

    path.write_bytes(tokens.to_bytes())
    tokenizer = FullTokenizer(str(path), do_lower_case=case)
    return [tokenizer.tokenize(text) for text in texts]


def our_tokens(texts: list[str], tokens: Vocabulary, case: bool) -> list[list[str]]:
    ids, lengths = make_tokenizer(tokens, case).encode(texts)
    parts = np.split(ids, np.cumsum(lengths)[:-1])
    return [[tokens.tokens[number] for number in part] for part in parts]


@SHARE
@pytest.mark.parametrize("do_lower_case", [True, False])
def test_every_script_is_as_in_google_bert_but_for_the_listed(
    do_lower_case: bool, one_in: int, tmp_path: Path
) -> None:
    signs, tokens = characters(one_in), vocabulary(one_in)
    texts = [f"{sign} a{sign}b {sign}{sign} .{sign}, {sign}\u0301x a\u0301{sign}" for sign in signs]
    theirs = googles_tokens(texts, tokens, do_lower_case, tmp_path / "vocab.txt")
    ours = our_tokens(texts, tokens, do_lower_case)
    differ = {ord(sign) for sign, a, b in zip(signs, ours, theirs, strict=True) if a != b}
    listed = {
        code
        for difference in DIFFERENCES
        if do_lower_case or not difference.only_lower_case
        for code in difference.codes()
    }
    assert differ == listed & set(map(ord, signs))


def test_real_text_is_as_in_google_bert(tmp_path: Path) -> None:
    texts = list(docstrings(300_000))
    tokens = train_wordpiece(texts, size=3000, do_lower_case=True)
    theirs = googles_tokens(texts, tokens, True, tmp_path / "vocab.txt")
    assert our_tokens(texts, tokens, True) == theirs


def test_only_very_long_words_differ_from_google_bert(tmp_path: Path) -> None:
    # Google's limit was 200, that of tf-models is 400; Hugging Face's, and so ours, is 100.
    tokens = Vocabulary((*SPECIAL_TOKENS, "a", "##a"))
    texts = ["a" * 100, "a" * 101]
    short, long = googles_tokens(texts, tokens, True, tmp_path / "vocab.txt")
    assert our_tokens(texts, tokens, True) == [short, ["[UNK]"]]
    assert len(long) == 101
