"""Rows of one and two segments: as BERT's own loop cuts them, as Hugging Face's library encodes."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, processors

from beam_jobs.labelled.segments import Frame, lay_out, truncated_lengths
from corpus.tokens.bpe import train_bpe
from corpus.tokens.tokenizing import make_tokenizer
from corpus.tokens.vocabulary import CLS, SEP, Vocabulary
from corpus.tokens.wordpiece import wordpiece_pipeline
from tests.beam_jobs.labelled.tasks import sentence
from tests.corpus.converted import VOCABULARY
from tests.corpus.real_text import docstrings

CLS_ID, SEP_ID = VOCABULARY.ids[CLS], VOCABULARY.ids[SEP]
TOKENIZER = make_tokenizer(VOCABULARY, True)
TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    st.integers(0, 300).map(sentence),
)


def cut_as_bert_does(first: int, second: int, room: int) -> tuple[int, int]:
    """``_truncate_seq_pair``: a token at a time."""
    while first + second > room:
        if first > second:
            first -= 1
        else:
            second -= 1
    return first, second


@settings(deadline=None)
@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 70))
@example(60, 60, 61)
def test_pairs_are_cut_as_berts_own_loop_does(first: int, second: int, room: int) -> None:
    found = truncated_lengths(np.array([first]), np.array([second]), room)
    assert tuple(int(one[0]) for one in found) == cut_as_bert_does(first, second, room)


def library_rows(texts: list[tuple[str, ...]], max_seq_length: int) -> list[list[list[int]]]:
    """Return ids, mask and segments by the library alone."""
    pipeline = wordpiece_pipeline(VOCABULARY, True)
    pipeline.post_processor = processors.BertProcessing((SEP, SEP_ID), (CLS, CLS_ID))
    pipeline.enable_truncation(max_seq_length, strategy="longest_first")
    pipeline.enable_padding(length=max_seq_length)
    found = [pipeline.encode(one[0], one[1] if one[1:] else None) for one in texts]
    return [[one.ids, one.attention_mask, one.type_ids] for one in found]


def our_rows(texts: list[tuple[str, ...]], max_seq_length: int) -> list[list[list[int]]]:
    ids, lengths = TOKENIZER.encode([text for one in texts for text in one])
    rows = lay_out(
        ids,
        lengths,
        len(texts[0]),
        max_seq_length=max_seq_length,
        frame=Frame(CLS_ID, SEP_ID),
    )
    arrays = (rows.input_ids, rows.input_mask, rows.segment_ids)
    return [[array[row].tolist() for array in arrays] for row in range(len(texts))]


@settings(deadline=None)
@given(st.lists(st.tuples(TEXTS), min_size=1, max_size=4), st.integers(8, 40))
def test_single_texts_are_as_the_library_encodes_them(
    texts: list[tuple[str, ...]], max_seq_length: int
) -> None:
    assert our_rows(texts, max_seq_length) == library_rows(texts, max_seq_length)


@settings(deadline=None)
@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=4), st.integers(4, 20))
def test_pairs_are_as_the_library_encodes_them(texts: list[tuple[str, ...]], half: int) -> None:
    # An odd length leaves room for an even number of tokens; see the next test for the other case.
    max_seq_length = 2 * half + 1
    assert our_rows(texts, max_seq_length) == library_rows(texts, max_seq_length)


def test_odd_token_is_the_first_texts_as_in_bert_and_not_the_longer_ones_as_in_the_library() -> (
    None
):
    texts: list[tuple[str, ...]] = [("ba " * 20, "ke " * 30)]
    ba, ke = VOCABULARY.ids["ba"], VOCABULARY.ids["ke"]
    ours, library = our_rows(texts, 8)[0][0], library_rows(texts, 8)[0][0]
    assert ours == [CLS_ID, *[ba] * 3, SEP_ID, *[ke] * 2, SEP_ID]
    assert library == [CLS_ID, *[ba] * 2, SEP_ID, *[ke] * 3, SEP_ID]


@pytest.mark.parametrize("texts", [1, 2])
def test_what_is_cut_is_counted(texts: int) -> None:
    lengths = np.array([5, 5, 6, 6][: 2 * texts]) if texts == 2 else np.array([5, 12])
    rows = lay_out(
        np.ones(int(lengths.sum()), np.int32),
        lengths,
        texts,
        max_seq_length=13,
        frame=Frame(CLS_ID, SEP_ID),
    )
    assert rows.truncated.tolist() == [False, True]


@cache
def _of_bytes() -> Vocabulary:
    return train_bpe(docstrings(10_000), size=300)


@settings(deadline=None)
@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=4), st.integers(3, 20))
def test_pairs_of_robertas_tokens_are_as_its_tokenizer_encodes_them(
    texts: list[tuple[str, ...]], half: int
) -> None:
    max_seq_length, vocabulary = 2 * half, _of_bytes()
    library = Tokenizer.from_str((vocabulary.model or b"").decode())
    library.enable_truncation(max_seq_length, strategy="longest_first")
    library.enable_padding(length=max_seq_length, pad_id=1, pad_token="<pad>")  # noqa: S106
    wanted = [library.encode(*pair) for pair in texts]
    plain = make_tokenizer(vocabulary, False)
    ids, lengths = plain.encode([text for pair in texts for text in pair])
    rows = lay_out(ids, lengths, 2, max_seq_length=max_seq_length, frame=Frame.of(vocabulary))
    assert rows.input_ids.tolist() == [one.ids for one in wanted]
    assert rows.input_mask.tolist() == [one.attention_mask for one in wanted]
