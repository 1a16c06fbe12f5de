"""Masking against its definition in BERT's paper, and independence of batch and order."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus.mlm_records import MaskedRows, document_key, row_keys
from tests.corpus.mlm_records.rows import FIRST_WORD, MASK, TABLE, VOCABULARY, Rows


@pytest.fixture(scope="module")
def many() -> Rows:
    return Rows([128] * 3000, 128)


def shares(rows: Rows, masked: MaskedRows) -> tuple[float, float, float, int]:
    """Return the shares of [MASK], kept and random among the predictions, and their number."""
    used = masked.weights > 0
    shown = np.take_along_axis(masked.input_ids, masked.positions, axis=1)[used]
    original = masked.ids[used]
    hidden, kept = shown == MASK, shown == original
    count = len(original)
    return hidden.mean(), kept.mean(), (~hidden & ~kept).mean(), count


def within(share: float, wanted: float, count: int) -> bool:
    """Return whether a share is within four standard errors of its expectation."""
    return abs(share - wanted) < 4 * np.sqrt(wanted * (1 - wanted) / count)


def test_eighty_ten_ten(many: Rows) -> None:
    hidden, kept, other, count = shares(many, many.mask())
    assert count == 3000 * 19
    assert within(hidden, 0.8, count)
    # A random replacement equals the original now and then and then looks kept.
    same = 0.1 / (VOCABULARY - FIRST_WORD)
    assert within(kept, 0.1 + same, count)
    assert within(other, 0.1 - same, count)


@pytest.mark.parametrize("prob", [0.05, 0.15, 0.4])
def test_the_share_of_masked_tokens(prob: float) -> None:
    rows = Rows([*range(3, 129)] * 4, 128)
    masked = rows.mask(masked_lm_prob=prob, max_predictions_per_seq=126)
    wanted = np.minimum(np.maximum(np.rint(rows.lengths * prob), 1), rows.lengths - 2)
    np.testing.assert_array_equal(masked.weights.sum(axis=1), wanted)
    assert abs(masked.weights.sum() / rows.lengths.sum() - prob) < 0.01


def test_every_position_is_as_likely(many: Rows) -> None:
    masked = many.mask()
    hits = np.bincount(masked.positions[masked.weights > 0], minlength=128)
    assert hits[0] == hits[127] == 0
    expected = 3000 * 19 / 126
    # Chi-squared with 125 degrees of freedom has mean 125 and standard deviation 15.8.
    assert ((hits[1:127] - expected) ** 2 / expected).sum() < 125 + 5 * 15.8


def test_replacements_are_spread_over_the_vocabulary(many: Rows) -> None:
    allowed = TABLE.replacement_ids[:50]
    masked = many.mask(table=dataclasses.replace(TABLE, replacement_ids=allowed))
    shown = np.take_along_axis(masked.input_ids, masked.positions, axis=1)
    changed = (masked.weights > 0) & (shown != MASK) & (shown != masked.ids)
    counts = np.bincount(shown[changed] - FIRST_WORD, minlength=50)
    assert len(counts) == 50
    expected = counts.sum() / 50
    assert ((counts - expected) ** 2 / expected).sum() < 49 + 5 * np.sqrt(2 * 49)


def test_the_cap_holds() -> None:
    rows = Rows([128] * 50, 128)
    masked = rows.mask(max_predictions_per_seq=5)
    assert masked.positions.shape == (50, 5)
    assert (masked.weights == 1).all()


def test_at_least_one_token_is_predicted() -> None:
    masked = Rows([3] * 50, 16).mask(masked_lm_prob=0.01)
    np.testing.assert_array_equal(masked.weights.sum(axis=1), 1)
    np.testing.assert_array_equal(masked.positions[:, 0], 1)


def test_a_row_without_words_has_no_predictions() -> None:
    rows = Rows([2, 8], 16)
    masked = rows.mask()
    assert masked.weights[0].sum() == 0
    np.testing.assert_array_equal(masked.input_ids[0], rows.tokens[0])
    assert masked.weights[1].sum() == 1


def test_rows_may_be_shorter_than_the_slots() -> None:
    masked = Rows([8] * 4, 8).mask(masked_lm_prob=0.9, max_predictions_per_seq=20)
    assert masked.positions.shape == masked.ids.shape == masked.weights.shape == (4, 20)
    np.testing.assert_array_equal(masked.weights.sum(axis=1), 6)


def test_no_rows_are_no_problem() -> None:
    masked = Rows([8], 16).mask(slice(0, 0))
    assert masked.input_ids.shape == (0, 16)
    assert masked.positions.shape == (0, 20)


def test_a_row_is_masked_alone_as_in_any_batch() -> None:
    rows = Rows([5, 128, 64, 17, 100, 3], 128)
    together = rows.mask()
    shuffled = [4, 1, 5, 0, 3, 2]
    for left, right in zip(together, rows.mask(shuffled), strict=True):
        np.testing.assert_array_equal(left[shuffled], right)
    for number in range(6):
        for left, right in zip(together, rows.mask([number]), strict=True):
            np.testing.assert_array_equal(left[[number]], right)


def test_padding_does_not_change_the_choice() -> None:
    # The same row in wider arrays: an upgrade of max_seq_length alone moves no mask.
    narrow, wide = Rows([30], 32), Rows([30], 64)
    wide.tokens[:, :32] = narrow.tokens
    first, second = narrow.mask(), wide.mask()
    np.testing.assert_array_equal(first.positions, second.positions)
    np.testing.assert_array_equal(first.input_ids, second.input_ids[:, :32])


def overlap(left: MaskedRows, right: MaskedRows) -> float:
    """Return the share of predicted positions that two maskings have in common."""
    pairs = zip(left.positions[:, :19], right.positions[:, :19], strict=True)
    return float(np.mean([len(set(a) & set(b)) / 19 for a, b in pairs]))


def test_copies_and_seeds_have_masks_of_their_own(many: Rows) -> None:
    take = slice(0, 500)
    documents, rows = np.zeros(3000, np.uint64), np.arange(3000, dtype=np.uint64)
    first = many.mask(take, keys=row_keys(documents, rows, 0))
    others = [
        many.mask(take, keys=row_keys(documents, rows, 1)),
        many.mask(take, keys=row_keys(documents, rows, 2)),
        many.mask(take, keys=row_keys(documents, rows, 0), random_seed=1),
        many.mask(take, keys=row_keys(documents + np.uint64(1), rows, 0)),
        many.mask(take, keys=row_keys(documents, rows + np.uint64(1), 0)),
    ]
    again = many.mask(take, keys=row_keys(documents, rows, 0))
    assert overlap(first, again) == 1.0
    for other in others:
        assert abs(overlap(first, other) - 19 / 126) < 0.02
    for left, right in itertools.pairwise(others):
        assert abs(overlap(left, right) - 19 / 126) < 0.02


def test_keys_of_documents_rows_and_copies_do_not_collide() -> None:
    random = np.random.default_rng(1)
    documents = np.repeat(random.integers(0, 2**63, 200, dtype=np.uint64), 100)
    rows = np.tile(np.arange(100, dtype=np.uint64), 200)
    keys = np.concatenate([row_keys(documents, rows, copy) for copy in range(5)])
    assert len(np.unique(keys)) == len(keys) == 100_000


def test_rows_may_be_of_different_epochs() -> None:
    documents, rows = np.array([1, 1, 2], np.uint64), np.array([0, 0, 5], np.uint64)
    together = row_keys(documents, rows, np.array([0, 3, 2**40], np.uint64))
    alone = [row_keys(documents[[n]], rows[[n]], epoch)[0] for n, epoch in enumerate([0, 3, 2**40])]
    np.testing.assert_array_equal(together, np.array(alone))


def test_a_document_key_is_of_its_content() -> None:
    digest = hashlib.sha256(b"some text").digest()
    assert document_key(digest) == np.uint64(int.from_bytes(digest[:8], "little"))
    assert document_key(digest).dtype == np.uint64


def test_masks_stay_what_they_are() -> None:
    # Records of old and new partitions are compared; another hash would break that silently.
    rows = Rows([40], 64)
    rows.tokens[0, 1:39] = np.arange(101, 139)
    masked = rows.mask()
    assert masked.positions[0, :6].tolist() == [3, 5, 6, 10, 11, 31]
    assert masked.input_ids[0, masked.positions[0, :6]].tolist() == [103, 4, 4, 4, 62, 4]


@settings(max_examples=150, deadline=None)
@given(
    data=st.data(),
    width=st.integers(16, 80),
    prob=st.floats(0.01, 0.99),
    cap=st.integers(1, 90),
    seed=st.integers(0, 2**31 - 1),
)
def test_invariants(data: st.DataObject, width: int, prob: float, cap: int, seed: int) -> None:
    lengths = data.draw(st.lists(st.integers(2, width), min_size=1, max_size=8))
    rows = Rows(lengths, width, seed=seed % 1000)
    before = rows.tokens.copy()
    masked = rows.mask(masked_lm_prob=prob, max_predictions_per_seq=cap, random_seed=seed)
    np.testing.assert_array_equal(rows.tokens, before)

    used = masked.weights > 0
    counts = used.sum(axis=1)
    assert masked.positions.shape == masked.ids.shape == masked.weights.shape == (len(lengths), cap)
    assert [array.dtype for array in masked] == [np.int32, np.int32, np.int32, np.float32]
    # Predictions come first, in ascending order, then zeros.
    np.testing.assert_array_equal(used, np.arange(cap) < counts[:, None])
    assert all(
        (np.diff(row[flags]) > 0).all() for row, flags in zip(masked.positions, used, strict=True)
    )
    assert not masked.positions[~used].any()
    assert not masked.ids[~used].any()
    # Only words are predicted, at least one where there is one, at most the cap.
    row_of, _ = np.nonzero(used)
    assert rows.maskable[row_of, masked.positions[used]].all()
    np.testing.assert_array_equal(masked.ids[used], rows.tokens[row_of, masked.positions[used]])
    assert (counts >= np.minimum(rows.maskable.sum(axis=1), 1)).all()
    # Nothing but the predicted positions changes, and no special token but [MASK] appears.
    untouched = np.ones_like(rows.tokens, bool)
    untouched[row_of, masked.positions[used]] = False
    np.testing.assert_array_equal(masked.input_ids[untouched], rows.tokens[untouched])
    shown = masked.input_ids[~untouched]
    assert ((shown == MASK) | (shown >= FIRST_WORD)).all()
