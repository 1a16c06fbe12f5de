"""What counts as a training gone wrong, and where it goes back to."""

from __future__ import annotations

import math
from typing import Any

import pytest

from pipeline_store.formats import Rollback
from tests.training.corpora import tiny_config
from trained_models.errors import NonFiniteLossError
from trained_models.state import TrainingState
from training.loop.guard import Guard


def guard(**overrides: Any) -> Guard:
    settings = {f"training__{name}": value for name, value in overrides.items()}
    return Guard(tiny_config(**settings).training)


@pytest.mark.parametrize(
    ("loss", "gradient_norm"), [(math.nan, 1.0), (math.inf, 1.0), (2.0, math.nan), (2.0, math.inf)]
)
def test_what_is_no_number_is_a_problem(loss: float, gradient_norm: float) -> None:
    assert "is not finite" in str(guard().problem(loss, gradient_norm, None))
    assert guard().problem(2.0, 1.0, None) is None


def test_a_rise_is_a_problem_only_beyond_the_limit() -> None:
    assert guard().problem(99.0, 1.0, 2.0) is None
    limited = guard(max_loss_increase=0.5)
    assert limited.problem(2.5, 1.0, 2.0) is None
    assert "loss 2.5100 is more than" in str(limited.problem(2.51, 1.0, 2.0))
    assert limited.problem(99.0, 1.0, None) is None


def test_the_running_mean_follows_slowly() -> None:
    judge = guard()
    assert judge.running_loss(None, 5.0) == 5.0
    assert judge.running_loss(5.0, 4.0) == pytest.approx(4.9)


@pytest.mark.parametrize(("bad", "target"), [(1, 0), (4, 0), (5, 4), (8, 4), (11, 8)])
def test_the_target_is_the_multiple_of_the_interval_before_the_loop(bad: int, target: int) -> None:
    assert guard(checkpoint_interval=4).target(TrainingState(step=bad), "why") == target


def test_patience_is_limited() -> None:
    once = (Rollback(from_step=6, to_step=4, reason="loss nan"),)
    bad = TrainingState(step=10, rollbacks=once)
    assert guard(max_rollbacks=2).target(bad, "why") == 8
    with pytest.raises(NonFiniteLossError, match=r"gone back from step 6 to 4 \(loss nan\)"):
        guard(max_rollbacks=1).target(bad, "why")
    with pytest.raises(NonFiniteLossError, match="training has not gone back before"):
        guard(max_rollbacks=0).target(TrainingState(step=2), "why")
