from __future__ import annotations

import hashlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.text.content import MAX_SENTENCE_CHARACTERS, Content, ContentMaker, split_of
from corpus.text.drops import DropReason
from corpus.text.inputs import InputFormat
from pipeline_config.data_schema import CorpusConfig
from pipeline_store.formats import Split


def content(text: str, input_format: InputFormat = "text", **settings: Any) -> Content:
    split = settings.pop("split_sentences", True)
    maker = ContentMaker(CorpusConfig(**settings), input_format, split_sentences=split)
    found = maker.content_of(text, 7)
    assert isinstance(found, Content)
    assert found.ordinal == 7
    return found


def test_running_text_is_cut_at_sentence_ends() -> None:
    text = "One sentence\nover two lines. Another one? Yes! Dr. Smith paid 3.5 pounds, e.g. today."
    assert content(text).sentences == [
        "One sentence over two lines.",
        "Another one?",
        "Yes!",
        "Dr. Smith paid 3.5 pounds, e.g. today.",
    ]


def test_sentences_end_as_the_language_says() -> None:
    text = "Das ist z.B. gut. Am 3. Mai kam er."
    assert content(text, language="de").sentences == ["Das ist z.B. gut.", "Am 3. Mai kam er."]
    assert content(text, language="xx").sentences[0].startswith("Das ist")


def test_full_width_marks_end_sentences_without_a_space() -> None:
    found = content("\u4e00\u3002\u4e8c\uff01\u4e09", language="zh")
    assert found.sentences == ["\u4e00\u3002", "\u4e8c\uff01", "\u4e09"]


@pytest.mark.parametrize("split_sentences", [True, False])
def test_sentences_format_keeps_lines(split_sentences: bool) -> None:
    found = content("One. Two.\n three \n", "sentences", split_sentences=split_sentences)
    assert found.sentences == ["One. Two.", "three"]


def test_text_stays_whole_when_sentences_are_not_asked_for() -> None:
    text = "One sentence\nover two lines. Another one?"
    found = content(text, split_sentences=False)
    assert found.sentences == ["One sentence over two lines. Another one?"]


@pytest.mark.parametrize("split_sentences", [True, False])
def test_no_text_is_lost_in_endless_sentences(split_sentences: bool) -> None:
    words = " ".join(f"word{n}" for n in range(5000))
    pieces = content(words, split_sentences=split_sentences).sentences
    assert len(pieces) > 1
    assert max(map(len, pieces)) <= MAX_SENTENCE_CHARACTERS
    assert " ".join(pieces) == words
    unbroken = "x" * (3 * MAX_SENTENCE_CHARACTERS)
    assert "".join(content(unbroken).sentences) == unbroken


def test_quote_that_is_not_closed_hides_no_sentences() -> None:
    text = 'The 5" pipe. ' + "A plain sentence here. " * 50 + 'The 6" pipe. The end.'
    assert content(text).sentences == [
        'The 5" pipe.',
        *["A plain sentence here."] * 50,
        'The 6" pipe.',
        "The end.",
    ]


def test_sentences_go_over_windows() -> None:
    expected = [f"Sentence {n} has {'very ' * (n % 90)}many words." for n in range(5000)]
    assert content(" ".join(expected)).sentences == expected


@given(
    text=st.text(
        st.one_of(
            st.characters(exclude_categories=["Cs"]),
            st.sampled_from("aB \n.!?\"'()\u2026\u3002\uff01\u201c\u201d\u00bf1"),
        )
    ),
    language=st.sampled_from(["en", "de", "ja", "ar", "hi", "my", "xx"]),
)
def test_sentences_are_the_text(text: str, language: str) -> None:
    corpus = CorpusConfig(language=language)
    whole = ContentMaker(corpus, "text").content_of(text)
    split = ContentMaker(corpus, "text", split_sentences=True).content_of(text)
    if isinstance(whole, DropReason) or isinstance(split, DropReason):
        assert whole is split is DropReason.EMPTY
        return
    assert whole.sha256 == split.sha256
    assert all(sentence == sentence.strip(" ") != "" for sentence in split.sentences)
    assert "".join(split.sentences).replace(" ", "") == whole.sentences[0].replace(" ", "")


@pytest.mark.parametrize("text", ["", " \n\t", "\n\n", "\ufeff \x07"])
def test_nothing_is_no_content(text: str) -> None:
    for input_format in ("text", "sentences"):
        maker = ContentMaker(CorpusConfig(), input_format)
        assert maker.content_of(text) is DropReason.EMPTY


def test_hash_is_of_the_words_not_of_their_layout() -> None:
    same = {
        content("One two.\nThree.").sha256,
        content("One two.  Three. ", "jsonl").sha256,
        content("\nOne two.\r\nThree.", "sentences").sha256,
        content("One two.\tThree.\x07", "csv", split_sentences=False).sha256,
    }
    assert same == {hashlib.sha256(b"One two. Three.").digest()}
    assert content("one two. Three.").sha256 not in same


def test_hash_does_not_depend_on_how_accents_are_encoded() -> None:
    composed, decomposed = "Ren\u00e9", "Rene\u0301"
    assert content(composed).sha256 == content(decomposed).sha256


def test_split_follows_the_content_at_the_wanted_share() -> None:
    hashes = [hashlib.sha256(str(n).encode()).digest() for n in range(4000)]
    held_out = [digest for digest in hashes if split_of(digest, 0.1) is Split.VALIDATION]
    # 400 expected; four standard deviations are 76.
    assert abs(len(held_out) - 400) < 76
    assert all(split_of(digest, 0.2) is Split.VALIDATION for digest in held_out)
