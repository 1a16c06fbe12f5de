"""What the stack remembers between commands."""

from __future__ import annotations

from typing import ClassVar

import psutil
from pydantic import BaseModel, ConfigDict

from pipeline_store.formats.base import StoredFile


class ProcessId(BaseModel):
    """A process that cannot be confused with a later one of the same number."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    pid: int
    started: float
    """Seconds since the epoch, as the operating system reports it."""

    @classmethod
    def of(cls, pid: int) -> ProcessId:
        """Return the identity of a running process."""
        return cls(pid=pid, started=psutil.Process(pid).create_time())

    def is_running(self) -> bool:
        """Return whether this very process is still there; a zombie is not."""
        try:
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.started) < 1.0
            return same and process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False


class StackRecord(StoredFile):
    """The stack of one state folder."""

    kind: ClassVar[str] = "local-stack"

    runtime_dir: str
    """Folder of the Unix sockets."""
    ports: dict[str, int]
    """TCP port on the loopback interface by part."""
    extra_environment: dict[str, str]
    """Settings the caller added or replaced."""
    stop_seconds: float
    """How long the supervisor may take to stop everything in order."""
    supervisor: ProcessId | None
    """The supervisord last started, until the stack was stopped cleanly."""
