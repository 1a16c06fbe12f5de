"""The agent's records in its work folder, which let it be killed at any moment."""

from __future__ import annotations

import fcntl
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from pipeline_store.formats import JobStatus, StoredFile

_log = logging.getLogger(__name__)


def remember(record: StoredFile, path: str) -> None:
    """Write a record; on a full or broken disk, continue without it.

    A job that has filled the disk must still be reported. Only the next agent on this VM lacks the
    record.
    """
    try:
        record.write(path)
    except OSError as error:
        _log.warning("%s is not written: %s", path, error)


class AgentRecord(StoredFile):
    """``agent.json``: survives the agent."""

    kind = "agent-record"

    starts: int
    first_started: datetime
    boot_began: datetime | None = Field(None, description="of the boot in which it was started")
    image_pulled: datetime | None = None


class ProcessRun(BaseModel):
    """One start of a job's process."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    started: datetime
    ended: datetime | None = Field(None, description="null: it runs, or its agent was killed")
    hung_since: datetime | None = None


class JobRecord(StoredFile):
    """``jobs/<job_id>/job.json``: what happened to a job on this VM so far."""

    kind = "agent-job-record"

    started: datetime | None = None
    starts: int = 0
    runs: list[ProcessRun] = Field(default_factory=list, description="one for each start")
    kills: int = Field(0, description="counts against max_restarts; a reboot does not")
    hangs: int = Field(0, description="number of the last hang; counts against max_hangs")
    outcome: JobStatus | None = Field(
        None, description="set when the job has ended, before its status is in the store"
    )


class LogRecord(StoredFile):
    """``jobs/<job_id>/log.json``: the last log chunk that was chosen.

    Written before the chunk is uploaded: a new agent then uploads the very same bytes again instead
    of a chunk of another length under a name that a reader may have read already.
    """

    kind = "agent-log-record"

    chunks: int = 0
    start: int = 0
    end: int = 0
    skipped: int = Field(0, description="bytes before start that no chunk holds")


@dataclass(frozen=True)
class JobFolder:
    """Files of one job in the work folder."""

    root: Path

    @property
    def record(self) -> str:
        """JobRecord."""
        return str(self.root / "job.json")

    @property
    def log_record(self) -> str:
        """LogRecord."""
        return str(self.root / "log.json")

    @property
    def log(self) -> Path:
        """Output of the job, and the agent's remarks on it; only ever appended to."""
        return self.root / "log.txt"

    def progress(self, start: int) -> Path:
        """Progress of one start of the job, counting from 1; replaced by the job."""
        return self.root / f"progress-{start}.json"

    def phase(self, start: int) -> Path:
        """JobPhase of one start of the job; replaced by the job."""
        return self.root / f"phase-{start}.json"

    def time(self, start: int) -> Path:
        """JobTime of one start of the job; replaced by the job."""
        return self.root / f"time-{start}.json"

    @property
    def stacks(self) -> Path:
        """Folder in which processes of the job write their stacks."""
        return self.root / "stacks"

    @property
    def hangs(self) -> Path:
        """Folder of hang reports, as long as they are not in the mailbox."""
        return self.root / "hangs"


@dataclass(frozen=True)
class WorkDir:
    """The agent's own folder."""

    root: Path

    def job(self, job_id: str) -> JobFolder:
        """Return a job's folder; the first file written into it creates it."""
        return JobFolder(self.root / "jobs" / job_id)

    def jobs(self) -> list[JobFolder]:
        """Return the folders of all jobs that this VM knows of, in order of name."""
        return [JobFolder(path) for path in sorted((self.root / "jobs").glob("*/"))]

    def count_start(
        self, boot_began: datetime | None, image_pulled: datetime | None
    ) -> AgentRecord:
        """Count one more agent on this VM; return its number and the times of the first one."""
        path = str(self.root / "agent.json")
        known = AgentRecord.load_or_none(path) or AgentRecord(
            starts=0,
            first_started=datetime.now(UTC),
            boot_began=boot_began,
            image_pulled=image_pulled,
        )
        record = known.model_copy(update={"starts": known.starts + 1})
        remember(record, path)
        return record

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder's lock as its only agent; the kernel releases a dead agent's lock.

        :raises BlockingIOError: another agent is alive.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        with (self.root / "agent.lock").open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
