"""How many examples and steps a trial has."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.finetuning.lengths import evaluation_interval, kept_rows, steps_of


@given(st.integers(1, 2000), st.integers(1, 1000), st.integers(0, 2**31 - 1))
def test_kept_are_exactly_the_floor_and_smaller_shares_nest(
    examples: int, thousandths: int, seed: int
) -> None:
    share = thousandths / 1000
    rows = kept_rows(examples, share, seed)
    assert len(rows) == examples * thousandths // 1000
    assert sorted(set(rows.tolist())) == rows.tolist()
    smaller = kept_rows(examples, thousandths // 2 / 1000 or 0.001, seed)
    assert set(smaller.tolist()) <= set(kept_rows(examples, 1.0, seed).tolist())
    if thousandths > 1:
        assert set(smaller.tolist()) <= set(rows.tolist())


def test_a_share_is_the_decimal_number_that_it_is_written_as() -> None:
    # In binary, 0.29 * 100 is less than 29.
    assert math.floor(0.29 * 100) == 28
    assert len(kept_rows(100, 0.29, seed=1)) == 29


def test_seeds_choose_other_examples() -> None:
    assert kept_rows(100, 0.5, seed=1).tolist() != kept_rows(100, 0.5, seed=2).tolist()


@pytest.mark.parametrize(
    ("examples", "batch_size", "epochs", "steps"),
    [(48, 8, 3.0, 18), (49, 8, 3.0, 19), (5, 32, 1.0, 1), (100, 32, 0.1, 1), (100, 10, 0.7, 7)],
)
def test_steps_cover_the_epochs(examples: int, batch_size: int, epochs: float, steps: int) -> None:
    assert steps_of(examples, batch_size, epochs) == steps
    assert steps * batch_size >= examples * Fraction(str(epochs))


@pytest.mark.parametrize(("per_epoch", "interval"), [(0, 60), (1, 20), (2, 10), (3, 7), (100, 1)])
def test_checkpoints_of_an_epoch(per_epoch: int, interval: int) -> None:
    assert evaluation_interval(160, 8, per_epoch, 60) == interval
