"""The configuration that the boot script gives the agent, and the types of its arguments."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from pipeline_store.layout import AttemptLayout


def moment(text: str) -> datetime:
    """Return a point in time that is the same on every machine.

    :raises argparse.ArgumentTypeError: it has no time zone.
    """
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise argparse.ArgumentTypeError(f"{text!r} has no time zone; append +00:00 for UTC")
    return time


@dataclass(frozen=True)
class AgentConfig:
    """One worker of one attempt. Durations are seconds."""

    mailbox: AttemptLayout
    released_uri: str
    token: str
    worker: int
    bundle_sha256: str
    bundle_dir: Path
    """The unpacked bundle; jobs run in it."""
    work_dir: Path
    """Belongs to this agent alone and outlives a reboot of the VM."""
    expires_at: datetime
    heartbeat_interval: float
    poll_interval: float
    """Between two polls of mailbox, tombstone and metadata server."""
    stop_grace: float
    """Between SIGTERM and SIGKILL of a job: time for the trainer to save a checkpoint."""
    settle: float
    """After a job's failure: time to notice what has caused it, such as the VM's end."""
    job_key: str | None = field(repr=False)
    """Key that the mailbox's jobs must be signed with; None: the VM was given none."""
    boot_began: datetime | None = None
    """When our first program ran on this VM, according to the boot script."""
    image_pulled: datetime | None = None
    """When ``boot.py`` began; its container image, if any, was pulled by then."""
