"""Splits an attempt's time by what it was spent on, from facts in the store: the rules alone.

The time is cut at successive moments; for the pieces in which a job ran, the job's own account has
more detail. So the pieces sum up to the whole, whatever is missing. Worker 0 speaks for all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from pipeline_store.formats import AgentHello, JobUsage, Seconds, SpentOn
from pipeline_store.formats.spent import added, fitted
from tpu_lifecycle.records.attempts import NOTICEABLE

KEPT_APART = (SpentOn.STALL, SpentOn.RECOVERY)
"""The parts of a probe's time that are kept separate; the rest is one part."""


@dataclass(frozen=True)
class Facts:
    """Facts that are known about one attempt.

    :param since: when the previous attempt had ended, or the reservation was made.
    :param after: name of the time from ``since`` to ``created``.
    :param rented: when its node was created; None: it never had one.
    :param node_created: the same as the service states it, if it does.
    :param given_up: when its end was decided: it was lost, cancelled, refused or released.
    :param gone: when its deletion was confirmed, or until when the time counts.
    :param beat: time of worker 0's last heartbeat.
    :param jobs: of worker 0, oldest first.
    :param resumed: step of the checkpoint from which training resumed, or can, by id of a job that
        was cut off; it may be committed after the last heartbeat.
    :param is_lost: its activity after its last heartbeat is unknown.
    :param probes: ids of those jobs that measure a model on labeled tasks.
    """

    since: datetime
    created: datetime
    gone: datetime
    after: SpentOn = SpentOn.QUEUE
    rented: datetime | None = None
    node_created: datetime | None = None
    given_up: datetime | None = None
    hello: AgentHello | None = None
    beat: datetime | None = None
    jobs: Sequence[JobUsage] = ()
    probes: frozenset[str] = frozenset()
    resumed: Mapping[str, int] = field(default_factory=dict)
    is_lost: bool = False


@dataclass(frozen=True)
class Piece:
    """A part of an attempt's time, and what it was spent on; the seconds sum up to all of it.

    :param job_id: the job whose own account splits the seconds.
    """

    start: datetime
    end: datetime
    seconds: Seconds
    job_id: str = ""


def unbilled(facts: Facts) -> Seconds:
    """Return the time before there was a node, or all of it if there never was one."""
    return added(piece.seconds for piece in waits(facts))


def billed(facts: Facts) -> Seconds:
    """Return the time from the node's creation until it was gone; it sums up to all of that."""
    return added(piece.seconds for piece in pieces(facts))


def waits(facts: Facts) -> list[Piece]:
    """Return the pieces of the unbilled time in order."""
    line = _Line(min(facts.since, facts.created))
    line.until(facts.created, facts.after)
    end = facts.rented or min(facts.given_up or facts.gone, facts.gone)
    line.until(end, SpentOn.QUEUE)
    return line.parts


def pieces(facts: Facts) -> list[Piece]:
    """Return the pieces of the billed time in order."""
    if facts.rented is None:
        return []
    end = _end_of_work(facts)
    line = _Line(facts.rented, end)
    if not _is_in_order(facts):
        accounts = added(_account(job, facts)[1] for job in facts.jobs)
        line.with_account(end, accounts, SpentOn.UNATTRIBUTED)
    elif facts.hello is None:
        line.until(end, SpentOn.TPU_INITIALIZATION)
    else:
        _boot(line, facts.hello)
        _jobs(line, facts)
    line.end = max(facts.gone, line.now)
    line.until(facts.gone, SpentOn.DELETION)
    return line.parts


def _is_in_order(facts: Facts) -> bool:
    """Return whether the times that the VM reported lie within its lifetime.

    They do not if its clock was wrong by an unknown amount: then the durations of the parts of a
    job are known, but not what was before, between and after the jobs.
    """
    told = [moment for job in facts.jobs for moment in (job.started, job.ended)]
    if (hello := facts.hello) is not None:
        told += [hello.boot_began, hello.image_pulled, hello.first_started or hello.started]
    least = (facts.node_created or facts.created) - NOTICEABLE
    most = facts.gone + NOTICEABLE
    return all(least <= moment <= most for moment in told if moment)


def _end_of_work(facts: Facts) -> datetime:
    """Return when the TPU had nothing left to do but be deleted.

    A job that is stopped when its TPU is given up first saves its state.
    """
    given_up = min(facts.given_up or facts.gone, facts.gone)
    ends = [_account(job, facts)[0] for job in facts.jobs]
    # By a clock that is ahead, a job may have ended after its TPU was gone.
    return max([given_up, *(end for end in ends if end <= facts.gone)])


@dataclass
class _Line:
    """A moment that only moves forward, up to an end, and the pieces of time behind it."""

    now: datetime
    end: datetime | None = None
    parts: list[Piece] = field(default_factory=list)

    def until(self, moment: datetime, name: SpentOn) -> None:
        """Move forward; the time in between gets one name."""
        self.with_account(moment, {}, name)

    def with_account(
        self, moment: datetime, account: Seconds, rest: SpentOn, job_id: str = ""
    ) -> None:
        """Move forward; an account splits the time in between, and the rest gets a name."""
        goal = min(moment, self.end) if self.end else moment
        if goal > self.now:
            seconds = fitted(account, (goal - self.now).total_seconds(), rest)
            self.parts.append(Piece(self.now, goal, seconds, job_id))
            self.now = goal


def _boot(line: _Line, hello: AgentHello) -> None:
    up = hello.first_started or hello.started
    line.until(hello.boot_began or up, SpentOn.TPU_INITIALIZATION)
    line.until(hello.image_pulled or line.now, SpentOn.IMAGE_PULL)
    # An agent of an earlier version does not report when its VM's own program began.
    line.until(up, SpentOn.CODE)


def _jobs(line: _Line, facts: Facts) -> None:
    assert line.end is not None  # noqa: S101 - see billed
    for job in facts.jobs:
        line.until(job.started, SpentOn.JOB_WAIT)
        line.with_account(*_account(job, facts), SpentOn.UNATTRIBUTED, job.job_id)
    if not facts.jobs or facts.jobs[-1].ended:
        heard = line.end if not facts.is_lost else facts.beat or line.now
        line.until(heard, SpentOn.IDLE if facts.jobs else SpentOn.JOB_WAIT)
    line.until(line.end, SpentOn.SILENCE)


def _account(job: JobUsage, facts: Facts) -> tuple[datetime, Seconds]:
    """Return the end of the time that a job's account covers, and the account."""
    end = job.ended or facts.beat or job.started
    if not job.seconds:
        # An agent that kept no account still reported the time in steps.
        return end, {SpentOn.STEP: job.stepping_seconds}
    if job.job_id not in facts.probes:
        is_cut_off = job.ended is None and facts.given_up is not None
        unsaved = job.lost(facts.resumed.get(job.job_id)) if is_cut_off else 0.0
        lost = min(unsaved, job.seconds.get(SpentOn.STEP, 0.0))
        # A VM that is taken away can no longer report that its process has ended.
        return end, added([job.seconds, {SpentOn.STEP: -lost, SpentOn.LOST_STEPS: lost}])
    kept = {name: value for name, value in job.seconds.items() if name in KEPT_APART}
    return end, added([kept, {SpentOn.PROBE: _total(job.seconds) - _total(kept)}])


def _total(seconds: Seconds) -> float:
    return sum(seconds.values())
