"""Reads the current progress of the jobs on a run's TPUs from their heartbeats."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from pages.reading import Reader
from pipeline_store.formats import AttemptEvent, Heartbeat, PhaseName, Progress, Reservation
from pipeline_store.layout import ReservationLayout, RunLayout
from tpu_lifecycle.records.attempts import load_attempts, read_heartbeat
from tpu_lifecycle.records.trainings import rental_folders


@dataclass(frozen=True)
class JobProgress:
    """The job that runs on one TPU, and its progress."""

    tpu: int
    """Which of the run's TPUs, counted from 0."""
    attempt: int
    job_id: str
    phase: str
    """What the job is doing now; empty: not reported."""
    seconds_ago: float
    """Age of the heartbeat that reported this."""
    progress: Progress | None
    """None: the job has done no step yet, or counts none."""

    @property
    def percent(self) -> float:
        """Return the percentage of steps done, for a progress bar."""
        done = self.progress
        return 100 * done.step / done.train_steps if done is not None and done.train_steps else 0.0


def running_jobs(run: RunLayout, reader: Reader) -> list[JobProgress]:
    """Return the jobs that run on a run's TPUs, at most one per TPU."""
    folders = reader.attempt(lambda: rental_folders(run)) or []
    found = [reader.attempt(partial(_job, folder, tpu)) for tpu, folder in enumerate(folders)]
    return [job for job in found if job is not None]


def _job(folder: RunLayout, tpu: int) -> JobProgress | None:
    place = _newest_reservation(folder)
    attempts = load_attempts(place) if place is not None else []
    if not attempts or AttemptEvent.GONE in attempts[-1].marks:
        return None
    # Only worker 0 reports progress.
    beat = read_heartbeat(attempts[-1], 0)
    if beat is None or beat.job_id is None:
        return None
    return JobProgress(
        tpu=tpu,
        attempt=attempts[-1].number,
        job_id=beat.job_id,
        phase=_phase(beat),
        seconds_ago=max(0.0, (datetime.now(UTC) - beat.time).total_seconds()),
        progress=beat.progress,
    )


def _newest_reservation(folder: RunLayout) -> ReservationLayout | None:
    generation, newest = 1, None
    while Reservation.load_or_none((place := folder.reservation(generation)).record) is not None:
        newest, generation = place, generation + 1
    return newest


_PHASES = {
    PhaseName.OTHER: "starting or ending",
    PhaseName.DATA: "copying records",
    PhaseName.RESTORE: "loading weights",
    PhaseName.FIRST_LOOP: "compiling",
    PhaseName.LOOP: "training",
    PhaseName.SAVE: "saving",
    PhaseName.EVALUATION: "evaluating",
    PhaseName.MEETING: "waiting for other hosts",
    PhaseName.LENDING: "working for worker 0",
}


def _phase(beat: Heartbeat) -> str:
    return _PHASES[beat.phase.name] if beat.phase is not None else ""
