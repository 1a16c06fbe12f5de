"""Accounts for an attempt's time: each of its seconds is in exactly one of these categories.

Categories have the names of ``ml-goodput-measurement`` where it has the same one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field


class SpentOn(StrEnum):
    """The categories of an attempt's time. Stored, and shown in this order."""

    QUEUE = "queue"
    """Waiting for capacity; not billed."""
    ZONE_CHANGE = "zone_change"
    """Between a zone's refusal and the request in another one; not billed."""
    TPU_INITIALIZATION = "tpu_initialization"
    """From the node's creation until our first program runs: provisioning and boot."""
    IMAGE_PULL = "image_pull"
    CODE = "code"
    """The code bundle is fetched and verified, and the agent started."""
    JOB_WAIT = "job_wait"
    """The agent is up and waits for the next job."""
    PROGRAM_STARTUP = "program_startup"
    """A process starts: imports, devices, graphs, up to its first loop or evaluation."""
    TRAINING_PREP = "training_prep"
    """Records are copied to the VM and verified."""
    RESTORE = "unproductive_checkpoint_restore_time"
    COMPILE = "compile"
    STEP = "step"
    """Steps whose result was kept: this alone is goodput."""
    DATA_LOADING = "data_loading_sync"
    """Within a loop of steps, the device waits for its batch."""
    SAVE = "unproductive_checkpoint_save_time"
    """Only the time for which steps have to wait for a save."""
    EVALUATION = "evaluation"
    PROBE = "probe"
    MEETING = "meeting"
    """Waiting for the other hosts."""
    OTHER = "other"
    """Work of a job between and after its loops that no other category covers."""
    LOST_STEPS = "wasted_progress_from_disruption"
    """Steps since the last checkpoint when a process ended or training went back."""
    RECOVERY = "infrastructure_recovery_from_disruption"
    """Between two starts of a job on one VM; not billed: from a lost TPU to the next request."""
    STALL = "stall"
    """From the last progress of a job that hung to its end."""
    SILENCE = "silence"
    """From the last heartbeat of worker 0 until the TPU was given up."""
    IDLE = "idle_after_work"
    DELETION = "deletion"
    """From the decision to release the TPU to its confirmed deletion."""
    UNATTRIBUTED = "unattributed"


LEAST = 1e-9
"""Smaller amounts of seconds are rounding errors of sums."""

Seconds = dict[SpentOn, float]
"""Seconds by category; a missing one is 0."""


class Unsaved(BaseModel):
    """Step time that is lost if a process ends now, by the checkpoint that training resumes from.

    A checkpoint may be committed after the last report of the process that wrote it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    unsaved_seconds: float = Field(
        0.0, description="of steps that no checkpoint has which this process knows to be committed"
    )
    unsaved_after: dict[int, float] = Field(
        default_factory=dict,
        description="the same, should the checkpoint of this step be the newest one: of the newest "
        "that is committed, and of those under way",
    )
    begun_at: int | None = Field(
        None, description="step that training began or went on from; none: it has not, or is none"
    )
    last_step: int | None = Field(None, description="of those whose seconds are counted")

    def lost(self, resumed: int | None) -> float:
        """Return the seconds that are lost when training resumes from the checkpoint of a step.

        :param resumed: the step; None: it is not known.
        """
        if resumed is None or self.last_step is None:
            return self.unsaved_seconds
        nothing = 0.0 if resumed >= self.last_step else self.unsaved_seconds
        return self.unsaved_after.get(resumed, nothing)


class JobTime(Unsaved):
    """One process's time by category so far; the process writes it, its agent adds it up."""

    told: datetime = Field(description="until when the seconds count")
    now: SpentOn = Field(description="what it goes on with from then on")
    seconds: Seconds


def added(parts: Iterable[Mapping[SpentOn, float]]) -> Seconds:
    """Return the sums by category, in the order of :class:`SpentOn`, without zero sums."""
    sums: Seconds = {}
    for part in parts:
        for name, seconds in part.items():
            sums[name] = sums.get(name, 0.0) + seconds
    return {name: sums[name] for name in SpentOn if sums.get(name, 0.0) > LEAST}


def fitted(seconds: Mapping[SpentOn, float], length: float, rest: SpentOn) -> Seconds:
    """Return seconds that sum up to a given length; any shortfall goes to the category ``rest``.

    The sum can exceed the length where two clocks differ: then all are scaled down proportionally.
    """
    total = sum(seconds.values())
    if total > length:
        return added([{name: value * length / total for name, value in seconds.items()}])
    return added([seconds, {rest: length - total}])
