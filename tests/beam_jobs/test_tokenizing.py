from __future__ import annotations

import numpy as np

from beam_jobs import tokenizing
from beam_jobs.tokenizing import WordPieceTokenizer
from beam_jobs.vocabulary import SPECIAL_TOKENS, Vocabulary
from beam_jobs.wordpiece import train_wordpiece
from tests.beam_jobs.workspace import documents

VOCABULARY = Vocabulary((*SPECIAL_TOKENS, "mask", "[", "]", "un", "##known", "ren", "##e", "Un"))


def tokens(text: str, do_lower_case: bool = True) -> list[str]:
    ids, lengths = WordPieceTokenizer(VOCABULARY, do_lower_case).encode([text])
    assert lengths.tolist() == [len(ids)]
    return [VOCABULARY.tokens[i] for i in ids]


def test_words_are_cut_into_pieces() -> None:
    assert tokens("Unknown Ren\u00e9") == ["un", "##known", "ren", "##e"]
    assert tokens("Unknown", do_lower_case=False) == ["Un", "##known"]


def test_special_tokens_in_text_are_text() -> None:
    assert tokens("[MASK]") == ["[", "mask", "]"]
    assert tokens("[UNK]") == ["[", "[UNK]", "]"]


def test_unknown_and_overlong_words_are_unknown() -> None:
    assert tokens("zebra") == ["[UNK]"]
    assert tokens("un" + "known" * 20) == ["[UNK]"]


def test_control_characters_alone_are_nothing() -> None:
    assert tokens("\u200b\u0007") == []


def test_sentences_keep_their_borders_whatever_is_encoded_at_once(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    texts = ["un known", "", "mask", "ren"] * 10
    tokenizer = WordPieceTokenizer(VOCABULARY, True)
    ids, lengths = tokenizer.encode(texts)
    assert lengths.tolist() == [2, 0, 1, 1] * 10
    monkeypatch.setattr(tokenizing, "_CHUNK_CHARACTERS", 3)
    again, _ = tokenizer.encode(texts)
    np.testing.assert_array_equal(ids, again)


def test_nothing_encodes_to_nothing() -> None:
    ids, lengths = WordPieceTokenizer(VOCABULARY, True).encode([])
    assert (len(ids), len(lengths)) == (0, 0)


def test_equal_text_trains_an_equal_vocabulary() -> None:
    text = documents(50)
    first = train_wordpiece(text, size=400, do_lower_case=True)
    assert first == train_wordpiece(text, size=400, do_lower_case=True)
    assert first.tokens[:5] == SPECIAL_TOKENS
    assert len(first.tokens) == 400


def test_trained_vocabulary_knows_its_text() -> None:
    text = documents(50)
    for do_lower_case in (True, False):
        vocabulary = train_wordpiece(text, size=400, do_lower_case=do_lower_case)
        ids, _ = WordPieceTokenizer(vocabulary, do_lower_case).encode(text)
        assert vocabulary.ids["[UNK]"] not in ids


def test_rare_characters_do_not_crowd_out_words() -> None:
    text = [*documents(50), "".join(chr(0x4E00 + n) for n in range(2000))]
    vocabulary = train_wordpiece(text, size=400, do_lower_case=True)
    assert sum(len(token) == 1 for token in vocabulary.tokens) <= 100
    assert "a" in vocabulary.tokens
