"""One job of the mailbox: its validation, process, files and status."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta

from pipeline_store.formats import ExitKind, JobPhase, JobSpec, JobStatus, Progress
from tpu_agent import hosts, processes
from tpu_agent.config import AgentConfig
from tpu_agent.hang_files import HangFiles
from tpu_agent.logs import LogUploader
from tpu_agent.state import JobRecord, ProcessRun, WorkDir, remember
from tpu_agent.store import StoreUnavailableError, store_call
from tpu_agent.usage import job_progress, job_usage
from tpu_agent.watch import TICK_SECONDS

# The bundle also holds the agent and the libraries; only the trainer's programs are jobs.
_ENTRY_POINT = re.compile(r"training(\.[a-z][a-z0-9_]*)+")

KILL_SECONDS = 5.0
"""After SIGKILL a process is gone at once, unless the kernel itself waits for something."""

_log = logging.getLogger(__name__)


class Job:
    """A job on this worker, with all its state that outlives the agent."""

    def __init__(self, config: AgentConfig, job_id: str) -> None:
        self.job_id = job_id
        self.folder = WorkDir(config.work_dir).job(job_id)
        self.record = JobRecord.load_or_none(self.folder.record) or JobRecord()
        self.log = LogUploader(self.folder, config.mailbox, config.worker, job_id)
        self.hangs = HangFiles(config, job_id, self.folder)
        self.phase: JobPhase | None = None
        self.phase_limit: float | None = None
        self._config = config

    def note(self, text: str) -> None:
        """Write a line to the job's log and to the VM's."""
        _log.info("%s: %s", self.job_id, text)
        # A full disk must not keep the agent from its next action.
        with contextlib.suppress(OSError), self.folder.log.open("ab") as file:
            file.write(f"[agent] {text}\n".encode())

    def note_start(self) -> None:
        """Record that the process is about to be started."""
        now = datetime.now(UTC)
        runs = [*self.record.runs, ProcessRun(started=now)]
        self._update(started=self.record.started or now, starts=self.record.starts + 1, runs=runs)

    def note_end(self) -> None:
        """Record that the process has ended, which closes its account of time."""
        self._change_run(ended=datetime.now(UTC))

    def note_kill(self) -> None:
        """Record that the process was killed and will be restarted."""
        self._update(kills=self.record.kills + 1)

    def note_hang(self, number: int, still_seconds: float) -> None:
        """Record that the process hangs, for how long already, and will be ended."""
        self._update(hangs=number)
        self._change_run(hung_since=datetime.now(UTC) - timedelta(seconds=still_seconds))

    def finish(
        self, kind: ExitKind, *, exit_code: int | None = None, message: str = ""
    ) -> JobStatus:
        """Record how the job ended; :meth:`publish` reports it to the mailbox."""
        finished = datetime.now(UTC)
        outcome = JobStatus(
            worker=self._config.worker,
            token=self._config.token,
            job_id=self.job_id,
            exit_kind=kind,
            exit_code=kind.exit_code if exit_code is None else exit_code,
            restarts=max(self.record.starts - 1, 0),
            message=message,
            started=self.record.started or finished,
            finished=finished,
            log_chunks=self.log.chunks,
        )
        self.record = self.record.model_copy(update={"outcome": outcome})
        remember(self.record, self.folder.record)
        return outcome

    def publish(self, outcome: JobStatus) -> None:
        """Upload the rest of the log and the reports of hangs, then create the status.

        If only the reports of hangs cannot be written, the status is created without them.

        :raises StoreUnavailableError: call again later.
        """
        try:
            self.hangs.upload()
        except StoreUnavailableError as error:
            _log.warning("%s; the status does not wait for it", error)
        self.log.upload(everything=True)
        used = job_usage(self.folder, datetime.now(UTC))
        status = outcome.model_copy(update={"log_chunks": self.log.chunks, "usage": used})
        uri = self._config.mailbox.status(self._config.worker, self.job_id)
        with store_call(f"creating {uri}"):
            created = status.create(uri)
        _log.info("%s: %s%s", self.job_id, status.exit_kind, "" if created else " (status existed)")

    def progress(self) -> Progress | None:
        """Return the last progress that the job reported, or None."""
        words = job_progress(self.folder, self.record.starts)
        return words[-1] if words else None

    def _change_run(self, **changes: object) -> None:
        *before, last = self.record.runs
        runs = [*before, last.model_copy(update=changes)]
        self.record = self.record.model_copy(update={"runs": runs})
        remember(self.record, self.folder.record)

    def _update(self, **changes: object) -> None:
        self.record = self.record.model_copy(update=changes)
        self.record.write(self.folder.record)


def objection(spec: JobSpec, config: AgentConfig) -> str | None:
    """Return why this worker must not run the job, or None."""
    if spec.token != config.token:
        return f"it belongs to token {spec.token}, this TPU to {config.token}. Write it anew."
    if spec.bundle_sha256 != config.bundle_sha256:
        return (
            f"it asks for code bundle {spec.bundle_sha256}, this TPU runs {config.bundle_sha256}. "
            "All jobs of a run use the bundle its TPU was created with."
        )
    path = config.bundle_dir / (spec.entry_point.replace(".", "/") + ".py")
    if not (_ENTRY_POINT.fullmatch(spec.entry_point) and path.is_file()):
        return (
            f"entry point {spec.entry_point!r} is not a module of the bundle's training package, "
            "such as training.train."
        )
    return None


class JobProcess:
    """The running ``python -m <entry_point>``, in a process group of its own."""

    def __init__(self, job: Job, spec: JobSpec, config: AgentConfig) -> None:
        """Start the process.

        :raises OSError: the machine has no room for another process or for its log, or the hosts of
            its slice cannot be read.
        """
        start = job.record.starts
        job.folder.stacks.mkdir(exist_ok=True)
        environment = os.environ | {
            **hosts.environment(config.worker, config.token),
            "PYTHONPATH": str(config.bundle_dir),
            "PYTHONUNBUFFERED": "1",
            "REPRETRAIN_HOLDER_URI": spec.holder_uri,
            "REPRETRAIN_TOKEN": config.token,
            "REPRETRAIN_PROGRESS_FILE": str(job.folder.progress(start)),
            "REPRETRAIN_PHASE_FILE": str(job.folder.phase(start)),
            "REPRETRAIN_TIME_FILE": str(job.folder.time(start)),
            "REPRETRAIN_STACKS_FOLDER": str(job.folder.stacks),
            processes.MARKER: str(config.work_dir),
        }
        with job.folder.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", spec.entry_point, *spec.arguments],
                cwd=config.bundle_dir,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,
            )

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs; a negative one is a signal."""
        return self._process.poll()

    def stop(self, grace: float) -> int:
        """End the process: SIGTERM, and SIGKILL after the grace period.

        Its helpers are left; :func:`processes.kill` finds them wherever they are, and says what to
        do about a process that survives, such as one that waits for a driver.
        """
        self._process.terminate()
        deadline = time.monotonic() + grace
        while self._process.poll() is None and time.monotonic() < deadline:
            time.sleep(TICK_SECONDS)
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(KILL_SECONDS)
        return -signal.SIGKILL
