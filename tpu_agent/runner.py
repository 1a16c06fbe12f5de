"""Runs one job to its end: starts it, watches it, and restarts it after a kill or a hang."""

from __future__ import annotations

import logging
import shutil
import signal
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from pipeline_store.formats import ExitKind, HangReport, JobLimits, JobSpec, JobStatus
from tpu_agent import diagnosis, logs, processes, stacks
from tpu_agent.config import AgentConfig
from tpu_agent.diagnosis import HbmShortage, find_shortage
from tpu_agent.hang_watch import HangWatch, Standing, describe
from tpu_agent.heartbeat import Reporter
from tpu_agent.job import Job, JobProcess, objection
from tpu_agent.store import StoreUnavailableError
from tpu_agent.watch import TICK_SECONDS, Stop, StopKind, Watch

LAST_TRIES = 3

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _End:
    """How one process ended, and the agent's part in it."""

    code: int
    stop: Stop | None = None
    deadline_passed: bool = False
    killed_by_kernel: bool = False
    shortage: HbmShortage | None = None
    hang: HangReport | None = None

    @property
    def kind(self) -> ExitKind:
        if self.deadline_passed and self.code != 0:
            return ExitKind.DEADLINE
        if self.hang and self.code != 0:
            return ExitKind.HUNG
        kind = ExitKind.from_exit_code(self.code)
        # A library that gives up by itself shows it in the log only, not by the exit code.
        unspecific = kind is ExitKind.FAILED or self.code == -signal.SIGABRT
        if self.killed_by_kernel or (self.shortage and unspecific):
            return ExitKind.OUT_OF_MEMORY
        return kind


class JobRunner:
    """Runs the jobs of this worker, one at a time."""

    def __init__(self, config: AgentConfig, watch: Watch, reporter: Reporter) -> None:
        self._config = config
        self._watch = watch
        self._reporter = reporter

    def run(self, spec: JobSpec, limits: JobLimits | None) -> Stop | None:
        """Run the job, or continue where an earlier agent was killed, and publish its status.

        :param limits: when the job counts as hung; None: never.
        :returns: why the agent must stop, if it must.
        :raises StoreUnavailableError: the job has ended but its status is not in the mailbox yet;
            the next call only publishes it.
        """
        job = Job(self._config, spec.job_id)
        with self._reporter.following(job), job.hangs:
            stop = None if job.record.outcome else self._execute(job, spec, limits)
            if outcome := job.record.outcome:
                self._publish(job, outcome, tries=LAST_TRIES if stop else 1)
        return stop

    def refuse(self, job_id: str, reason: str) -> None:
        """Publish that a job was not even started.

        :raises StoreUnavailableError: call again later.
        """
        job = Job(self._config, job_id)
        job.publish(job.finish(ExitKind.USER_ERROR, message=f"Job {job_id} is refused: {reason}"))

    def _publish(self, job: Job, outcome: JobStatus, tries: int) -> None:
        for _ in range(tries - 1):
            try:
                job.publish(outcome)
            except StoreUnavailableError as error:
                _log.warning("%s; trying again", error)
                time.sleep(self._config.settle)
            else:
                return
        job.publish(outcome)

    def _execute(self, job: Job, spec: JobSpec, limits: JobLimits | None) -> Stop | None:
        if reason := objection(spec, self._config):
            job.finish(ExitKind.USER_ERROR, message=f"Job {job.job_id} is refused: {reason}")
            return None
        if job.record.starts:
            job.note(f"starting {spec.entry_point} again: the VM or its agent was restarted")
        try:
            return self._run_to_end(job, spec, limits)
        except OSError as error:
            failed, text = ExitKind.FAILED, f"The agent could not run it: {error}"
            job.finish(failed, message=self._message(spec, failed, failed.exit_code, text))
            return None

    def _run_to_end(self, job: Job, spec: JobSpec, limits: JobLimits | None) -> Stop | None:
        while True:
            end = self._run_once(job, spec, limits)
            if end.stop:
                self._finish_stopped(job, spec, end.stop, end.code)
                return end.stop
            if end.kind is ExitKind.KILLED and job.record.kills < spec.max_restarts:
                job.note_kill()
                what = f"was killed ({diagnosis.describe_end(end.code)})"
                number, most = job.record.kills, spec.max_restarts
            elif end.hang and limits and end.code != 0 and end.hang.number <= limits.max_hangs:
                what, number, most = "hung", end.hang.number, limits.max_hangs
            else:
                self._finish(job, spec, end)
                return None
            job.note(f"{spec.entry_point} {what}; starting it again ({number} of {most})")

    def _run_once(self, job: Job, spec: JobSpec, limits: JobLimits | None) -> _End:
        if datetime.now(UTC) >= spec.deadline:
            return _End(ExitKind.DEADLINE.exit_code, deadline_passed=True)
        kernel_kills, log_begin = diagnosis.kill_count(), logs.size(job.folder.log)
        job.note_start()
        watch = HangWatch(self._config, job, limits, job.hangs) if limits else None
        process = JobProcess(job, spec, self._config)
        try:
            end = self._supervise(process, job, spec, watch)
        finally:
            # Also when this agent fails: it must not leave an unwatched trainer.
            processes.kill(self._config.work_dir)
            job.note_end()
        if end.hang:
            return end
        killed = end.code == -signal.SIGKILL and not (end.stop or end.deadline_passed)
        if killed and diagnosis.kill_count() > kernel_kills:
            return _End(end.code, killed_by_kernel=True)
        if end.kind in (ExitKind.OK, ExitKind.PREEMPTED) or end.stop:
            return end
        end = replace(end, shortage=find_shortage(logs.since(job.folder.log, log_begin)))
        # When the VM goes away, SIGTERM reaches agent and job in any order, and a job's error while
        # its machine shuts down is no verdict on the job.
        return replace(end, stop=self._watch.last_look(self._config.settle))

    def _supervise(
        self, process: JobProcess, job: Job, spec: JobSpec, watch: HangWatch | None
    ) -> _End:
        while (code := process.poll()) is None:
            stop = self._watch.stop()
            deadline_passed = datetime.now(UTC) >= spec.deadline
            if stop or deadline_passed:
                reason = stop.reason if stop else f"the job's deadline {spec.deadline} has passed"
                job.note(f"stopping {spec.entry_point}: {reason}")
                return _End(process.stop(self._config.stop_grace), stop, deadline_passed)
            if watch and (hang := watch.look()):
                return self._end_hung(process, job, spec, watch, hang)
            time.sleep(TICK_SECONDS)
        return _End(code)

    def _end_hung(
        self, process: JobProcess, job: Job, spec: JobSpec, watch: HangWatch, hang: Standing
    ) -> _End:
        """End a hung job, after its stacks are taken here and on the other hosts."""
        report = watch.report(hang)
        job.note(describe(report))
        while watch.waits_for_others(report) and process.poll() is None and not self._watch.stop():
            time.sleep(TICK_SECONDS)
        job.note(f"stopping {spec.entry_point}: it hangs")
        stacks.wake(self._config.work_dir)
        code = process.stop(self._config.stop_grace)
        return _End(code, stop=self._watch.stop(), hang=report)

    def _finish_stopped(self, job: Job, spec: JobSpec, stop: Stop, code: int) -> None:
        kind = ExitKind.from_exit_code(code)
        if stop.kind is StopKind.REVOKED:
            _log.info("%s: no status is written: %s", job.job_id, stop.reason)
        elif stop.kind is StopKind.EXPIRED and kind is not ExitKind.OK:
            self._finish(job, spec, _End(code, deadline_passed=True))
        elif kind in (ExitKind.OK, ExitKind.PREEMPTED):
            self._finish(job, spec, _End(code))
        else:
            job.note("no status is written: if this VM comes back, the job runs again")

    def _finish(self, job: Job, spec: JobSpec, end: _End) -> None:
        kind = end.kind
        log_tail = logs.tail(job.folder.log, diagnosis.TAIL_LINES)
        where = describe(end.hang) if end.hang else ""
        message = self._message(spec, kind, end.code, log_tail, shortage=end.shortage, hang=where)
        ended_by_us = kind in (ExitKind.DEADLINE, ExitKind.HUNG)
        job.finish(kind, exit_code=kind.exit_code if ended_by_us else end.code, message=message)

    def _message(
        self,
        spec: JobSpec,
        kind: ExitKind,
        code: int,
        log_tail: str,
        *,
        shortage: HbmShortage | None = None,
        hang: str = "",
    ) -> str:
        return diagnosis.explain(
            kind,
            job=spec.entry_point,
            worker=self._config.worker,
            code=code,
            tail=log_tail,
            disk_free_bytes=shutil.disk_usage(self._config.work_dir).free,
            shortage=shortage,
            hang=hang,
        )
