"""What a run may use up: lost TPUs, attempts without progress, time and chip-hours.

Each budget has an error of its own that says which setting allows more. How often a killed trainer
is started again (``budget.max_failures``) the agent counts; the price (``budget.max_cost``) is
checked before a run begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from pipeline_config.rules import chips
from pipeline_store import uris
from pipeline_store.formats import AttemptEvent, Reservation
from pipeline_store.layout import RunLayout, TrainingLayout
from tpu_lifecycle.records.attempts import BOOT_ADVICE, AttemptRecord, Loss, read_heartbeat
from tpu_lifecycle.records.reservation import OpenReservation
from tpu_lifecycle.records.trainings import trainings, trials


class BudgetError(RuntimeError):
    """A budget is used up; another try of the task cannot help."""


class PreemptionBudgetError(BudgetError):
    """More TPUs were lost than ``budget.max_preemptions`` replaces."""


class StalledError(BudgetError):
    """Too many TPUs in a row were lost without a new checkpoint: a crash loop, or bad luck."""


class BootFailureError(BudgetError):
    """TPUs come up, but their agents never report: asking for more of them cannot help."""


class ChipHoursBudgetError(BudgetError):
    """``budget.max_chip_hours`` is used up."""


def renewal_advice(run: RunLayout, setting: str) -> str:
    """Return what to do when a budget is used up and training shall go on."""
    return (
        "Clear the reserve task: the new reservation has all budgets anew, and training resumes "
        f"from its last checkpoint. For a larger budget first change {setting} in {run.config}."
    )


def newest_checkpoint(run: RunLayout) -> int | None:
    """Return the step of the newest checkpoint that is committed, or None.

    Of a fine-tuning run the steps of all trials of this TPU together, and one for each that is
    done: so each checkpoint of any of them is a later step, and so is the end of one that is only
    measured.
    """
    steps = [step for place in trainings(run) if (step := _newest_step(place)) is not None]
    steps += [1 for trial in trials(run) or [] if uris.exists(trial.result)]
    return sum(steps) if steps else None


def _newest_step(training: TrainingLayout) -> int | None:
    names = (uri.rpartition("/")[2] for uri in uris.list_files(training.checkpoints))
    steps = [int(name.removesuffix(".json")) for name in names if name[:-5].isdecimal()]
    return max(steps, default=None)


def check_next_attempt(reservation: OpenReservation, records: Sequence[AttemptRecord]) -> None:
    """Do nothing while the budgets allow one more TPU.

    :raises BudgetError: one of them does not.
    """
    budget = reservation.config.budget
    lost = [record for record in records if AttemptEvent.LOST in record.marks]
    last = _last_loss(records)
    if len(lost) > budget.max_preemptions:
        raise PreemptionBudgetError(
            f"{reservation} lost {len(lost)} TPUs; budget.max_preemptions="
            f"{budget.max_preemptions} allows no further one. {last}"
            f"{renewal_advice(reservation.run, 'budget.max_preemptions')}"
        )
    if len(lost) > 1 and all(_cause(record) == Loss.NEVER_REPORTED for record in lost[-2:]):
        raise BootFailureError(
            f"{reservation}: two TPUs in a row came up but their agents never reported. {last}"
        )
    # After its end a training makes no checkpoints: what is lost then lost no training.
    has_ended = all(uris.exists(place.result) for place in trainings(reservation.run))
    stalled = 0 if has_ended else _stalled(lost)
    if stalled >= budget.max_stalled_attempts:
        raise StalledError(
            f"{reservation}: {stalled} TPUs in a row were lost without a new checkpoint; "
            f"budget.max_stalled_attempts={budget.max_stalled_attempts} allows no further one. "
            f"{last}Does the job break its TPU? Look at its log first. "
            f"{renewal_advice(reservation.run, 'budget.max_stalled_attempts')}"
        )
    check_chip_hours(reservation, records)


def check_chip_hours(reservation: OpenReservation, records: Sequence[AttemptRecord]) -> None:
    """Do nothing while some of ``budget.max_chip_hours`` is left.

    :raises ChipHoursBudgetError: nothing is.
    """
    allowed = reservation.config.budget.max_chip_hours
    if allowed is None:
        return
    used = sum(_spent(reservation, record) for record in records) / 3600
    if used >= allowed:
        raise ChipHoursBudgetError(
            f"{reservation} used {used:.2f} chip-hours; budget.max_chip_hours={allowed} allows no "
            f"more. {_last_loss(records)}"
            f"{renewal_advice(reservation.run, 'budget.max_chip_hours')}"
        )


def chip_hours_end(
    reservation: OpenReservation, records: Sequence[AttemptRecord], record: AttemptRecord
) -> datetime | None:
    """Return when the attempt's TPU will have used up what is left of the chip-hours.

    The same whenever it is asked: it follows from marks that are set once.

    :returns: None while it is not READY, and when there is no such budget.
    """
    allowed, start = reservation.config.budget.max_chip_hours, rented_since(record)
    if allowed is None or start is None:
        return None
    earlier = [r for r in records if r.number < record.number]
    used = sum(_spent(reservation, r) for r in earlier)
    left = max(0.0, allowed * 3600 - used)
    return start + timedelta(seconds=left / chip_count(reservation.record))


def job_deadline(
    reservation: OpenReservation, records: Sequence[AttemptRecord], record: AttemptRecord
) -> datetime:
    """Return when jobs on the attempt's TPU must have ended, with a checkpoint, by all budgets."""
    end, start = chip_hours_end(reservation, records, record), rented_since(record)
    if end is None or start is None:
        return reservation.job_deadline
    return min(reservation.job_deadline, end - min(timedelta(minutes=5), (end - start) / 20))


def chip_count(reservation: Reservation) -> int:
    """Return how many chips each attempt rents."""
    return chips(reservation.accelerator_type) * reservation.slice_count


def chip_seconds(reservation: Reservation, record: AttemptRecord) -> float:
    """Return what an attempt has used at most, up to now or until its TPU was confirmed gone."""
    gone = record.marks.get(AttemptEvent.GONE)
    return _chip_seconds(reservation, record, gone.time if gone else datetime.now(UTC))


def _chip_seconds(reservation: Reservation, record: AttemptRecord, end: datetime) -> float:
    start = rented_since(record)
    if start is None:
        return 0.0
    return max(0.0, (end - start).total_seconds()) * chip_count(reservation)


def _spent(reservation: OpenReservation, record: AttemptRecord) -> float:
    """Return the chip-seconds that the budget counts for an attempt.

    A TPU that was found taken may have been so for as long as nobody looked: it counts until it
    must have fallen silent, so that an outage of Airflow does not use up a budget.
    """
    used = chip_seconds(reservation.record, record)
    lost = record.marks.get(AttemptEvent.LOST)
    if lost is None or lost.cause != Loss.TAKEN or (beat := read_heartbeat(record, 0)) is None:
        return used
    silent = beat.time + timedelta(seconds=reservation.config.tpu.heartbeat_timeout_seconds)
    return min(used, _chip_seconds(reservation.record, record, silent))


def rented_since(record: AttemptRecord) -> datetime | None:
    """Return when the attempt's node was made, or was seen READY; None when it never had one.

    A node cannot be older than the attempt: then the service's clock is behind ours.
    """
    ready = record.marks.get(AttemptEvent.READY)
    starts = [mark.node_created for mark in record.marks.values() if mark.node_created]
    starts += [ready.time] if ready else []
    return max(min(starts), record.attempt.created) if starts else None


def _last_loss(records: Sequence[AttemptRecord]) -> str:
    """Return how the newest lost attempt ended, and what to check if its agents never reported."""
    lost = [record for record in records if AttemptEvent.LOST in record.marks]
    if not lost:
        return ""
    advice = f"{BOOT_ADVICE}. " if _cause(lost[-1]) == Loss.NEVER_REPORTED else ""
    return f"Last: {lost[-1].outcome}. {advice}"


def _cause(record: AttemptRecord) -> str:
    return record.marks[AttemptEvent.LOST].cause


def _stalled(lost: Sequence[AttemptRecord]) -> int:
    """Return how many of the newest lost attempts in a row brought no new checkpoint.

    New is one of a later step than all before: going back and making it again is no progress.
    """
    count = best = 0
    for record in lost:
        best = max(best, record.attempt.checkpoint_step or 0)
        after = record.marks[AttemptEvent.LOST].checkpoint_step or 0
        count = 0 if after > best else count + 1
        best = max(best, after)
    return count
