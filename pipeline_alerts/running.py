"""Finds what a person should know about a run that has not ended.

The run waits for an answer or for a TPU, is overdue, is short of a budget, had a job that hung, or
loses many TPUs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import takewhile

from pipeline_alerts.causes import Cause
from pipeline_alerts.facts import read_reservations
from pipeline_alerts.findings import Finding
from pipeline_store import uris
from pipeline_store.formats import Answer, AttemptEvent, HangReport, RunApproval, RunRecord
from pipeline_store.layout import RunLayout
from tpu_lifecycle.control.mailbox import read_hangs
from tpu_lifecycle.records.attempts import AttemptRecord
from tpu_lifecycle.records.budgets import chip_seconds
from tpu_lifecycle.records.reservation import OpenReservation
from tpu_lifecycle.records.trainings import rental_folders

STORM_LOSSES = 3
STORM_WINDOW = timedelta(hours=1)
"""Number of TPUs lost within the window that counts as a preemption storm."""

LONG_SEARCH = timedelta(hours=1)
"""Time without a TPU after which a search is reported."""


@dataclass(frozen=True)
class RunningRun:
    """A run that has not ended, or the folder of one of its further TPUs, with TPUs and question.

    :ivar reservations: reservations of this folder.
    :ivar attempts: attempts of all of these, oldest first.
    :ivar elsewhere: attempts of a run's further TPUs.
    :ivar approval: the last question to a person, if there was one.
    :ivar hangs: reports of each hang of a job, with its attempt.
    """

    record: RunRecord
    reservations: list[OpenReservation]
    attempts: list[tuple[OpenReservation, AttemptRecord]]
    elsewhere: list[AttemptRecord]
    approval: RunApproval | None
    hangs: list[tuple[AttemptRecord, list[HangReport]]]

    @classmethod
    def read(cls, run: RunLayout, record: RunRecord) -> RunningRun:
        """Read the run's reservations, attempts, question and hangs.

        :raises OSError: the store cannot be read.
        :raises FormatError: a file is damaged.
        """
        reservations = read_reservations(run)
        attempts = [(r, attempt) for r in reservations for attempt in r.attempts()]
        further = rental_folders(run)[1:] if record.rental_of is None else []
        elsewhere = [a for f in further for r in read_reservations(f) for a in r.attempts()]
        asked = RunApproval.load_or_none(run.approval)
        hangs = [(attempt, hang) for _, attempt in attempts for hang in read_hangs(attempt)]
        return cls(record, reservations, attempts, elsewhere, asked, hangs)

    def findings(self, overdue: timedelta) -> Iterator[Finding]:
        """Yield findings about the run.

        :param overdue: time after which a run is reported as overdue.
        """
        # The folder of a further TPU only has data about that TPU.
        if self.record.rental_of is None:
            yield from self._question()
            yield from self._overdue(overdue)
            yield from self._storm()
        yield from self._hung()
        if self.reservations and not self.reservations[-1].is_released():
            yield from self._search(self.reservations[-1])
            yield from self._budgets(self.reservations[-1])

    def losses(self) -> list[datetime]:
        """Return when the run lost a TPU, oldest first."""
        return sorted(attempt.marks[AttemptEvent.LOST].time for attempt in self._lost())

    def _lost(self) -> list[AttemptRecord]:
        attempts = [attempt for _, attempt in self.attempts] + self.elsewhere
        return [attempt for attempt in attempts if AttemptEvent.LOST in attempt.marks]

    def _question(self) -> Iterator[Finding]:
        asked = self.approval
        if asked is None or asked.answer is not Answer.WAITING:
            return
        if asked.deadline <= datetime.now(UTC):
            return  # Airflow is about to apply the default answer
        yield Finding(
            Cause.APPROVAL_WAITING,
            f"waits for an approval until {asked.deadline.astimezone(UTC):%F %H:%M} UTC",
            "A candidate that won its comparison waits for a person since "
            f"{asked.asked.astimezone(UTC):%F %T} UTC. Without an answer by "
            f"{asked.deadline.astimezone(UTC):%F %T} UTC the model in use stays. Until then the "
            "run keeps its lineage: no other run of it trains.",
            # A candidate that was retrained, or rejected and then cleared, gets a new question.
            detail=f"{asked.asked.astimezone(UTC):%Y%m%dT%H%M%SZ}",
        )

    def _overdue(self, limit: timedelta) -> Iterator[Finding]:
        age = datetime.now(UTC) - self.record.created
        if age > limit:
            yield overdue(self.record.created, limit)

    def _search(self, reservation: OpenReservation) -> Iterator[Finding]:
        """Yield a finding if a TPU has been requested without success for too long."""
        generation = reservation.record.generation
        newest_first = reversed([a for r, a in self.attempts if r.record.generation == generation])
        search = [*takewhile(lambda a: AttemptEvent.READY not in a.marks, newest_first)]
        if not search or datetime.now(UTC) - search[-1].attempt.created <= LONG_SEARCH:
            return
        first, last = search[-1], search[0]
        refused = next((a for a in search if AttemptEvent.REFUSED in a.marks), None)
        said = f" {refused.name.zone} said: {refused.outcome}." if refused else ""
        since = f"{first.attempt.created.astimezone(UTC):%F %T} UTC"
        yield Finding(
            Cause.NO_TPU,
            f"no TPU since {since}",
            f"{reservation} has asked for a {reservation.record.accelerator_type} "
            f"{last.number - first.number + 1} times since {since}, in "
            f"{', '.join(reservation.record.zones)}.{said} It goes on asking until its time is "
            f"over, at {reservation.record.expires_at:%F %T} UTC; nothing is paid for meanwhile.",
            # After a later loss a new search begins.
            detail=f"tpu{self.record.tpu_number or 0}-g{generation}-a{first.number}",
        )

    def _budgets(self, reservation: OpenReservation) -> Iterator[Finding]:
        budget = reservation.config.budget
        mine = [a for r, a in self.attempts if r.record.generation == reservation.record.generation]
        hours = (datetime.now(UTC) - reservation.record.created).total_seconds() / 3600
        chip_hours = sum(chip_seconds(reservation.record, a) for a in mine) / 3600
        lost = sum(AttemptEvent.LOST in a.marks for a in mine)
        number = self.record.tpu_number
        by = f" by TPU {number}" if number else ""
        chips_by, chips = budget.chip_hours_limit or ("budget.max_chip_hours", None)
        if chips_by == "budget.max_cost":
            chips_by = "the chip-hours that budget.max_cost buys"
        for cause, setting, used, allowed in (
            (Cause.BUDGET_HOURS, "budget.max_hours", hours, budget.max_hours),
            (Cause.BUDGET_CHIP_HOURS, chips_by, chip_hours, chips),
            (Cause.BUDGET_PREEMPTIONS, "budget.max_preemptions", lost, budget.max_preemptions),
        ):
            if allowed and used >= budget.alert_fraction * allowed:
                yield Finding(
                    cause,
                    f"{used / allowed:.0%} of {setting} used{by}",
                    f"{reservation} has used {used:.4g} of {setting}={allowed:g}. Reported from "
                    f"budget.alert_fraction={budget.alert_fraction:g} on; the reservation ends at "
                    f"{reservation.record.expires_at:%F %T} UTC.",
                    # Each TPU of a run has budgets of its own.
                    detail=f"tpu{number}" if number else "",
                )

    def _hung(self) -> Iterator[Finding]:
        for attempt, reports in self.hangs:
            found = next((one for one in reports if one.limit_seconds is not None), reports[0])
            number, step = found.number, "no step" if found.step is None else f"step {found.step}"
            where = "; ".join(f"worker {one.worker} in {_place(one)}" for one in reports)
            yield Finding(
                Cause.JOB_HUNG,
                f"{found.job_id} hung in phase {found.phase.name} after {step}",
                f"On {attempt.name} nothing moved for {found.still_seconds:g} s in phase "
                f"{found.phase.name} of {found.job_id}; last: {step}. Its agents ended it at "
                f"{found.found:%F %T} UTC, hang {number} of the job on this TPU. It was: {where}. "
                f"All stacks: {attempt.layout.hang(found.job_id, number, found.worker)}",
                detail=f"{attempt.attempt.node_id}.{found.job_id}.{number}",
            )

    def _storm(self) -> Iterator[Finding]:
        times = self.losses()
        for first, last in zip(times, times[STORM_LOSSES - 1 :], strict=False):
            if last - first <= STORM_WINDOW:
                how = "; ".join(
                    f"{attempt.attempt.queued_resource_id} in {attempt.name.zone} {attempt.outcome}"
                    for attempt in self._lost()
                )
                yield Finding(
                    Cause.PREEMPTION_STORM,
                    f"{len(times)} TPUs lost",
                    f"Lost {STORM_LOSSES} TPUs between {first:%F %T} and {last:%T} UTC. {how}",
                )
                return


def _place(report: HangReport) -> str:
    where = f"at {', called from '.join(report.top)}" if report.top else "without an answer"
    return f"{report.phase.name}, {where}"


def overdue(since: datetime, limit: timedelta) -> Finding:
    """Return a finding that a run is overdue.

    :param since: when the run was requested.
    """
    hours = limit.total_seconds() / 3600
    return Finding(
        Cause.OVERDUE,
        f"not done after {hours:g} hours",
        f"The run began at {since.astimezone(UTC):%F %T} UTC and has not ended. Reported after "
        f"REPRETRAIN_OVERDUE_HOURS={hours:g}. It goes on.",
    )


def recent(times: list[datetime]) -> int:
    """Return how many of the times are within the last :data:`STORM_WINDOW`."""
    return sum(datetime.now(UTC) - time <= STORM_WINDOW for time in times)


def folder_key(uri: str) -> str:
    """Return the name of the folder that contains a file, such as the run's key."""
    return uris.for_library(uri).rsplit("/", 2)[-2]
