"""T5's span corruption: how much is hidden, where, and that nothing is lost."""

from __future__ import annotations

from collections import Counter
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.mlm_records import MaskedRows, MaskingRecipe, mask_rows, row_keys, token_table
from corpus.mlm_records.spans import restore_rows
from corpus.tokens.vocabulary import sentinel
from pipeline_config.row_shapes import FRAME, span_counts

WORDS, END = 200, 1
TOKENS = ["[PAD]", "[SEP]", "[UNK]", *(f"w{number}" for number in range(3, WORDS))]
TOKENS += [sentinel(number) for number in reversed(range(100))]
TABLE = token_table(TOKENS, "t5")
FIRST = TOKENS.index(sentinel(0))


def rows_of(lengths: list[int], width: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows whose text counts upwards, in their frame, and their lengths."""
    tokens = np.zeros((len(lengths), width), np.int32)
    for row, length in enumerate(lengths):
        tokens[row, :length] = [END, *(3 + (row + np.arange(length - 2)) % (WORDS - 3)), END]
    return tokens, np.array(lengths, np.int32)


def keys_of(count: int, epoch: int = 0) -> np.ndarray:
    numbers = np.arange(count, dtype=np.uint64)
    return row_keys(numbers * np.uint64(2**40 + 7), numbers % np.uint64(3), epoch)


def corrupted(
    tokens: np.ndarray, lengths: np.ndarray, keys: np.ndarray, slots: int = 110, **changes: float
) -> MaskedRows:
    changes = {"masked_lm_prob": 0.15, "mean_span_tokens": 3.0, "random_seed": 12345} | changes
    seed, share = changes.pop("random_seed"), changes["masked_lm_prob"]
    counts = partial(span_counts, **changes)
    recipe = MaskingRecipe(share, slots, int(seed), "sentinel", span_counts=counts)
    return mask_rows(tokens, lengths, keys, TABLE, recipe)


def test_a_known_seed_has_known_spans() -> None:
    tokens, lengths = rows_of([32], 34)
    row = corrupted(tokens, lengths, keys_of(1), slots=9, mean_span_tokens=2.0)
    source, target = row.input_ids[0].tolist(), row.ids[0].tolist()
    assert source == [
        1,
        3,
        4,
        5,
        6,
        7,
        8,
        299,
        11,
        12,
        13,
        14,
        15,
        16,
        17,
        18,
        19,
        20,
        21,
        22,
        23,
        24,
        25,
        26,
        27,
        28,
        29,
        30,
        298,
        1,
        0,
        0,
        0,
        0,
    ]
    assert target == [299, 9, 10, 298, 31, 32, 1, 0, 0]
    assert row.weights[0].tolist() == [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0]


def test_sentinels_count_from_the_first_and_stand_for_what_is_missing() -> None:
    tokens, lengths = rows_of([128], 128)
    row = corrupted(tokens, lengths, keys_of(1))
    source, target = row.input_ids[0].tolist(), row.ids[0].tolist()
    counts = span_counts(126, 0.15, 3.0)
    assert counts == (19, 6)
    used = [FIRST - number for number in range(counts.spans)]
    assert [token for token in source if token >= WORDS] == used
    assert [token for token in target if token >= WORDS] == used
    # A text begins with what is left, ends with a span, and both end with </s>.
    assert source[1] < WORDS
    assert source[126 - 19 + 6 :][:2] == [used[-1], END]
    assert target[0] == used[0]
    assert target[19 + 6] == END
    assert not any(target[19 + 6 + 1 :])


@given(
    st.lists(st.integers(2, 70), min_size=1, max_size=20),
    st.floats(0.02, 0.7),
    st.floats(1.0, 10.0),
    st.integers(0, 2**31 - 1),
)
def test_source_and_target_rebuild_the_row(
    lengths: list[int], share: float, mean: float, seed: int
) -> None:
    tokens, sizes = rows_of(lengths, 70)
    keys = keys_of(len(lengths))
    changes = {"masked_lm_prob": share, "mean_span_tokens": mean, "random_seed": seed}
    row = corrupted(tokens, sizes, keys, **changes)
    parts = (row.input_ids, row.ids, row.positions, row.weights)
    np.testing.assert_array_equal(restore_rows(*parts, sizes.astype(np.int64)), tokens)
    for number, size in enumerate(lengths):
        hidden, spans = span_counts(size - FRAME, share, mean)
        assert row.weights[number].sum() == (hidden + spans + 1 if spans else 0)
        assert np.count_nonzero(row.input_ids[number]) == size - hidden + spans


def test_a_row_is_the_same_in_any_batch_and_another_in_each_epoch() -> None:
    tokens, lengths = rows_of(list(range(40, 104)), 104)
    keys = keys_of(64)
    whole = corrupted(tokens, lengths, keys)
    for part in (slice(0, 1), slice(5, 30), slice(63, 64)):
        alone = corrupted(tokens[part], lengths[part], keys[part])
        for mine, theirs in zip(alone, whole, strict=True):
            np.testing.assert_array_equal(mine, theirs[part])
    other = corrupted(tokens, lengths, keys_of(64, epoch=1))
    assert (other.ids != whole.ids).any(axis=1).all()


def test_all_divisions_are_alike() -> None:
    # 4 of 8 tokens in 2 spans: 3 ways to divide what is hidden, 3 to divide what is left.
    rows = 9000
    tokens, lengths = rows_of([10], 10)
    tokens, lengths = np.repeat(tokens, rows, axis=0), np.repeat(lengths, rows)
    found = corrupted(tokens, lengths, keys_of(rows), masked_lm_prob=0.5, mean_span_tokens=2.0)
    counts = Counter(map(tuple, found.ids[:, :7].tolist()))
    assert len(counts) == 9
    # Six standard deviations of a count of 1000.
    assert all(abs(count - 1000) < 6 * (rows * 8 / 81) ** 0.5 for count in counts.values())


def test_a_target_that_has_no_room_is_refused() -> None:
    tokens, lengths = rows_of([70], 70)
    with pytest.raises(ValueError, match="targets of 14 tokens and 3 sentinels; there are 13"):
        corrupted(tokens, lengths, keys_of(1), slots=13)


def test_a_vocabulary_without_sentinels_is_refused() -> None:
    with pytest.raises(ValueError, match="has no <extra_id_0>"):
        token_table(TOKENS[:WORDS], "t5")
