"""Rows that a graph makes of texts are those of the data job's records."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
import tensorflow as tf

from beam_jobs.labelled.segments import Frame, lay_out
from corpus.tokens.tokenizing import make_tokenizer
from tests.training.finetuning.text_tasks import texts, vocabulary
from training.exporting.text_ops import SentencePieceText, WordPieceText
from training.finetuning.exporting.segment_rows import SegmentRowBuilder

SETTINGS = {"do_lower_case": True, "normalization": "NFC"}


def examples(count: int) -> list[tuple[str, str]]:
    """Return pairs of all sorts of lengths, some empty, some much too long."""
    draw = np.random.default_rng(1)
    words = " ".join(texts(60)).split()
    sizes = draw.integers(0, 14, (count, 2))
    sizes[:: count // 8] = 200
    begins = draw.integers(0, len(words) - 200, (count, 2))
    first, second = (
        [" ".join(words[a : a + n]) for a, n in zip(begins[:, i], sizes[:, i], strict=True)]
        for i in (0, 1)
    )
    return list(zip(first, second, strict=True))


@pytest.mark.parametrize("kind", ["wordpiece", "sentencepiece"])
@pytest.mark.parametrize("length", [8, 15, 16])
def test_rows_are_those_of_the_data_job(
    kind: Literal["wordpiece", "sentencepiece"], length: int
) -> None:
    found = vocabulary(kind)
    if found.model is None:
        text_ops = WordPieceText(found.tokens, **SETTINGS)
    else:
        text_ops = SentencePieceText(found.model, **SETTINGS)
    build = SegmentRowBuilder(text_ops, found.tokens, length)
    tokenizer = make_tokenizer(found, True)
    pairs = examples(200)
    for parts in (1, 2):
        used = [pair[:parts] for pair in pairs]
        ids, lengths = tokenizer.encode([text for texts in used for text in texts])
        frame = Frame.of(found)
        wanted = lay_out(ids, lengths, parts, max_seq_length=length, frame=frame)
        assert 40 < wanted.truncated.sum() < 200
        rows = build(*(tf.constant([texts[n] for texts in used]) for n in range(parts)))
        assert rows.input_word_ids.shape == (200, length)
        if kind == "wordpiece":
            assert np.array_equal(rows.input_word_ids, wanted.input_ids)
        else:
            # Another version of the library; see docs/reference/formats.md.
            assert np.mean(rows.input_word_ids == wanted.input_ids) > 0.97
        assert np.array_equal(rows.input_mask, wanted.input_mask) or kind == "sentencepiece"
        assert np.array_equal(rows.input_type_ids, wanted.segment_ids) or kind == "sentencepiece"


def test_rows_are_as_long_as_the_longest_and_special_tokens_are_text() -> None:
    found = vocabulary("wordpiece")
    build = SegmentRowBuilder(WordPieceText(found.tokens, **SETTINGS), found.tokens, 32)
    rows = build(tf.constant(["", "[MASK]"]), tf.constant(["[SEP]", ""]))
    ids, _ = make_tokenizer(found, True).encode(["[MASK]", "[SEP]"])
    assert not {found.ids["[MASK]"], found.ids["[SEP]"]} & set(ids.tolist())
    assert rows.input_mask.shape[1] == max(rows.input_mask.numpy().sum(axis=1)) < 32
    kept = rows.input_word_ids.numpy()
    assert np.count_nonzero(kept == found.ids["[SEP]"], axis=1).tolist() == [2, 2]
    assert found.ids["[MASK]"] not in kept
