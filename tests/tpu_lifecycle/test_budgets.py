from __future__ import annotations

import os
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from model_registry.finetuning_plans import make_rentals
from pipeline_config import load_finetuning_preset, with_overrides
from pipeline_store import uris
from pipeline_store.formats import (
    AttemptEvent,
    AttemptMark,
    FinetuningPlan,
    Heartbeat,
    JobSpec,
    Trial,
)
from pipeline_store.layout import RunLayout
from tests.tpu_lifecycle.test_observe import JOB, watch
from tests.tpu_lifecycle.world import ZONE, World
from tpu_lifecycle.control.mailbox import submit_job
from tpu_lifecycle.control.provisioning import Provisioner
from tpu_lifecycle.control.verdict import Outcome
from tpu_lifecycle.records.attempts import BOOT_ADVICE, AttemptRecord, Loss
from tpu_lifecycle.records.budgets import (
    BootFailureError,
    BudgetError,
    ChipHoursBudgetError,
    PreemptionBudgetError,
    StalledError,
    check_next_attempt,
    chip_hours_end,
    chip_seconds,
    job_deadline,
    newest_checkpoint,
)
from tpu_lifecycle.records.reservation import ExpiredError, OpenReservation


def lose(
    reservation: OpenReservation,
    number: int,
    cause: Loss = Loss.SILENT,
    before: int | None = None,
    after: int | None = None,
) -> AttemptRecord:
    record = reservation.new_attempt(number, ZONE, checkpoint_step=before)
    return record.mark(AttemptEvent.LOST, "it went", cause=cause, checkpoint_step=after)


def asked_at(record: AttemptRecord, time: datetime) -> AttemptRecord:
    """Return the attempt as if it had been asked for at that time."""
    attempt = record.attempt.model_copy(update={"created": time})
    attempt.write(record.layout.record)
    return replace(record, attempt=attempt)


def stored_at(uri: str, time: datetime) -> None:
    os.utime(uri, (time.timestamp(), time.timestamp()))


def rented(record: AttemptRecord, start: datetime, hours: float) -> AttemptRecord:
    """Return the attempt as if it had a node from then on, for so long."""
    ready = record.layout.mark(AttemptEvent.READY)
    AttemptMark(event=AttemptEvent.READY, time=start, workers=1, node_created=start).create(ready)
    stored_at(ready, start)
    AttemptMark(event=AttemptEvent.GONE, time=start + timedelta(hours=hours)).create(
        record.layout.mark(AttemptEvent.GONE)
    )
    return record


def test_each_loss_counts_against_the_preemptions(world: World) -> None:
    reservation = world.reserve({"budget.max_preemptions": 1})
    records = [lose(reservation, 1, after=10)]
    check_next_attempt(reservation, records)
    records.append(lose(reservation, 2, before=10, after=20))
    with pytest.raises(PreemptionBudgetError, match=r"lost 2 TPUs; budget\.max_preemptions=1"):
        check_next_attempt(reservation, records)


def test_a_crash_loop_is_noticed(world: World) -> None:
    reservation = world.reserve({"budget.max_stalled_attempts": 2, "budget.max_preemptions": 9})
    records = [lose(reservation, 1, after=10), lose(reservation, 2, before=10, after=10)]
    check_next_attempt(reservation, records)
    # One that brought a checkpoint begins the count anew.
    records += [
        lose(reservation, 3, before=10, after=20),
        lose(reservation, 4, before=20, after=20),
    ]
    check_next_attempt(reservation, records)
    # Going back removes the checkpoints of later steps: no progress either.
    records.append(lose(reservation, 5, before=20, after=10))
    with pytest.raises(StalledError, match=r"2 TPUs in a row.*max_stalled_attempts=2"):
        check_next_attempt(reservation, records)


@pytest.mark.parametrize("cause", [Loss.TAKEN, Loss.STOPPED])
def test_what_the_service_takes_counts_as_preemption_alone(world: World, cause: Loss) -> None:
    reservation = world.reserve({"budget.max_stalled_attempts": 2, "budget.max_preemptions": 4})
    records = [lose(reservation, number, cause) for number in (1, 2, 3)]
    check_next_attempt(reservation, records)
    # Between two that stalled it neither counts nor makes the count begin anew.
    records[0] = replace(records[0], marks=lose(reservation, 4).marks)
    check_next_attempt(reservation, records)
    records.append(lose(reservation, 5))
    with pytest.raises(StalledError, match=r"2 TPUs in a row.*Does the job break its TPU"):
        check_next_attempt(reservation, records)
    records += [lose(reservation, number, cause) for number in (6, 7)]
    with pytest.raises(PreemptionBudgetError, match="on-demand") as error:
        check_next_attempt(reservation, records)
    assert "Does the job break" not in str(error.value)


def test_making_a_lost_checkpoint_again_is_no_progress(world: World) -> None:
    reservation = world.reserve({"budget.max_stalled_attempts": 2, "budget.max_preemptions": 9})
    records = [lose(reservation, 1, after=20), lose(reservation, 2, before=20, after=10)]
    check_next_attempt(reservation, records)
    records.append(lose(reservation, 3, before=10, after=15))
    with pytest.raises(StalledError):
        check_next_attempt(reservation, records)


def test_losses_after_the_end_of_the_training_do_not_stall_it(world: World) -> None:
    reservation = world.reserve({"budget.max_stalled_attempts": 1, "budget.max_preemptions": 2})
    records = [lose(reservation, 1, before=60, after=60), lose(reservation, 2, before=60, after=60)]
    with pytest.raises(StalledError, match=re.escape(reservation.run.config)):
        check_next_attempt(reservation, records)
    uris.write(reservation.run.training.result, b"the evaluation was lost, not the training")
    check_next_attempt(reservation, records)
    records.append(lose(reservation, 3, before=60, after=60))
    with pytest.raises(PreemptionBudgetError, match=r"new reservation has all budgets anew"):
        check_next_attempt(reservation, records)


def planned(run: RunLayout, *, trials: int, **settings: int) -> RunLayout:
    """Make the run one that fine-tunes, and return it."""
    FinetuningPlan(
        lineage_id="default",
        models={},
        manifests={},
        trials=[
            Trial(trial_id=f"t{n}", task="t", model="model", learning_rate=1e-3, random_seed=n)
            for n in range(trials)
        ],
        created=datetime.now(UTC),
    ).write(run.finetuning_plan)
    wanted = {name.replace("__", "."): value for name, value in settings.items()}
    config = with_overrides(load_finetuning_preset("finetuning_smoke"), wanted)
    uris.write(run.config, config.to_bytes())
    return run


def test_every_checkpoint_of_any_trial_is_progress(world: World) -> None:
    owner = planned(world.reserve().run, trials=3, finetuning__parallel_tpus=2)
    [own, rental] = make_rentals(world.store, owner, 2)
    assert newest_checkpoint(own) is None
    for trial, step in (("t0", 10), ("t0", 20), ("t1", 7), ("t2", 5)):
        uris.write(owner.trial(trial).training.checkpoint(step), b"{}")
    # The first and the third are the first TPU's.
    assert newest_checkpoint(own) == 25
    assert newest_checkpoint(rental) == 7


def test_every_trial_that_is_measured_is_progress(world: World) -> None:
    reservation, records = world.reserve(), []
    budget = {"budget__max_stalled_attempts": 2, "budget__max_preemptions": 9}
    run = planned(reservation.run, trials=5, **budget)
    for number in range(1, 5):
        before = newest_checkpoint(run)
        uris.write(run.trial(f"t{number}").result, b"{}")
        records.append(lose(reservation, number, before=before, after=newest_checkpoint(run)))
        check_next_attempt(reservation, records)
    for number in (5, 6):
        done = newest_checkpoint(run)
        records.append(lose(reservation, number, before=done, after=done))
    with pytest.raises(StalledError):
        check_next_attempt(reservation, records)


def test_an_outage_of_airflow_uses_up_no_chip_hours(world: World) -> None:
    reservation = world.reserve({"budget.max_chip_hours": 2.0, "budget.max_hours": 24.0})
    start = datetime.now(UTC) + timedelta(hours=1)
    record = rented(lose(reservation, 1, Loss.TAKEN), start, hours=10.0)
    timeout = reservation.config.tpu.heartbeat_timeout_seconds
    heard = start + timedelta(hours=1) - timedelta(seconds=timeout)
    Heartbeat(
        worker=0,
        token=record.attempt.token,
        time=heard + timedelta(hours=9),
        job_id=JOB,
        progress=None,
        log_chunks=0,
        disk_free_bytes=1,
    ).write(record.layout.heartbeat(0))
    stored_at(record.layout.heartbeat(0), heard)  # the VM's clock is ahead
    records = reservation.attempts()
    check_next_attempt(reservation, records)
    # One chip-hour is left; the ledger still says what it can have cost at most.
    second = asked_at(reservation.new_attempt(2, ZONE), start + timedelta(hours=10))
    rented(second, start + timedelta(hours=10), hours=0.0)
    records = reservation.attempts()
    end = chip_hours_end(reservation, records, records[1])
    assert end == start + timedelta(hours=11)
    assert chip_seconds(reservation.record, records[0]) == pytest.approx(10 * 3600)


def test_the_end_stays_while_an_earlier_tpu_lingers_in_its_deletion(world: World) -> None:
    reservation = world.reserve({"budget.max_chip_hours": 6.0, "budget.max_hours": 24.0})
    now = datetime.now(UTC)
    start = now - timedelta(hours=3)
    first = asked_at(lose(reservation, 1), start)
    AttemptMark(event=AttemptEvent.READY, time=start, workers=1, node_created=start).create(
        first.layout.mark(AttemptEvent.READY)
    )
    second = asked_at(reservation.new_attempt(2, ZONE), now - timedelta(hours=1))
    rented_at = now - timedelta(minutes=30)
    second.mark(AttemptEvent.READY, node_created=rented_at)
    ends = []
    for gone in (None, now, now + timedelta(hours=2)):
        if gone is not None:
            mark = AttemptMark(event=AttemptEvent.GONE, time=gone)
            mark.write(first.layout.mark(AttemptEvent.GONE))
        records = reservation.attempts()
        ends.append(chip_hours_end(reservation, records, records[1]))
    assert ends == [rented_at + timedelta(hours=4)] * 3


def test_losses_before_the_boot_are_no_boot_failures(world: World) -> None:
    reservation = world.reserve()
    records = [lose(reservation, 1), lose(reservation, 2)]
    check_next_attempt(reservation, records)
    records.append(lose(reservation, 3))
    with pytest.raises(StalledError):
        check_next_attempt(reservation, records)


def test_two_tpus_that_never_reported_end_the_attempts(world: World) -> None:
    reservation = world.reserve()
    records = [lose(reservation, 1, Loss.NEVER_REPORTED)]
    check_next_attempt(reservation, records)
    records.append(lose(reservation, 2, Loss.NEVER_REPORTED))
    with pytest.raises(BootFailureError, match=r"tpu\.service_account"):
        check_next_attempt(reservation, records)


@pytest.mark.parametrize(
    ("overrides", "error"),
    [
        ({"budget.max_chip_hours": 1.0}, ChipHoursBudgetError),
        ({"budget.max_preemptions": 0}, PreemptionBudgetError),
        ({"budget.max_stalled_attempts": 1}, StalledError),
    ],
)
@pytest.mark.parametrize("cause", [Loss.NEVER_REPORTED, Loss.SILENT])
def test_a_budget_that_a_boot_failure_uses_up_tells_what_to_check(
    world: World, overrides: dict[str, Any], error: type[BudgetError], cause: Loss
) -> None:
    reservation = world.reserve(overrides | {"budget.max_hours": 24.0})
    after = 1 if error is ChipHoursBudgetError else None
    rented(lose(reservation, 1, cause, after=after), datetime.now(UTC), hours=2.0)
    with pytest.raises(error) as raised:
        check_next_attempt(reservation, reservation.attempts())
    assert (BOOT_ADVICE in str(raised.value)) == (cause is Loss.NEVER_REPORTED)
    assert "Clear the reserve task" in str(raised.value)


def test_chip_hours_are_summed_over_all_attempts(world: World) -> None:
    overrides = {
        "budget.max_chip_hours": 5.0,
        "budget.max_hours": 24.0,
        "tpu.accelerator_type": "v5litepod-4",
    }
    reservation = world.reserve(overrides)
    start = datetime.now(UTC) + timedelta(hours=1)
    rented(lose(reservation, 1, after=1), start, hours=0.5)
    records = reservation.attempts()
    assert chip_seconds(reservation.record, records[0]) == pytest.approx(4 * 1800)
    check_next_attempt(reservation, records)
    # Three chip-hours are left: 45 minutes of four chips.
    later = start + timedelta(hours=2)
    lost = asked_at(lose(reservation, 2, before=1, after=2), later)
    second = rented(lost, later, hours=1.0)
    records = reservation.attempts()
    assert chip_hours_end(reservation, records, records[1]) == start + timedelta(minutes=165)
    assert job_deadline(reservation, records, records[1]) == start + timedelta(minutes=162.75)
    assert second.number == 2
    with pytest.raises(
        ChipHoursBudgetError,
        match=r"used 6\.00 chip-hours; 5 are allowed, by budget\.max_chip_hours",
    ):
        check_next_attempt(reservation, records)


def test_a_service_whose_clock_is_behind_makes_no_node_older_than_its_attempt(world: World) -> None:
    reservation = world.reserve({"budget.max_chip_hours": 1.0})
    record = reservation.new_attempt(1, ZONE)
    record = record.mark(
        AttemptEvent.READY, workers=1, node_created=datetime.now(UTC) - timedelta(days=1)
    )
    end = chip_hours_end(reservation, [record], record)
    assert end == record.attempt.created + timedelta(hours=1)


def test_several_slices_cost_several_times_as_much(world: World) -> None:
    reservation = world.reserve({"tpu.slice_count": 3, "budget.max_chip_hours": 300.0})
    start = datetime.now(UTC) + timedelta(hours=1)
    record = rented(reservation.new_attempt(1, ZONE), start, hours=1.0)
    [record] = reservation.attempts()
    assert chip_seconds(reservation.record, record) == pytest.approx(3 * 3600)


def test_the_job_stops_before_the_chip_hours_are_used_up(world: World) -> None:
    reservation = world.reserve({"budget.max_chip_hours": 0.5})
    record = world.obtain_ready(reservation)
    arguments = {"job_id": JOB, "entry_point": "training.train", "arguments": []}
    assert submit_job(reservation, record, **arguments)
    spec = JobSpec.load(record.layout.job(JOB))
    end = chip_hours_end(reservation, reservation.attempts(), record)
    assert end is not None
    assert spec.deadline == end - timedelta(seconds=90)
    assert spec.deadline < reservation.job_deadline
    assert not submit_job(reservation, record, **arguments)
    world.release(reservation)


def test_the_watch_notices_that_the_chip_hours_are_used_up(world: World) -> None:
    reservation = world.reserve({"budget.max_chip_hours": 1e-6})
    record = world.obtain_ready(reservation)
    verdict = watch(world, reservation, record).look().verdict
    assert verdict.outcome is Outcome.BUDGET
    assert "max_chip_hours" in verdict.reason
    world.release(reservation)


def test_the_hours_end_an_attempt_too(world: World) -> None:
    reservation = world.reserve({"budget.max_hours": 0.3, "tpu.queue_timeout_seconds": 60})
    past = datetime.now(UTC) - timedelta(hours=1)
    record = reservation.record.model_copy(update={"expires_at": past})
    expired = OpenReservation(reservation.run, reservation.layout, record)
    with pytest.raises(ExpiredError, match=r"budget\.max_hours"):
        world.provisioner(expired).obtain()


def test_the_newest_checkpoint_is_noted_with_attempt_and_loss(world: World) -> None:
    reservation = world.reserve()
    assert newest_checkpoint(reservation.run) is None
    uris.write(reservation.run.training.checkpoint(5), b"{}")
    record = world.obtain_ready(reservation)
    assert record.attempt.checkpoint_step == 5
    uris.write(reservation.run.training.checkpoint(40), b"{}")
    provisioner: Provisioner = world.provisioner(reservation)
    provisioner.lose(record, "it went", Loss.SILENT)
    lost = reservation.attempt(1).marks[AttemptEvent.LOST]
    assert (lost.checkpoint_step, lost.cause) == (40, "silent")
