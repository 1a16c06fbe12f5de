from __future__ import annotations

import subprocess
import sys

import pytest

from corpus.tokens.vocabulary import SPECIAL_TOKENS, check_vocabulary, parse_vocabulary

WORDS = [f"word{'abcdefghij'[n % 10]}{'abcdefghijklmnopqrst'[n // 10]}" for n in range(200)]
UNCASED = [*SPECIAL_TOKENS, "[unused0]", *WORDS]
CASED = [*SPECIAL_TOKENS, *WORDS[:150], *(word.capitalize() for word in WORDS[:50])]


def problems(tokens: list[str], *, do_lower_case: bool = True, vocab_size: int = 1000) -> str:
    lines = check_vocabulary(tokens, do_lower_case=do_lower_case, vocab_size=vocab_size)
    assert len(lines) <= 1
    return "".join(lines)


def test_good_vocabularies_have_no_problem() -> None:
    assert problems(UNCASED) == ""
    assert problems(CASED, do_lower_case=False) == ""


def test_every_problem_is_named() -> None:
    tokens = ["[UNK]", "the", "the", ""]
    found = check_vocabulary(tokens, do_lower_case=True, vocab_size=3)
    assert len(found) == 4


@pytest.mark.parametrize("missing", SPECIAL_TOKENS)
def test_each_special_token_is_required(missing: str) -> None:
    assert missing in problems([token for token in UNCASED if token != missing])


def test_padding_has_to_be_token_zero() -> None:
    tokens = [*UNCASED[1:], "[PAD]"]
    assert "[PAD] is token 205" in problems(tokens)


def test_repeated_tokens_are_located() -> None:
    assert "line 207 that of line 6" in problems([*UNCASED, UNCASED[5]])


def test_lines_that_are_no_token_are_located() -> None:
    assert "line 6" in problems([*UNCASED[:5], "", *UNCASED[5:]])
    assert "line 6" in problems([*UNCASED[:5], "two words", *UNCASED[5:]])


def test_vocabulary_has_to_fit_the_embedding() -> None:
    assert problems(UNCASED, vocab_size=len(UNCASED)) == ""
    message = problems(UNCASED, vocab_size=len(UNCASED) - 1)
    assert "206 tokens" in message
    assert "205" in message


def test_cased_vocabulary_is_refused_for_lower_cased_text() -> None:
    message = problems(CASED, do_lower_case=True)
    assert "cased" in message
    assert "50 of 200" in message


def test_uncased_vocabulary_is_refused_for_cased_text() -> None:
    message = problems(UNCASED, do_lower_case=False)
    assert "uncased" in message
    assert "0 of 200" in message


def test_scripts_without_case_tell_nothing() -> None:
    chinese = [*SPECIAL_TOKENS, *(chr(0x4E00 + n) for n in range(500))]
    assert problems(chinese, do_lower_case=True) == ""
    assert problems(chinese, do_lower_case=False) == ""


@pytest.mark.parametrize("data", [b"a\nb\n", b"a\nb", b"a\r\nb\r\n", b"\xef\xbb\xbfa\nb\n"])
def test_vocabulary_file_is_read_whatever_its_line_ends(data: bytes) -> None:
    vocabulary = parse_vocabulary(data)
    assert vocabulary.tokens == ("a", "b")
    assert vocabulary.to_bytes() == b"a\nb\n"


def test_ordinary_ids_leave_out_special_and_unused_tokens() -> None:
    vocabulary = parse_vocabulary(b"[PAD]\n[unused1]\n[UNK]\nword\n##s\n[\n")
    assert vocabulary.ordinary_ids == [3, 4, 5]


def test_the_checks_need_neither_beam_nor_tokenizers() -> None:
    modules = "corpus.tokens.lineage_vocabulary, corpus.text.inputs"
    code = f"import sys, {modules}; print(*sorted(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"apache_beam", "tokenizers", "sentencepiece", "numpy"} & set(loaded)
