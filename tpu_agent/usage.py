"""Reads the reports of the jobs on this VM, and sums up what its time was spent on."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from pipeline_store.formats import JobPhase, JobTime, JobUsage, Progress, Seconds, SpentOn
from pipeline_store.formats.spent import Unsaved, added, fitted
from tpu_agent.state import JobFolder, JobRecord, ProcessRun, WorkDir

Word = TypeVar("Word", bound=BaseModel)

_log = logging.getLogger(__name__)


def job_progress(folder: JobFolder, starts: int) -> list[Progress]:
    """Return the last progress of each start of a job that reported any, oldest start first.

    There is a file per start, because a process counts only its own time: the reports of earlier
    ones are added to it, even by an agent that never saw those processes.
    """
    found = (_progress(folder, start) for start in range(1, starts + 1))
    return [progress for progress in found if progress is not None]


def usage(work_dir: WorkDir, now: datetime) -> list[JobUsage]:
    """Return the usage of each job of this VM until now, over all its starts, oldest job first.

    :raises FormatError: a record of the agent is damaged.
    """
    jobs = [job_usage(folder, now) for folder in work_dir.jobs()]
    return sorted((job for job in jobs if job is not None), key=lambda job: job.started)


def job_usage(folder: JobFolder, now: datetime) -> JobUsage | None:
    """Return a job's usage until now, over all its starts; None: it was never started.

    :raises FormatError: the agent's record of it is damaged.
    """
    record = JobRecord.load_or_none(folder.record)
    if record is None or record.started is None:
        return None
    words = job_progress(folder, record.starts)
    times = [_time(folder, start) for start in range(1, len(record.runs) + 1)]
    return JobUsage(
        job_id=folder.root.name,
        started=record.started,
        first_step=min((w.first_step for w in words if w.first_step), default=None),
        stepping_seconds=sum(word.stepping_seconds for word in words),
        ended=record.runs[-1].ended if record.outcome and record.runs else None,
        seconds=seconds(record.runs, times, now),
        **unsaved(record.runs, times, now).model_dump(),
    )


def seconds(runs: Sequence[ProcessRun], times: Sequence[JobTime | None], now: datetime) -> Seconds:
    """Return what a job's time was spent on, from its first start to its end, or until now.

    :param times: the last report of each start's process; None: it never made one.
    """
    parts: list[Seconds] = []
    for number, (run, told) in enumerate(zip(runs, times, strict=True)):
        is_last = number + 1 == len(runs)
        end = run.ended or (now if is_last else told.told if told else run.started)
        resumed = _begun_at(times[number + 1 :])
        parts.append(_of_run(run, told, end, resumed, is_over=bool(run.ended) or not is_last))
        if not is_last:
            parts.append({SpentOn.RECOVERY: _between(end, runs[number + 1].started)})
    return added(parts)


def unsaved(runs: Sequence[ProcessRun], times: Sequence[JobTime | None], now: datetime) -> Unsaved:
    """Return a job's steps that are lost if its process ends now; none once it has ended."""
    begun_at = _begun_at(times)
    if not runs or runs[-1].ended or (told := times[-1]) is None:
        return Unsaved(begun_at=begun_at)
    return _unsaved(runs[-1], told, now).model_copy(update={"begun_at": begun_at})


def _begun_at(times: Sequence[JobTime | None]) -> int | None:
    """Return the step at which the first of these processes that trained began."""
    return next((one.begun_at for one in times if one and one.begun_at is not None), None)


def _of_run(
    run: ProcessRun, told: JobTime | None, end: datetime, resumed: int | None, *, is_over: bool
) -> Seconds:
    """Return what one process spent its time on; the seconds sum up to its start-to-end time.

    Before its first report it is starting up; its last reported activity continues until it ends or
    hangs.

    :param resumed: step from which a later process resumed, if one did.
    """
    length = _between(run.started, end)
    if told is None:
        stalled = _between(run.hung_since, end) if run.hung_since else 0.0
        return fitted({SpentOn.STALL: stalled}, length, SpentOn.PROGRAM_STARTUP)
    since_told, stalled = _since_told(run, told, end)
    parts = [told.seconds, {told.now: since_told - stalled, SpentOn.STALL: stalled}]
    if is_over:
        lost = _unsaved(run, told, end).lost(resumed)
        parts.append({SpentOn.STEP: -lost, SpentOn.LOST_STEPS: lost})
    return fitted(added(parts), length, SpentOn.PROGRAM_STARTUP)


def _unsaved(run: ProcessRun, told: JobTime, end: datetime) -> Unsaved:
    """Return the seconds of steps that must be repeated, including the loop in progress."""
    since_told, stalled = _since_told(run, told, end)
    under_way = since_told - stalled if told.now is SpentOn.STEP else 0.0
    return Unsaved(
        unsaved_seconds=told.unsaved_seconds + under_way,
        unsaved_after={step: seconds + under_way for step, seconds in told.unsaved_after.items()},
        last_step=told.last_step,
    )


def _since_told(run: ProcessRun, told: JobTime, end: datetime) -> tuple[float, float]:
    """Return the seconds since a process's last report, and for how many of them it hung."""
    since_told = _between(told.told, end)
    return since_told, min(since_told, _between(run.hung_since, end)) if run.hung_since else 0.0


def _between(begin: datetime, end: datetime) -> float:
    return max(0.0, (end - begin).total_seconds())


def moves(work_dir: WorkDir) -> frozenset[tuple[str, int, int | JobPhase]]:
    """Return job, start, and step or phase of every job of this VM; it changes when one moves.

    An evaluation or a copy of data makes no steps, but counts its progress in its phase.

    :raises FormatError: a record of the agent is damaged.
    """
    found: set[tuple[str, int, int | JobPhase]] = set()
    for folder in work_dir.jobs():
        record = JobRecord.load_or_none(folder.record) or JobRecord()
        for number, progress in enumerate(job_progress(folder, record.starts)):
            found.add((folder.root.name, number, progress.step))
        if phase := _read(JobPhase, folder.phase(record.starts)):
            found.add((folder.root.name, record.starts, phase))
    return frozenset(found)


def _progress(folder: JobFolder, start: int) -> Progress | None:
    return _read(Progress, folder.progress(start))


def _time(folder: JobFolder, start: int) -> JobTime | None:
    return _read(JobTime, folder.time(start))


def _read(kind: type[Word], path: Path) -> Word | None:
    try:
        return kind.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError as error:
        _log.warning("%s is not a %s: %s", path, kind.__name__, error)
        return None
