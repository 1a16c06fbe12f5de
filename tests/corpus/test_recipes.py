"""The recipes, seen in the records of a shard."""

from __future__ import annotations

import numpy as np
import pytest

from corpus.mlm_records import MaskingRecipe, mask_rows, row_keys, token_table
from corpus.rows.conversion import row_sets
from corpus.tokens.vocabulary import CLS, MASK, SEP, UNK
from pipeline_store.formats import Split
from tests.beam_jobs.workspace import as_text, documents, make_config
from tests.corpus.converted import PACKINGS, SPECIAL, UNITS, VOCABULARY, Converted, convert

TEXTS = documents(60)
DATA = as_text(TEXTS)


def words_of(converted: Converted, split: Split, length: int | None = None) -> list[int]:
    return [t for row in converted.original(split, length) for t in row if t not in SPECIAL]


@pytest.mark.parametrize("packing", ["doc_sentences", "full_sentences"])
def test_every_token_is_in_one_row_in_order_at_both_lengths(packing: str) -> None:
    converted = convert(DATA, masking__packing=packing, masking__extra_max_seq_length=48)
    plain = convert(
        DATA,
        masking__max_seq_length=4096,
        masking__max_predictions_per_seq=614,
        model__max_position_embeddings=4096,
    )
    for split in Split:
        assert words_of(converted, split) == words_of(converted, split, 48)
        assert words_of(converted, split) == words_of(plain, split)


def test_full_rows_are_for_training_only() -> None:
    full = convert(DATA, masking__packing="full_sentences")
    document = convert(DATA, masking__packing="doc_sentences")
    assert full.records(Split.VALIDATION) == document.records(Split.VALIDATION)
    assert len(full.records()) < len(document.records())
    assert sum(row.count(VOCABULARY.ids[SEP]) for row in full.original()) > len(full.records())


def test_pairs_on_both_sides() -> None:
    converted = convert(DATA, masking__packing="segment_pair")
    for split in Split:
        parsed = converted.parsed(split)
        assert set(np.unique(parsed["next_sentence_labels"])) == {0, 1}
        for row, segments in zip(converted.original(split), parsed["segment_ids"], strict=True):
            first = row.index(VOCABULARY.ids[SEP]) + 1
            assert row[0] == VOCABULARY.ids[CLS]
            assert row[-1] == VOCABULARY.ids[SEP]
            expected = [0] * first + [1] * (len(row) - first)
            assert segments.tolist() == expected + [0] * (len(segments) - len(row))


@pytest.mark.parametrize("packing", PACKINGS)
def test_dynamic_rows_masked_by_the_trainer_are_the_static_ones(packing: str) -> None:
    static = convert(DATA, masking__packing=packing, masking__unit="word")
    dynamic = convert(DATA, masking__packing=packing, masking__unit="word", masking__dynamic=True)
    assert dynamic.records(Split.VALIDATION) == static.records(Split.VALIDATION)
    rows, wanted = dynamic.parsed(), static.parsed()
    assert (~np.isin(rows["input_ids"], [VOCABULARY.ids[MASK]])).all()
    masking = dynamic.config.masking
    masked = mask_rows(
        rows["input_ids"].astype(np.int32),
        rows["input_mask"].sum(axis=1).astype(np.int32),
        row_keys(
            rows["document_id"][:, 0].view(np.uint64), rows["row_number"][:, 0].view(np.uint64), 0
        ),
        token_table(VOCABULARY.tokens, "wordpiece"),
        MaskingRecipe(
            masking.masked_lm_prob,
            masking.max_predictions_per_seq,
            masking.random_seed,
            "word",
        ),
    )
    np.testing.assert_array_equal(masked.input_ids, wanted["input_ids"])
    np.testing.assert_array_equal(masked.positions, wanted["masked_lm_positions"])
    np.testing.assert_array_equal(masked.ids, wanted["masked_lm_ids"])
    np.testing.assert_array_equal(masked.weights, wanted["masked_lm_weights"])


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("packing", PACKINGS)
def test_no_special_token_is_predicted_or_put_in(packing: str, unit: str) -> None:
    data = as_text([*TEXTS, *(f"{text} \u2603 unknown [MASK] [SEP]" for text in documents(20, 90))])
    converted = convert(data, masking__packing=packing, masking__unit=unit)
    parsed, before = converted.parsed(), converted.original()
    used = parsed["masked_lm_weights"] > 0
    assert not np.isin(parsed["masked_lm_ids"][used], SPECIAL).any()
    shown = np.take_along_axis(parsed["input_ids"], parsed["masked_lm_positions"], axis=1)[used]
    other = [token for token in SPECIAL if token != VOCABULARY.ids[MASK]]
    assert not np.isin(shown, other).any()
    # A literal [MASK] is text: nothing but masking puts the token in.
    assert not any(VOCABULARY.ids[MASK] in row for row in before)
    assert any(VOCABULARY.ids[UNK] in row for row in before)
    counts = used.sum(axis=1)
    assert counts.max() <= converted.config.masking.max_predictions_per_seq
    rows = converted.statistics.rows[converted.rows()]
    assert rows.masked_tokens == counts.sum()
    assert rows.tokens == sum(map(len, before))
    assert abs(counts.sum() / rows.tokens - 0.15) < 0.01


def test_copies_have_masks_of_their_own() -> None:
    three, one = convert(DATA, masking__dupe_factor=3), convert(DATA)
    records = three.records()
    assert records[::3] == one.records()
    assert len(records) == 3 * len(one.records())
    # Rows of a handful of tokens may be masked alike by chance.
    assert len(set(records)) > 0.99 * len(records)
    before = three.original()
    assert before[::3] == before[1::3] == before[2::3]
    assert three.records(Split.VALIDATION) == one.records(Split.VALIDATION)
    rows = three.rows()
    assert three.statistics.rows[rows].documents == one.statistics.rows[rows].documents
    assert three.statistics.rows[rows].tokens == 3 * one.statistics.rows[rows].tokens
    # The rows' lengths are counted once.
    assert three.statistics.data == one.statistics.data


def test_row_sets() -> None:
    config = make_config(masking__dynamic=True, masking__extra_max_seq_length=48)
    main = config.masking.max_seq_length
    assert [(rows.split, rows.max_seq_length, rows.masked) for rows in row_sets(config)] == [
        (Split.TRAIN, main, False),
        (Split.VALIDATION, main, True),
        (Split.TRAIN, 48, False),
        (Split.VALIDATION, 48, True),
    ]
