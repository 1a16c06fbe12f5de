"""How long a run trains on its text: what auto is, and what goes over it too often."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipeline_config import ConfigError, PipelineConfig, load_preset, with_overrides
from preflight.estimates import auto_steps, passes
from preflight.estimates.auto_steps import BUDGET_SHARE, decide
from preflight.estimates.speed import find_speed, new_head_steps
from tests.model_registry.runs import FinishedRun
from tests.preflight.test_estimates import bill, published
from trained_models import decided_steps
from trained_models.decided_steps import RowCounts, decided_config, fewest_steps, with_steps
from trained_models.errors import UserError
from trained_models.head_phase import STEP_SHARE
from trained_models.phases import phases

BERT = load_preset("bert_base_v5e")
SMOKE = load_preset("smoke")
AUTO: dict[str, Any] = {"training__train_steps": "auto", "training__max_passes": None}


def config(base: PipelineConfig = BERT, **settings: Any) -> PipelineConfig:
    return with_overrides(base, {name.replace("__", "."): v for name, v in settings.items()})


def decided(config: PipelineConfig, rows: RowCounts, store: Any = None) -> PipelineConfig:
    """Return the configuration as the trainer has it."""
    found = decide(config, rows, store)
    return decided_config(config, None if found is None else found.steps)


def test_real_presets_decide_by_their_text_and_smoke_presets_do_not() -> None:
    for name in ("bert_base_v5e", "bert_base_v5e_512"):
        real, twin = load_preset(name), load_preset(f"{name}_smoke")
        assert real.training.train_steps == "auto"
        assert real.training.keep_best
        # One evaluation step: what is scored at each checkpoint costs less than a training step.
        assert real.evaluation.rows_per_checkpoint == real.evaluation.global_batch_size
        assert twin.training.max_passes == 0
    assert SMOKE.training.max_passes == 0


@pytest.mark.parametrize(("dynamic", "times"), [(True, 40), (False, 5)])
def test_a_partition_is_gone_over_as_often_as_teaches_anything(dynamic: bool, times: int) -> None:
    asked, rows = config(masking__dynamic=dynamic), RowCounts(400_000)
    found = decided(asked, rows)
    assert found.training.steps == times * 400_000 // 2048 // 20 * 20
    assert times - 0.2 < decided_steps.passes(found, rows) <= times
    # With another limit, another number.
    few = decided(config(masking__dynamic=dynamic, training__max_passes=2), rows)
    assert few.training.steps == 2 * 400_000 // 2048 // 20 * 20


def test_a_huge_partition_ends_at_a_limit_and_the_warm_up_stays() -> None:
    found = decided(BERT, RowCounts(10**10))
    assert found.training.steps == 20_000
    assert (found.optimizer.warmup_steps, found.training.checkpoint_interval) == (1000, 500)
    assert auto_steps.auto_steps(BERT, None, None).steps == 20_000
    longer = decided(config(training__max_train_steps=100_000), RowCounts(10**10))
    assert longer.training.steps == 100_000


def test_a_small_partition_has_a_warm_up_and_checkpoints_that_fit() -> None:
    found = decided(BERT, RowCounts(16_000))
    assert found.training.steps == 300
    assert found.optimizer.warmup_steps == 30
    assert found.training.checkpoint_interval == 40
    # Even of the shortest one, which a spot TPU may be taken from.
    assert decided(BERT, RowCounts(2100)).training.checkpoint_interval == 20
    assert found.training.steps % found.training.steps_per_loop == 0
    late = config(
        optimizer__learning_rate_schedule="constant_then_linear", optimizer__decay_steps=5000
    )
    assert decided(late, RowCounts(16_000)).optimizer.decay_steps == 60


def test_a_tiny_partition_is_refused_with_a_batch_that_would_do() -> None:
    rows = RowCounts(1600)
    assert fewest_steps(BERT) == 40
    with pytest.raises(UserError, match=r"auto is 20 steps, 40 passes over 1,600 rows") as caught:
        decide(BERT, rows, None)
    assert "Set training.global_batch_size to 1,584 or less instead of 2,048" in str(caught.value)
    smaller = config(training__global_batch_size=1584)
    assert decided(smaller, rows).training.steps == 40
    with pytest.raises(UserError, match="auto is 0 steps"):
        decide(BERT, RowCounts(0), None)
    with pytest.raises(UserError, match=r"Raise training\.max_train_steps"):
        decide(config(training__max_train_steps=30), RowCounts(10**6), None)


def test_what_is_replayed_leaves_fewer_new_rows_a_step() -> None:
    alone, replaying = RowCounts(400_000), RowCounts(400_000, replayed=10**6)
    found = decided(BERT, replaying)
    assert found.training.steps == int(40 * 400_000 / (2048 * 0.8)) // 20 * 20
    assert decided_steps.passes(found, replaying) <= 40 < decided_steps.passes(found, alone)
    assert not list(passes.warnings(found, replaying))
    # An old partition that is far smaller is memorized in its place.
    [warning] = passes.warnings(found, RowCounts(400_000, replayed=1000))
    assert "WARNING: training.replay_fraction: 9,760 steps go over 1,000 replayed rows" in warning


def test_passes_of_earlier_runs_leave_fewer() -> None:
    rows = RowCounts(400_000, new_before=30.0)
    found = auto_steps.auto_steps(BERT, rows, None)
    assert found.steps == 10 * 400_000 // 2048 // 20 * 20
    assert found.because == "10 passes over 400,000 rows, after 30 times in earlier runs"
    enough = decided(BERT, rows)
    assert not list(passes.warnings(enough, rows))
    [warning] = passes.warnings(enough, RowCounts(400_000, new_before=35.0))
    assert "over 400,000 rows 9.93 times, after 35 times in earlier runs. After about 40" in warning
    with pytest.raises(UserError, match=r"auto is 0 steps.*Train on other text, or raise"):
        decide(BERT, RowCounts(400_000, new_before=40.0), None)


def test_long_rows_at_the_end_are_no_passes_of_the_main_rows() -> None:
    curriculum = config(
        masking__extra_max_seq_length=512,
        masking__extra_max_predictions_per_seq=76,
        training__extra_steps_fraction=0.1,
        training__extra_global_batch_size=512,
    )
    rows = RowCounts(400_000)
    found = decided(curriculum, rows)
    main, extra = phases(found)
    assert main.end_step == pytest.approx(40 * 400_000 / 2048, abs=20)
    assert extra.end_step == found.training.steps == pytest.approx(main.end_step / 0.9, abs=20)


@pytest.mark.parametrize(
    ("budget", "hours"),
    [
        ({"budget__max_hours": 1.0}, 1.0),
        ({"budget__max_chip_hours": 4.0}, 0.5),
        # 1.2 USD a chip-hour.
        ({"budget__max_cost": 4.8}, 0.5),
    ],
    ids=["hours", "chip-hours", "cost"],
)
def test_a_budget_that_is_too_small_buys_fewer_steps(budget: dict[str, Any], hours: float) -> None:
    asked = config(tpu__queue_timeout_seconds=600, **budget)
    rows = RowCounts(10**7)
    found = auto_steps.auto_steps(asked, rows, None)
    assert found.limited_by == "budget"
    [name] = budget
    assert f"80% of {name.replace('__', '.')}=" in found.because
    assert "buys at the estimated speed, instead of 20,000" in found.because
    speed = find_speed(with_steps(asked, found.steps), None)
    assert speed is not None
    assert speed.hours == pytest.approx(BUDGET_SHARE * hours, rel=0.01)
    for least in ({"budget__max_chip_hours": 0.01}, {"budget__max_cost": 0.01}):
        with pytest.raises(UserError, match=r"at least 40 are needed.*Raise the budget"):
            decide(config(tpu__queue_timeout_seconds=600, **least), rows, None)


def test_the_price_says_what_a_limit_of_cost_buys() -> None:
    asked = config(budget__max_cost=4.8)
    found = auto_steps.auto_steps(asked, RowCounts(10**7), None)
    assert "80% of budget.max_cost=4.8 USD (4 chip-hours) buys at the estimated" in found.because
    dearer = config(budget__max_cost=4.8, budget__price_per_chip_hour=2.4)
    assert auto_steps.auto_steps(dearer, RowCounts(10**7), None).steps < found.steps
    free = config(budget__max_cost=4.8, budget__price_per_chip_hour=0.0)
    assert auto_steps.auto_steps(free, RowCounts(10**7), None).steps == 20_000
    # A number cannot be shortened.
    with pytest.raises(ConfigError, match=r"budget\.max_cost: .*can cost"):
        config(budget__max_cost=4.8, training__train_steps=1000)


NEW_HEAD: dict[str, Any] = {"model__init_encoder_only": True}


@pytest.mark.parametrize(("asked", "steps"), [(None, 2000), (3000, 3000), (0, 0)])
def test_steps_of_a_new_head_alone_take_time(asked: object, steps: int) -> None:
    whole = config(training__train_steps=10_000)
    plain = find_speed(whole, None)
    found = find_speed(config(whole, **NEW_HEAD, training__head_steps=asked), None)
    assert plain is not None
    assert found is not None
    more = found.training_seconds / plain.training_seconds - 1
    assert more == pytest.approx(STEP_SHARE * steps / 10_000)
    assert (f"{steps:,} steps of a new head alone" in found.basis) == (steps > 0)


def test_a_budget_buys_the_steps_of_a_new_head_too() -> None:
    asked = config(**NEW_HEAD, tpu__queue_timeout_seconds=600, budget__max_chip_hours=1.5)
    found = decided(asked, RowCounts(10**7))
    speed = find_speed(found, None)
    assert speed is not None
    # As many steps of the head as of the model, since they are fewer than 2,000.
    assert found.training.steps < 2000
    assert 0.95 * BUDGET_SHARE < speed.hours * 8 / 1.5 <= BUDGET_SHARE


@pytest.mark.parametrize("hours", [4.0, 8.0])
def test_a_budget_holds_with_many_steps_of_a_new_head(hours: float) -> None:
    head = {**NEW_HEAD, "training__head_steps": 50_000}
    asked = config(**head, training__max_train_steps=10**6, budget__max_hours=hours)
    speed = find_speed(decided(asked, RowCounts(10**9)), None)
    assert speed is not None
    assert 0.99 * BUDGET_SHARE < speed.hours / hours <= BUDGET_SHARE
    dear = config(asked, training__head_steps=200_000)
    with pytest.raises(UserError, match="does not buy the steps of the new head alone"):
        decide(dear, RowCounts(10**9), None)


def test_a_head_is_new_only_until_the_lineages_first_update(tmp_path: Path) -> None:
    run = published(str(tmp_path))
    asked = config(SMOKE, **NEW_HEAD, model__lineage_id=run.lineage.root.rpartition("/")[2])
    assert new_head_steps(asked, None) == asked.training.steps
    assert new_head_steps(asked, run.store) == 0


def test_the_budget_buys_by_the_speed_of_the_last_run(tmp_path: Path) -> None:
    run = published(str(tmp_path))
    bill(run, 150.0)
    asked = config(SMOKE, **AUTO, budget__max_hours=0.1, tpu__queue_timeout_seconds=60)
    # 0.15 s a step, and 90 s in which the TPU did not train.
    found = decide(asked, RowCounts(10**6), run.store)
    assert found is not None
    assert found.steps == int((0.08 * 3600 - 90) / 0.15) // 10 * 10
    # Where nothing is known, max_train_steps is the limit.
    empty = FinishedRun(str(tmp_path / "other"), "1").store
    assert decided(asked, RowCounts(10**6), empty).training.steps == 1_000_000


def test_a_number_that_goes_over_the_text_too_often_is_refused_until_that_is_allowed() -> None:
    asked, rows = config(training__train_steps=5000), RowCounts(200_000)
    with pytest.raises(UserError) as caught:
        decide(asked, rows, None)
    assert str(caught.value).startswith(
        "training.train_steps: 5,000 steps go over 200,000 rows 51.2 times, and "
        "training.max_passes allows 40: After about 40 passes under masks that "
        "are drawn anew a model memorizes them"
    )
    assert "Use 3,906 steps or fewer, or auto" in str(caught.value)
    assert decide(config(asked, training__train_steps=3906), rows, None) is None
    for most in (52, 0):
        lifted = config(asked, training__max_passes=most)
        assert decide(lifted, rows, None) is None
        [warning] = passes.warnings(lifted, rows)
        assert warning.startswith("WARNING: training.train_steps: 5,000 steps go over 200,000 rows")
    replaying = RowCounts(200_000, replayed=10**6)
    assert decide(config(asked, training__train_steps=4882), replaying, None) is None
    same_masks = config(
        masking__dynamic=False, training__train_steps=1000, optimizer__warmup_steps=100
    )
    with pytest.raises(UserError, match=r"10\.2 times.*allows 5: .*the same masks"):
        decide(same_masks, rows, None)


def test_a_rule_that_so_few_steps_break_is_named() -> None:
    asked = config(
        masking__extra_max_seq_length=512,
        masking__extra_max_predictions_per_seq=76,
        training__extra_steps_fraction=0.001,
    )
    with pytest.raises(UserError, match=r"With 300 steps.*training\.extra_steps_fraction"):
        decide(asked, RowCounts(16_000), None)
