"""Reads the facts about a run for its alerts: money spent, TPUs that may be left, the log's place.

An alert must not fail because a fact is missing: if the facts cannot be read, the alert says so.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pipeline_store import uris
from pipeline_store.formats import AlertedTpu, AttemptEvent, FormatError, RunRecord, Spending
from pipeline_store.layout import RunLayout
from tpu_lifecycle.control.observe import RECAP_LINES, recap
from tpu_lifecycle.records.attempts import AttemptRecord
from tpu_lifecycle.records.budgets import chip_seconds
from tpu_lifecycle.records.reservation import OpenReservation, newest_generation, open_reservation
from tpu_lifecycle.records.trainings import rental_folders

MAX_LINE = 300
"""Most characters of a log line that are quoted."""


@dataclass(frozen=True)
class RunFacts:
    """The known facts about a run when an alert is raised."""

    record: RunRecord | None = None
    spent: Spending | None = None
    tpus: list[AlertedTpu] = field(default_factory=list)
    log_place: str | None = None
    log_lines: list[str] = field(default_factory=list)
    unreadable: str = ""


def read_facts(run: RunLayout, *, with_text: bool) -> RunFacts:
    """Return a run's facts from the store, as far as they can be read.

    :param with_text: whether log lines, which may contain corpus text, may be quoted.
    """
    record = None
    try:
        record = RunRecord.load_or_none(run.record)
        reservations = [r for folder in rental_folders(run) for r in read_reservations(folder)]
        attempts = [(r, attempt) for r in reservations for attempt in r.attempts()]
        place, lines = _log(attempts, with_text=with_text)
        return RunFacts(
            record=record,
            spent=spending(attempts),
            tpus=[_tpu(attempt) for _, attempt in attempts if _may_exist(attempt)],
            log_place=place,
            log_lines=lines,
        )
    except (OSError, FormatError) as error:
        return RunFacts(record=record, unreadable=f"The run's folder cannot be read: {error}")


def read_reservations(run: RunLayout) -> list[OpenReservation]:
    """Return all reservation generations of a run, oldest first."""
    return [open_reservation(run.root, g) for g in range(1, newest_generation(run) + 1)]


def spending(attempts: list[tuple[OpenReservation, AttemptRecord]]) -> Spending | None:
    """Return the cost of attempts so far, at most; None when there were no attempts."""
    if not attempts:
        return None
    hours = [(chip_seconds(r.record, a) / 3600, r.record.price_per_chip_hour) for r, a in attempts]
    return Spending(
        chip_hours=sum(used for used, _ in hours),
        cost=sum(used * price for used, price in hours),
        currency=attempts[-1][0].record.currency,
    )


def _may_exist(attempt: AttemptRecord) -> bool:
    return attempt.was_asked and AttemptEvent.GONE not in attempt.marks and not attempt.was_denied


def _tpu(attempt: AttemptRecord) -> AlertedTpu:
    if attempt.needs_deletion:
        state = f"given up ({attempt.outcome}), not confirmed gone"
    else:
        state = "READY, rented" if attempt.is_ready else "asked for"
    return AlertedTpu(name=attempt.attempt.queued_resource_id, zone=attempt.name.zone, state=state)


def _log(
    attempts: list[tuple[OpenReservation, AttemptRecord]], *, with_text: bool
) -> tuple[str | None, list[str]]:
    for _, attempt in reversed(attempts):
        jobs = [uri.rpartition("/")[2] for uri in uris.list_files(attempt.layout.jobs)]
        if not jobs:
            continue
        job_id = max(jobs).removesuffix(".json")
        # The last line of the recap names the place.
        lines = recap(attempt, job_id)[:-1] if with_text else []
        place = attempt.layout.log(0, job_id)
        return place, [line[:MAX_LINE] for line in lines[-RECAP_LINES:]]
    return None, []
