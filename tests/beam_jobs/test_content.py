from __future__ import annotations

import hashlib

import pytest

from beam_jobs.content import MAX_SENTENCE_CHARACTERS, content_of, split_of
from beam_jobs.inputs import InputFormat
from pipeline_store.formats import Split


def sentences(text: str, input_format: InputFormat = "text") -> list[str]:
    return content_of(text, input_format).sentences


def test_running_text_is_cut_at_sentence_ends() -> None:
    text = "One sentence\nover two lines. Another one? Yes! It costs 3.5 e.g. today."
    assert sentences(text) == [
        "One sentence over two lines.",
        "Another one?",
        "Yes!",
        "It costs 3.5 e.g. today.",
    ]


def test_full_width_marks_end_sentences_without_a_space() -> None:
    assert sentences("\u4e00\u3002\u4e8c\uff01\u4e09") == ["\u4e00\u3002", "\u4e8c\uff01", "\u4e09"]


def test_sentences_format_keeps_lines() -> None:
    assert sentences("One. Two.\n three \n", "sentences") == ["One. Two.", "three"]


def test_no_text_is_lost_in_endless_sentences() -> None:
    words = " ".join(f"word{n}" for n in range(5000))
    pieces = sentences(words)
    assert len(pieces) > 1
    assert max(map(len, pieces)) <= MAX_SENTENCE_CHARACTERS
    assert " ".join(pieces) == words
    unbroken = "x" * (3 * MAX_SENTENCE_CHARACTERS)
    assert "".join(sentences(unbroken)) == unbroken


@pytest.mark.parametrize("text", ["", " \n\t", "\n\n"])
def test_nothing_is_no_sentence(text: str) -> None:
    assert sentences(text) == []


def test_hash_is_of_the_words_not_of_their_layout() -> None:
    same = {
        content_of("One two.\nThree.", "text").sha256,
        content_of("One two.  Three. ", "jsonl").sha256,
        content_of("\nOne two.\nThree.", "sentences").sha256,
    }
    assert same == {hashlib.sha256(b"One two. Three.").digest()}
    assert content_of("one two. Three.", "text").sha256 not in same


def test_hash_does_not_depend_on_how_accents_are_encoded() -> None:
    composed, decomposed = "Ren\u00e9", "Rene\u0301"
    assert content_of(composed, "text").sha256 == content_of(decomposed, "text").sha256


def test_split_follows_the_content_at_the_wanted_share() -> None:
    hashes = [hashlib.sha256(str(n).encode()).digest() for n in range(4000)]
    held_out = [digest for digest in hashes if split_of(digest, 0.1) is Split.VALIDATION]
    # 400 expected; four standard deviations are 76.
    assert abs(len(held_out) - 400) < 76
    assert all(split_of(digest, 0.2) is Split.VALIDATION for digest in held_out)
