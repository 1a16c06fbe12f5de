"""Judges whether a start of a job hangs, here or on another host, and reports where it hangs."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from pipeline_store.formats import HangReport, JobLimits, JobPhase, PhaseName
from tpu_agent import stacks
from tpu_agent.config import AgentConfig
from tpu_agent.hang_files import HangFiles
from tpu_agent.job import Job

_log = logging.getLogger(__name__)


class PhaseFile:
    """The file that one start of a job replaces whenever its phase changes or moves."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._data = b""
        self._phase = JobPhase(name=PhaseName.OTHER, entered=datetime.now(UTC))

    def read(self) -> JobPhase:
        """Return the last phase that the job reported; ``OTHER`` until it has reported one."""
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return self._phase
        if data != self._data:
            self._data = data
            try:
                self._phase = JobPhase.model_validate_json(data)
            except ValidationError as error:
                _log.warning("%s is not a JobPhase: %s", self._path, error)
        return self._phase


TIMES_SLOWEST = 6.0
LEAST_TIMES_SLOWEST = 2.0


@dataclass(frozen=True)
class Standing:
    """Seconds for which nothing has moved in a phase; ``limit`` None: there is no limit."""

    phase: JobPhase
    still: float
    limit: float | None

    @property
    def is_hang(self) -> bool:
        """Return whether the limit is exceeded."""
        return self.limit is not None and self.still > self.limit


class Judge:
    """Judge of the phases of one start of a job, in order.

    The phase determines the limit. For loops, it is 6 times the slowest of the last ones, but no
    more than the larger of the first loop's limit, which compiles, and twice the slowest; and no
    less than the floor. For all others it is configured. The limit restarts when the phase moves.
    """

    def __init__(self, limits: JobLimits) -> None:
        self._limits = limits
        self._phase: JobPhase | None = None
        self._since = 0.0

    def see(self, phase: JobPhase, now: float) -> Standing:
        """Record the job's phase, and return for how long it has not moved.

        :param now: in seconds, by a clock that counts only time that is held against the job.
        """
        if phase != self._phase:
            self._phase, self._since = phase, now
        return Standing(phase, max(0.0, now - self._since), self._limit(phase))

    def _limit(self, phase: JobPhase) -> float | None:
        if phase.name is PhaseName.LOOP:
            slowest = phase.slowest_loop_seconds or 0.0
            several = TIMES_SLOWEST * slowest
            first = self._limits.phase_seconds.get(PhaseName.FIRST_LOOP)
            if first is not None:
                several = min(several, max(first, LEAST_TIMES_SLOWEST * slowest))
            return max(self._limits.loop_floor_seconds, several)
        return self._limits.phase_seconds.get(phase.name)


LONGEST_TICK_SECONDS = 2.0
"""Limit of the time between two polls that is held against a job: beyond it, the machine or this
agent did not run either."""
LEAST_PATIENCE_SECONDS = 10.0
"""Least time to wait for the reports of other hosts."""


class HangWatch:
    """Watch on one start of a job.

    :param clock: monotonic, in seconds.
    """

    def __init__(
        self,
        config: AgentConfig,
        job: Job,
        limits: JobLimits,
        files: HangFiles,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._job = job
        self._limits = limits
        self._files = files
        self._clock = clock
        self._judge = Judge(limits)
        self._phase = PhaseFile(job.folder.phase(job.record.starts))
        self._looked = clock()
        self._ran = 0.0
        self._doubted: float | None = None
        self._moved = clock()
        # Other hosts' reports from before this start do not concern it. They are known after the
        # first poll since the start.
        self._began = clock()
        self._is_known = False
        self._known = max(files.newest, job.record.hangs)

    def look(self) -> Standing | None:
        """Return for how long the job has not moved if it hangs, else None; never blocks.

        Without a limit, another host has found the hang.
        """
        now = self._clock()
        self._ran += min(now - self._looked, LONGEST_TICK_SECONDS)
        self._looked = now
        seen = self._judge.see(self._phase.read(), self._ran - self._files.answered.away())
        self._job.phase, self._job.phase_limit = seen.phase, seen.limit
        if not seen.still:
            self._moved = now
        if not self._is_known:
            self._is_known = self._files.answered.last_asked > self._began
            self._known = max(self._known, self._files.newest)
        if self._files.newest > self._known:
            return replace(seen, limit=None)
        if not seen.is_hang:
            self._doubted = None
            return None
        if self._doubted is None:
            self._doubted = now
        # Only an answer now proves that the store was not away meanwhile.
        return seen if self._files.answered.last_asked > self._doubted else None

    def report(self, hang: Standing) -> HangReport:
        """Take the stacks and keep a report of them; from now on the hang counts."""
        number = max(self._files.newest, self._known + 1)
        # By the clock: time that was not held against the job was paid for anyway.
        self._job.note_hang(number, self._clock() - self._moved)
        found = stacks.take(self._config.work_dir, self._job.folder.stacks, self._config.bundle_dir)
        progress = self._job.progress()
        report = HangReport(
            worker=self._config.worker,
            token=self._config.token,
            job_id=self._job.job_id,
            number=number,
            found=datetime.now(UTC),
            phase=hang.phase,
            still_seconds=round(hang.still, 1),
            limit_seconds=None if hang.limit is None else round(hang.limit, 1),
            step=progress.step if progress else None,
            top=list(found.top),
            stacks=found.text,
        )
        self._files.keep(report)
        return report

    def waits_for_others(self, report: HangReport) -> bool:
        """Return whether other hosts may still be about to take their stacks.

        A job that ends on one host also ends on the others, with an error of its own.
        """
        if self._files.reported(report.number) >= self._limits.workers:
            return False
        patience = max(LEAST_PATIENCE_SECONDS, 3 * self._config.poll_interval)
        waited = (datetime.now(UTC) - report.found).total_seconds()
        return self._limits.workers > 1 and waited < patience


def describe(report: HangReport) -> str:
    """Return a description of where a job hangs."""
    step = "before its first step" if report.step is None else f"after step {report.step}"
    limit = "" if report.limit_seconds is None else f" (limit {report.limit_seconds:g} s)"
    where = f" Its main thread is in {', called from '.join(report.top)}." if report.top else ""
    return (
        f"hang {report.number}: nothing moved for {report.still_seconds:g} s{limit} in phase "
        f"{report.phase.name}, {step}.{where}"
    )
