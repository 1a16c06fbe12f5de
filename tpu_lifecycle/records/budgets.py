"""The budgets of a run: lost TPUs, attempts without progress, time and chip-hours.

Each budget has its own error, which names the setting that allows more. Restarts of a killed
trainer (``budget.max_failures``) are counted by the agent. The price (``budget.max_cost``) counts
as the chip-hours that it buys.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from pipeline_config.accelerators import chips
from pipeline_store import uris
from pipeline_store.formats import AttemptEvent, Reservation
from pipeline_store.layout import RunLayout, TrainingLayout
from tpu_lifecycle.records.attempts import (
    BOOT_ADVICE,
    TAKEN_BY_SERVICE,
    AttemptRecord,
    Loss,
    ahead,
    read_heartbeat,
)
from tpu_lifecycle.records.reservation import OpenReservation
from tpu_lifecycle.records.trainings import trainings, trials

_JOB_ADVICE = "Does the job break its TPU? Look at its log first"
_SERVICE_ADVICE = (
    "The service takes them: other tpu.zones may keep them for longer, and "
    "tpu.provisioning_model=on-demand does"
)
_ADVICE = {
    Loss.TAKEN: _SERVICE_ADVICE,
    Loss.STOPPED: _SERVICE_ADVICE,
    Loss.NEVER_REPORTED: BOOT_ADVICE,
    Loss.SILENT: _JOB_ADVICE,
    Loss.HUNG: _JOB_ADVICE,
}
"""Advice by kind of loss; without a final period."""


class BudgetError(RuntimeError):
    """A budget is used up; another try of the task cannot help."""


class PreemptionBudgetError(BudgetError):
    """More TPUs were lost than ``budget.max_preemptions`` replaces."""


class StalledError(BudgetError):
    """Too many TPUs in a row were lost without a new checkpoint, and not to the service."""


class BootFailureError(BudgetError):
    """TPUs come up, but their agents never report: asking for more of them cannot help."""


class ChipHoursBudgetError(BudgetError):
    """``budget.max_chip_hours``, or what ``budget.max_cost`` buys, is used up."""


def renewal_advice(run: RunLayout, setting: str) -> str:
    """Return advice for continuing training when a budget is used up."""
    return (
        "Clear the reserve task: the new reservation has all budgets anew, and training resumes "
        f"from its last checkpoint. For a larger budget first change {setting} in {run.config}."
    )


def newest_checkpoint(run: RunLayout) -> int | None:
    """Return the step of the newest committed checkpoint, or None.

    For a fine-tuning run, the sum of the newest steps of all trials of this TPU, plus one for each
    trial that is done: so each checkpoint of any trial is a later step, and so is the end of one
    that is only measured.
    """
    steps = [step for place in trainings(run) if (step := _newest_step(place)) is not None]
    steps += [1 for trial in trials(run) or [] if uris.exists(trial.result)]
    return sum(steps) if steps else None


def _newest_step(training: TrainingLayout) -> int | None:
    names = (uri.rpartition("/")[2] for uri in uris.list_files(training.checkpoints))
    steps = [int(name.removesuffix(".json")) for name in names if name[:-5].isdecimal()]
    return max(steps, default=None)


def check_next_attempt(reservation: OpenReservation, records: Sequence[AttemptRecord]) -> None:
    """Check that the budgets allow one more TPU.

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
    # A finished training makes no checkpoints: a TPU that is lost later loses no training.
    has_ended = all(uris.exists(place.result) for place in trainings(reservation.run))
    stalled = [] if has_ended else _stalled(lost)
    if len(stalled) >= budget.max_stalled_attempts:
        raise StalledError(
            f"{reservation}: {len(stalled)} TPUs in a row were lost without a new checkpoint; "
            f"budget.max_stalled_attempts={budget.max_stalled_attempts} allows no further one. "
            f"{_last_loss(stalled)}{renewal_advice(reservation.run, 'budget.max_stalled_attempts')}"
        )
    check_chip_hours(reservation, records)


def check_chip_hours(reservation: OpenReservation, records: Sequence[AttemptRecord]) -> None:
    """Check that some chip-hours are left.

    :raises ChipHoursBudgetError: none are left.
    """
    limit = reservation.config.budget.chip_hours_limit
    if limit is None:
        return
    setting, allowed = limit
    used = sum(_spent(reservation, record) for record in records) / 3600
    if used >= allowed:
        raise ChipHoursBudgetError(
            f"{reservation} used {used:.2f} chip-hours; {allowed:g} are allowed, by {setting}. "
            f"{_last_loss(records)}{renewal_advice(reservation.run, setting)}"
        )


def chip_hours_end(
    reservation: OpenReservation, records: Sequence[AttemptRecord], record: AttemptRecord
) -> datetime | None:
    """Return when the attempt's TPU will have used up the remaining chip-hours.

    The result never changes: it follows from marks that are set once. An earlier TPU that was given
    up, and lingers in its deletion, counts until this attempt was created; any longer time counts
    for the next attempt.

    :returns: None while it is not READY, and when there is no such budget.
    """
    limit, start = reservation.config.budget.chip_hours_limit, rented_since(record)
    if limit is None or start is None:
        return None
    _, allowed = limit
    earlier = [r for r in records if r.number < record.number]
    used = sum(_spent(reservation, r, until=record.attempt.created) for r in earlier)
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


def chip_seconds(
    reservation: Reservation, record: AttemptRecord, *, until: datetime | None = None
) -> float:
    """Return the most chip-seconds that an attempt can have used before it was confirmed gone.

    :param until: end of the time that counts, if the TPU is not gone before; None: now.
    """
    gone = record.marks.get(AttemptEvent.GONE)
    ends = [moment for moment in (until, gone.time if gone else None) if moment]
    return _chip_seconds(reservation, record, min(ends, default=datetime.now(UTC)))


def _chip_seconds(reservation: Reservation, record: AttemptRecord, end: datetime) -> float:
    start = rented_since(record)
    if start is None:
        return 0.0
    return max(0.0, (end - start).total_seconds()) * chip_count(reservation)


def _spent(
    reservation: OpenReservation, record: AttemptRecord, *, until: datetime | None = None
) -> float:
    """Return the chip-seconds that the budget counts for an attempt, up to now or until a moment.

    A TPU that was found taken may have been taken long before the poll that found it: it counts
    until it must have fallen silent, so that an outage of Airflow does not use up a budget.
    """
    used = chip_seconds(reservation.record, record, until=until)
    lost = record.marks.get(AttemptEvent.LOST)
    if lost is None or lost.cause != Loss.TAKEN or (beat := read_heartbeat(record, 0)) is None:
        return used
    last = beat.time - ahead(record, None, beat)
    silent = last + timedelta(seconds=reservation.config.tpu.heartbeat_timeout_seconds)
    return min(used, _chip_seconds(reservation.record, record, silent))


def rented_since(record: AttemptRecord) -> datetime | None:
    """Return when the attempt's node was created, or was seen READY; None when it never had one.

    A node cannot be older than the attempt: if it seems to be, the service's clock is behind ours,
    and the attempt's creation counts.
    """
    ready = record.marks.get(AttemptEvent.READY)
    starts = [moment for moment in (node_created(record), ready.time if ready else None) if moment]
    return max(min(starts), record.attempt.created) if starts else None


def node_created(record: AttemptRecord) -> datetime | None:
    """Return when the attempt's node was created, by the service's clock; None if unknown."""
    moments = [mark.node_created for mark in record.marks.values() if mark.node_created]
    return min(moments, default=None)


def _last_loss(records: Sequence[AttemptRecord]) -> str:
    """Return how the newest lost attempt ended, with advice on losses of its kind."""
    lost = [record for record in records if AttemptEvent.LOST in record.marks]
    if not lost:
        return ""
    advice = next((text for loss, text in _ADVICE.items() if loss == _cause(lost[-1])), "")
    return f"Last: {lost[-1].outcome}. {advice}{'. ' if advice else ''}"


def _cause(record: AttemptRecord) -> str:
    return record.marks[AttemptEvent.LOST].cause


def _stalled(lost: Sequence[AttemptRecord]) -> list[AttemptRecord]:
    """Return the newest attempts in a row that were lost without a new checkpoint.

    A checkpoint is new if its step is later than all before: repeating a step is no progress.
    Attempts that the service took are skipped: the job did not cause their loss, and they count for
    ``budget.max_preemptions``.
    """
    best = 0
    found: list[AttemptRecord] = []
    for record in lost:
        best = max(best, record.attempt.checkpoint_step or 0)
        after = record.marks[AttemptEvent.LOST].checkpoint_step or 0
        if after > best:
            found = []
        elif _cause(record) not in TAKEN_BY_SERVICE:
            found.append(record)
        best = max(best, after)
    return found
