from __future__ import annotations

import pytest

from corpus.mlm_records import token_table

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def test_wordpiece() -> None:
    table = token_table([*SPECIAL, "[unused0]", "run", "##ning", "#", "[", "##"], "wordpiece")
    assert table.maskable.tolist() == [False] * 6 + [True] * 5
    assert table.continues_word.tolist() == [False] * 7 + [True, False, False, True]
    assert table.replacement_ids.tolist() == [6, 7, 8, 9, 10]
    assert table.mask_id == 4


def test_sentencepiece() -> None:
    tokens = [*SPECIAL, "</s>", "<eod>", "\u2581run", "ning", "\u2581", "##x", "<0x0A>"]
    table = token_table(tokens, "sentencepiece")
    assert table.maskable.tolist() == [False] * 7 + [True] * 5
    assert table.continues_word.tolist() == [False] * 8 + [True, False, True, True]


def test_special_tokens_do_not_continue_words() -> None:
    table = token_table([*SPECIAL, "a"], "sentencepiece")
    assert table.continues_word.tolist() == [False] * 5 + [True]


def test_a_vocabulary_has_a_mask_and_words() -> None:
    with pytest.raises(ValueError, match=r"no \[MASK\]"):
        token_table(["[PAD]", "word"], "wordpiece")
    with pytest.raises(ValueError, match="only special tokens"):
        token_table(SPECIAL, "wordpiece")
