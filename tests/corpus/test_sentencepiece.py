from __future__ import annotations

import io
import random
from contextlib import suppress
from functools import cache
from typing import Any

import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus.tokens.new_words import NewWords
from corpus.tokens.sentencepiece_model import PieceType, parse_sentencepiece, read_pieces
from corpus.tokens.sentencepiece_tokens import UntrainableTextError, lower_case, train_sentencepiece
from corpus.tokens.tokenizing import make_tokenizer
from corpus.tokens.vocabulary import SPECIAL_TOKENS, Vocabulary, check_vocabulary
from tests.corpus.real_text import docstrings

TEXT = docstrings(150_000)


@cache
def trained(do_lower_case: bool = True) -> Vocabulary:
    return train_sentencepiece(TEXT, size=500, do_lower_case=do_lower_case)


def tokens(text: str, vocabulary: Vocabulary, do_lower_case: bool = True) -> list[str]:
    ids, lengths = make_tokenizer(vocabulary, do_lower_case).encode([text])
    assert lengths.tolist() == [len(ids)]
    return [vocabulary.tokens[number] for number in ids]


def library_model(**settings: Any) -> bytes:
    """Return a model trained by the library itself."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT[:200]),
        model_writer=model,
        minloglevel=2,
        **{"vocab_size": 300} | settings,
    )
    return model.getvalue()


def test_equal_text_trains_an_equal_model_in_whatever_order() -> None:
    shuffled = list(TEXT)
    random.Random(1).shuffle(shuffled)
    again = train_sentencepiece(shuffled, size=500, do_lower_case=True)
    assert again.model == trained().model
    assert again == trained()
    other = train_sentencepiece([*TEXT, "unheard-of " * 50], size=500, do_lower_case=True)
    assert other.sha256 != again.sha256


def test_special_tokens_come_first_and_are_control_symbols() -> None:
    vocabulary = trained()
    assert vocabulary.kind == "sentencepiece"
    assert vocabulary.tokens[:5] == SPECIAL_TOKENS
    assert len(vocabulary.tokens) == 500
    assert vocabulary.model is not None
    types = [piece.type for piece in read_pieces(vocabulary.model)[:5]]
    control = PieceType.CONTROL
    assert types == [control, PieceType.UNKNOWN, control, control, control]
    assert check_vocabulary(vocabulary.tokens, do_lower_case=True, vocab_size=500) == []
    assert check_vocabulary(trained(False).tokens, do_lower_case=False, vocab_size=500) == []


def test_tokens_and_types_are_what_the_library_says() -> None:
    for data in (trained().model, library_model(byte_fallback=True, vocab_size=600)):
        assert data is not None
        library = sentencepiece.SentencePieceProcessor(model_proto=data)
        pieces = read_pieces(data)
        assert [piece.text for piece in pieces] == [
            library.id_to_piece(number) for number in range(library.get_piece_size())
        ]
        for number, piece in enumerate(pieces):
            assert library.is_control(number) == (piece.type is PieceType.CONTROL)
            assert library.is_unknown(number) == (piece.type is PieceType.UNKNOWN)
            assert library.is_byte(number) == (piece.type is PieceType.BYTE)


def test_special_tokens_in_text_are_text() -> None:
    found = tokens("[MASK] [CLS] [SEP] [PAD] [UNK]", trained(False), do_lower_case=False)
    assert not set(found) & set(SPECIAL_TOKENS)
    assert "".join(found).replace("\u2581", " ").strip() == "[MASK] [CLS] [SEP] [PAD] [UNK]"


def test_unknown_characters_are_unknown() -> None:
    assert "[UNK]" in tokens("\u4e2d\u6587", trained())


def test_case_and_accents_are_removed_if_asked_for() -> None:
    assert lower_case("Ren\u00c9 \u03a3\u0391\u03a3") == "rene \u03c3\u03b1\u03c2"
    assert tokens("THE Ren\u00c9", trained()) == tokens("the rene", trained())
    cased = trained(False)
    assert tokens("THE", cased, do_lower_case=False) != tokens("the", cased, do_lower_case=False)
    assert any(token != token.lower() for token in cased.tokens[5:])
    assert all(token == token.lower() for token in trained().tokens[5:])


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=40), max_size=5))
def test_any_text_has_the_ids_that_the_library_gives(texts: list[str]) -> None:
    vocabulary = trained(False)
    ids, lengths = make_tokenizer(vocabulary, False).encode(texts)
    library = sentencepiece.SentencePieceProcessor(model_proto=vocabulary.model)
    expected = [library.encode(text) for text in texts]
    assert ids.tolist() == [number for part in expected for number in part]
    assert lengths.tolist() == [len(part) for part in expected]


def test_text_without_spaces_can_be_learned() -> None:
    draw = random.Random(2)
    words = ["\u65e5\u672c", "\u4eba\u9593", "\u306e\u3053\u3068", "\u81ea\u7531", "\u3067\u3059"]
    texts = ["".join(draw.choices(words, k=3000)) for _ in range(5)]
    vocabulary = train_sentencepiece(texts, size=300, do_lower_case=False)
    assert any(word in token for token in vocabulary.tokens for word in words)
    assert "[UNK]" not in tokens(texts[0], vocabulary, do_lower_case=False)


def test_no_text_is_refused() -> None:
    with pytest.raises(UntrainableTextError, match="cannot make a vocabulary of 500 tokens"):
        train_sentencepiece([""], size=500, do_lower_case=True)


def test_new_words_are_those_that_are_not_whole() -> None:
    words = NewWords()
    tokenizer = make_tokenizer(trained(), True)
    tokenizer.encode(["The Zebra, the", "zebra of quagga"], words)
    assert "the" not in words.top(10)
    assert words.top(2) == {"zebra": 2, "quagga": 1}


def test_a_given_model_with_other_names_for_padding_and_unknown_is_read() -> None:
    control = ["[CLS]", "[SEP]", "[MASK]"]
    data = library_model(pad_id=0, unk_id=1, bos_id=-1, eos_id=-1, control_symbols=control)
    vocabulary = parse_sentencepiece(data)
    assert vocabulary.tokens[:5] == SPECIAL_TOKENS
    assert check_vocabulary(vocabulary.tokens, do_lower_case=False, vocab_size=300) == []


def test_a_given_model_without_special_tokens_is_unfit() -> None:
    vocabulary = parse_sentencepiece(library_model())
    (problem,) = check_vocabulary(vocabulary.tokens, do_lower_case=False, vocab_size=300)
    assert "lacks [PAD], [CLS], [SEP], [MASK]" in problem


def test_special_tokens_that_text_could_become_are_refused() -> None:
    data = library_model(user_defined_symbols=["[CLS]", "[SEP]", "[MASK]"])
    with pytest.raises(ValueError, match=r"has \[CLS\], \[SEP\], \[MASK\] as .* user-defined"):
        parse_sentencepiece(data)


@given(st.binary(max_size=200))
def test_any_bytes_have_pieces_or_are_refused(data: bytes) -> None:
    with suppress(ValueError):
        assert read_pieces(data)


def test_a_model_cut_short_is_refused() -> None:
    data = trained().model
    assert data is not None
    with pytest.raises(ValueError, match="is not a SentencePiece model"):
        parse_sentencepiece(data[:-1])
