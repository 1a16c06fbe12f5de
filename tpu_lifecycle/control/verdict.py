"""Decides the outcome of a TPU or of its job from everything that is known about them.

Pure functions of :class:`Facts`, so that every rule can be tested without a TPU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from pipeline_store.formats import AttemptMark, ExitKind, JobStatus, PhaseName
from tpu_lifecycle.records.attempts import BOOT_ADVICE, LANDING_WINDOW, Loss
from tpu_lifecycle.service.backend import TpuState

_Rule = Callable[["Facts"], "Verdict | None"]


class Outcome(StrEnum):
    """Outcome of a wait."""

    WAITING = "waiting"
    READY = "ready"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    LOST = "lost"
    REFUSED = "refused"
    RELEASED = "released"
    DEADLINE = "deadline"
    BUDGET = "budget"


@dataclass(frozen=True)
class Verdict:
    """An outcome and its reason; ``exit_kind`` and ``worker`` are set only when a job failed.

    ``cause`` is the machine-readable reason: how a TPU was lost, or the class of the service's
    error with which it was refused. ``retryable``: whether another zone may grant what one refused.
    """

    outcome: Outcome
    reason: str = ""
    cause: str = ""
    exit_kind: ExitKind | None = None
    worker: int | None = None
    retryable: bool = True

    @property
    def is_final(self) -> bool:
        """Return whether the wait is over."""
        return self.outcome is not Outcome.WAITING

    def to_event(self) -> dict[str, Any]:
        """Return the verdict for a trigger's event, as plain JSON values."""
        return {
            "outcome": str(self.outcome),
            "reason": self.reason,
            "cause": str(self.cause),
            "retryable": self.retryable,
            "exit_kind": str(self.exit_kind) if self.exit_kind else None,
            "worker": self.worker,
        }


class Standing(NamedTuple):
    """Seconds for which a worker's job has not moved, and the limit at which its agent ends it.

    Without a phase: seconds for which its agent has sent heartbeats without starting the job.
    """

    phase: PhaseName | None
    seconds: float
    limit: float


@dataclass(frozen=True)
class Facts:
    """Everything that is known at one moment. Durations are in seconds.

    ``tpu`` is None while the service does not answer: that alone says nothing about the TPU.
    ``asked`` is when the TPU was last requested. ``silence`` is, by worker, the time since its last
    new heartbeat as we saw it, so that a wrong clock on the VM cannot make it look dead.
    ``standing`` is, by worker, how long its job has not moved, if its agent reports that.
    ``budget_end`` is when the TPU will have used up the remaining chip-hours.
    """

    now: datetime
    deadline: datetime
    released: bool = False
    tpu: TpuState | None = None
    asked: datetime | None = None
    budget_end: datetime | None = None
    ready: AttemptMark | None = None
    hellos: frozenset[int] = frozenset()
    silence: Mapping[int, float] = field(default_factory=dict)
    standing: Mapping[int, Standing] = field(default_factory=dict)
    statuses: Mapping[int, JobStatus] = field(default_factory=dict)
    boot_timeout: float = 900.0
    heartbeat_timeout: float = 300.0

    @property
    def workers(self) -> int:
        """Return the number of hosts; 0 while it is not known."""
        return (self.ready.workers or 1) if self.ready else 0


def judge_readiness(facts: Facts) -> Verdict:
    """Return the verdict on a requested TPU: ready, not coming, or still awaited."""
    return _first(facts, (_released, _taken_early, _refused, _ready, _came_too_late))


def judge_job(facts: Facts) -> Verdict:
    """Return the verdict on a job: failed if any worker failed, ok if all are ok, else wait.

    The workers' reports take precedence over the TPU's later fate, except for a failure that the
    loss of the TPU explains.
    """
    return _first(
        facts,
        (
            _failed,
            _stopped,
            _succeeded,
            _released,
            _deadline,
            _budget,
            _lost,
            _never_reported,
            _silent,
            _hung,
        ),
    )


def _first(facts: Facts, rules: tuple[_Rule, ...]) -> Verdict:
    verdicts = (rule(facts) for rule in rules)
    return next((v for v in verdicts if v is not None), Verdict(Outcome.WAITING))


def _released(facts: Facts) -> Verdict | None:
    if facts.released:
        return Verdict(Outcome.RELEASED, "the reservation was released")
    return None


def _deadline(facts: Facts) -> Verdict | None:
    if facts.now >= facts.deadline:
        reason = f"not done at {facts.deadline:%F %T} UTC"
        return Verdict(Outcome.DEADLINE, f"{reason}{_unheard_of(facts)}")
    return None


def _came_too_late(facts: Facts) -> Verdict | None:
    # Unless the service answers, it may have come in time, between two polls.
    return _deadline(facts) if facts.tpu is not None else None


def _budget(facts: Facts) -> Verdict | None:
    if facts.budget_end is not None and facts.now >= facts.budget_end:
        reason = (
            f"budget.max_chip_hours or budget.max_cost was used up at {facts.budget_end:%F %T} UTC"
        )
        return Verdict(Outcome.BUDGET, f"{reason}{_unheard_of(facts)}")
    return None


def _unheard_of(facts: Facts) -> str:
    """Return what to check if no agent ever reported, as the end of a reason.

    A budget may end before ``boot_timeout``; a larger one would be spent in the same way.
    """
    if facts.tpu is None or not facts.workers or facts.hellos:
        return ""
    return f"; none of the {facts.workers} workers ever reported. {BOOT_ADVICE}"


def _taken_early(facts: Facts) -> Verdict | None:
    """Return a loss, not a refusal, for a TPU taken before it was seen READY: its zone had one."""
    if facts.tpu is None or not facts.tpu.was_taken:
        return None
    return Verdict(Outcome.LOST, facts.tpu.gone_reason or "", Loss.TAKEN)


def _refused(facts: Facts) -> Verdict | None:
    if facts.tpu is None or (reason := facts.tpu.gone_reason) is None:
        return None
    fault = facts.tpu.fault
    if not facts.tpu.exists and fault is None and _may_be_late(facts):
        return None  # a request that was just accepted may not be visible yet
    return Verdict(
        Outcome.REFUSED,
        reason,
        cause=type(fault).__name__ if fault else "",
        retryable=fault is None or fault.retryable,
    )


def _may_be_late(facts: Facts) -> bool:
    return facts.asked is not None and facts.now - facts.asked < LANDING_WINDOW


def _ready(facts: Facts) -> Verdict | None:
    return Verdict(Outcome.READY) if facts.tpu is not None and facts.tpu.is_ready else None


def _failed(facts: Facts) -> Verdict | None:
    failed = {
        worker: status
        for worker, status in sorted(facts.statuses.items())
        if status.exit_kind not in (ExitKind.OK, ExitKind.PREEMPTED)
    }
    own = {w: status for w, status in failed.items() if status.exit_kind not in _MAY_BE_A_LOSS}
    if not failed:
        return None
    worker, status = next(iter((own or failed).items()))
    if not own:
        # A TPU that is taken away breaks its jobs before it is gone: then the job is not to blame.
        if (gone := _why_it_went(facts)) is not None:
            reason = f"worker {worker} ended with {status.exit_kind} as the TPU went"
            return Verdict(Outcome.LOST, f"{reason}: {gone}", Loss.TAKEN)
        if facts.tpu is None and not facts.released and facts.now < facts.deadline:
            return Verdict(Outcome.WAITING)  # until the service tells whether the TPU is at fault
    return Verdict(Outcome.FAILED, status.message, exit_kind=status.exit_kind, worker=worker)


_MAY_BE_A_LOSS = (ExitKind.FAILED, ExitKind.KILLED)
"""Ends of a job that the loss of its TPU may explain, among other reasons."""


def _why_it_went(facts: Facts) -> str | None:
    told = [w for w, s in sorted(facts.statuses.items()) if s.exit_kind is ExitKind.PREEMPTED]
    if told:
        return f"worker {told[0]} was told to stop (preempted)"
    return facts.tpu.gone_reason if facts.tpu is not None else None


def _stopped(facts: Facts) -> Verdict | None:
    for worker, status in sorted(facts.statuses.items()):
        if status.exit_kind is ExitKind.PREEMPTED:
            reason = f"worker {worker} was told to stop (preempted)"
            return Verdict(Outcome.LOST, reason, Loss.STOPPED)
    return None


def _succeeded(facts: Facts) -> Verdict | None:
    if facts.workers and all(worker in facts.statuses for worker in range(facts.workers)):
        return Verdict(Outcome.SUCCEEDED)
    return None


def _lost(facts: Facts) -> Verdict | None:
    if facts.tpu is not None and (reason := facts.tpu.gone_reason) is not None:
        return Verdict(Outcome.LOST, reason, Loss.TAKEN)
    return None


def _never_reported(facts: Facts) -> Verdict | None:
    # Without an answer of the service a replacement could not be made anyway: wait.
    if facts.tpu is None or facts.ready is None:
        return None
    waited = (facts.now - facts.ready.time).total_seconds()
    missing = [w for w in range(facts.workers) if w not in facts.hellos]
    if missing and waited > facts.boot_timeout:
        return Verdict(
            Outcome.LOST,
            f"worker {missing[0]} never reported within {facts.boot_timeout:.0f} s of READY "
            f"({len(missing)} of {facts.workers} workers missing)",
            Loss.NEVER_REPORTED,
        )
    return None


def _silent(facts: Facts) -> Verdict | None:
    if facts.tpu is None:
        return None
    for worker, seconds in sorted(facts.silence.items()):
        if worker not in facts.statuses and seconds > facts.heartbeat_timeout:
            return Verdict(
                Outcome.LOST,
                f"worker {worker} gave no sign for {seconds:.0f} s ({facts.tpu.describe()}, health "
                f"{facts.tpu.health or 'unknown'})",
                Loss.SILENT,
            )
    return None


def _hung(facts: Facts) -> Verdict | None:
    """Return a loss if an agent sends heartbeats but should have ended its job: it hangs, too."""
    if facts.tpu is None:
        return None
    for worker, job in sorted(facts.standing.items()):
        if worker not in facts.statuses and job.seconds > job.limit + facts.heartbeat_timeout:
            what = (
                f"nothing moved on worker {worker} for {job.seconds:.0f} s in phase {job.phase} "
                f"(limit {job.limit:.0f} s), and its agent did not end the job"
                if job.phase
                else f"worker {worker} beats, but did not begin the job within "
                f"{job.seconds:.0f} s (limit {job.limit:.0f} s)"
            )
            return Verdict(Outcome.LOST, what, Loss.HUNG)
    return None
