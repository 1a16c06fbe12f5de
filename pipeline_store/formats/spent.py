"""What an attempt's time was spent on: every second of it has one of these names.

Names are those of ``ml-goodput-measurement`` where it has one for the same thing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field


class SpentOn(StrEnum):
    """What a second went to. Stored, and shown in this order."""

    QUEUE = "queue"
    """Waiting for capacity; not billed."""
    ZONE_CHANGE = "zone_change"
    """Between a zone's refusal and asking in another one; not billed."""
    TPU_INITIALIZATION = "tpu_initialization"
    """From the node's creation until a program of ours runs: the service's part, and the boot."""
    IMAGE_PULL = "image_pull"
    CODE = "code"
    """The code bundle is fetched and verified, and the agent started."""
    JOB_WAIT = "job_wait"
    """The agent is up, and the next job is not there yet."""
    PROGRAM_STARTUP = "program_startup"
    """A process starts: imports, devices, graphs, up to its first loop or evaluation."""
    TRAINING_PREP = "training_prep"
    """Records are copied to the VM and verified."""
    RESTORE = "unproductive_checkpoint_restore_time"
    COMPILE = "compile"
    STEP = "step"
    """Steps whose result was kept: this alone is goodput."""
    DATA_LOADING = "data_loading_sync"
    """Within a loop of steps: the device waits for its batch."""
    SAVE = "unproductive_checkpoint_save_time"
    """Only as long as the steps have to wait for it."""
    EVALUATION = "evaluation"
    PROBE = "probe"
    MEETING = "meeting"
    """Waiting for the other hosts."""
    OTHER = "other"
    """What a job does between its loops and after them, and has no name of its own."""
    LOST_STEPS = "wasted_progress_from_disruption"
    """Steps since the last checkpoint when a process ended or training went back."""
    RECOVERY = "infrastructure_recovery_from_disruption"
    """Between two starts of a job on one VM; not billed: between a lost TPU and asking anew."""
    STALL = "stall"
    """From the last thing that moved in a job that hung to its end."""
    SILENCE = "silence"
    """After the last sign of life of worker 0, until the TPU was given up."""
    IDLE = "idle_after_work"
    DELETION = "deletion"
    """From the decision to give the TPU back to its confirmed end."""
    UNATTRIBUTED = "unattributed"


LEAST = 1e-9
"""Less is what is left of a sum and its parts."""

Seconds = dict[SpentOn, float]
"""Seconds by name; one that is not there is 0."""


class Unsaved(BaseModel):
    """What is lost of a process's steps if it ends now, by where training goes on then.

    A checkpoint may be committed after the last word of the process that wrote it.
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
        """Return the seconds that are lost when training goes on from the checkpoint of a step.

        :param resumed: None: it is not known from which.
        """
        if resumed is None or self.last_step is None:
            return self.unsaved_seconds
        nothing = 0.0 if resumed >= self.last_step else self.unsaved_seconds
        return self.unsaved_after.get(resumed, nothing)


class JobTime(Unsaved):
    """What one process has spent its time on so far; it writes it, its agent adds it up."""

    told: datetime = Field(description="until when the seconds count")
    now: SpentOn = Field(description="what it goes on with from then on")
    seconds: Seconds


def added(parts: Iterable[Mapping[SpentOn, float]]) -> Seconds:
    """Return the sums by name, in the order of the names; of what was never spent there is none."""
    sums: Seconds = {}
    for part in parts:
        for name, seconds in part.items():
            sums[name] = sums.get(name, 0.0) + seconds
    return {name: sums[name] for name in SpentOn if sums.get(name, 0.0) > LEAST}


def fitted(seconds: Mapping[SpentOn, float], length: float, rest: SpentOn) -> Seconds:
    """Return seconds that sum up to a length: what is missing is the rest's.

    More than that there can be where two clocks differ: then all are shorter by the same share.
    """
    total = sum(seconds.values())
    if total > length:
        return added([{name: value * length / total for name, value in seconds.items()}])
    return added([seconds, {rest: length - total}])
