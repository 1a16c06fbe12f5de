"""What an attempt's time was spent on, from the facts that are in the store: the rules alone.

The time is cut at moments that follow each other; of the pieces in which a job ran, the job's own
account says more. So the pieces sum up to the whole, whatever is missing. Worker 0 speaks for all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from pipeline_store.formats import AgentHello, JobUsage, Seconds, SpentOn
from pipeline_store.formats.spent import added, fitted
from tpu_lifecycle.records.attempts import NOTICEABLE

KEPT_APART = (SpentOn.STALL, SpentOn.RECOVERY)
"""Of a probe's time, which else is not told apart."""


@dataclass(frozen=True)
class Facts:
    """What is known of one attempt.

    :param since: when the attempt before it had ended, or the reservation was made.
    :param after: what the time from then until it was asked for is called.
    :param rented: when its node was made; None: it never had one.
    :param node_created: the same as the service says it, if it does.
    :param given_up: when its end was decided: it was lost, cancelled, refused or released.
    :param gone: when its deletion was confirmed, or until when the time counts.
    :param beat: time of worker 0's last sign of life.
    :param jobs: of worker 0, oldest first.
    :param resumed: step whose checkpoint training went on from, or can, by jobs of it that were cut
        off; it may be committed after the last sign of life.
    :param is_lost: nobody knows what it did after its last sign of life.
    :param probes: ids of the jobs among them that measure a model on labelled tasks.
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

    :param job_id: the job by whose own account they have several names.
    """

    start: datetime
    end: datetime
    seconds: Seconds
    job_id: str = ""


def unbilled(facts: Facts) -> Seconds:
    """Return the time before there was a node, or in which there never was one."""
    return added(piece.seconds for piece in waits(facts))


def billed(facts: Facts) -> Seconds:
    """Return the time from the node's creation until it was gone; it sums up to all of that."""
    return added(piece.seconds for piece in pieces(facts))


def waits(facts: Facts) -> list[Piece]:
    """Return the pieces of the time that is not billed, one after the other."""
    line = _Line(min(facts.since, facts.created))
    line.until(facts.created, facts.after)
    end = facts.rented or min(facts.given_up or facts.gone, facts.gone)
    line.until(end, SpentOn.QUEUE)
    return line.parts


def pieces(facts: Facts) -> list[Piece]:
    """Return the pieces of the time that is billed, one after the other."""
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
    """Return whether what the VM tells lies within the time in which it was there.

    It does not if its clock was wrong, and nothing told by how much: then how long the parts of a
    job took is known, but not what was before, between and after.
    """
    told = [moment for job in facts.jobs for moment in (job.started, job.ended)]
    if (hello := facts.hello) is not None:
        told += [hello.boot_began, hello.image_pulled, hello.first_started or hello.started]
    least = (facts.node_created or facts.created) - NOTICEABLE
    most = facts.gone + NOTICEABLE
    return all(least <= moment <= most for moment in told if moment)


def _end_of_work(facts: Facts) -> datetime:
    """Return when the TPU had nothing to do any more but to be deleted.

    A job that is told to end when its TPU is given up first saves what it has.
    """
    given_up = min(facts.given_up or facts.gone, facts.gone)
    ends = [_account(job, facts)[0] for job in facts.jobs]
    # A clock that is ahead says of a job that it ended after its TPU was gone.
    return max([given_up, *(end for end in ends if end <= facts.gone)])


@dataclass
class _Line:
    """A moment that only ever moves on, up to an end, and what lies behind it."""

    now: datetime
    end: datetime | None = None
    parts: list[Piece] = field(default_factory=list)

    def until(self, moment: datetime, name: SpentOn) -> None:
        """Move on; what lies between has one name."""
        self.with_account(moment, {}, name)

    def with_account(
        self, moment: datetime, account: Seconds, rest: SpentOn, job_id: str = ""
    ) -> None:
        """Move on; what lies between is what an account says, and the rest has a name."""
        goal = min(moment, self.end) if self.end else moment
        if goal > self.now:
            seconds = fitted(account, (goal - self.now).total_seconds(), rest)
            self.parts.append(Piece(self.now, goal, seconds, job_id))
            self.now = goal


def _boot(line: _Line, hello: AgentHello) -> None:
    up = hello.first_started or hello.started
    line.until(hello.boot_began or up, SpentOn.TPU_INITIALIZATION)
    line.until(hello.image_pulled or line.now, SpentOn.IMAGE_PULL)
    # An agent of an earlier version does not say when its VM's own program began.
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
    """Return until when a job's account goes, and the account."""
    end = job.ended or facts.beat or job.started
    if not job.seconds:
        # Of an agent that kept none the steps are known.
        return end, {SpentOn.STEP: job.stepping_seconds}
    if job.job_id not in facts.probes:
        is_cut_off = job.ended is None and facts.given_up is not None
        unsaved = job.lost(facts.resumed.get(job.job_id)) if is_cut_off else 0.0
        lost = min(unsaved, job.seconds.get(SpentOn.STEP, 0.0))
        # A VM that is taken away cannot say any more that its process has ended.
        return end, added([job.seconds, {SpentOn.STEP: -lost, SpentOn.LOST_STEPS: lost}])
    kept = {name: value for name, value in job.seconds.items() if name in KEPT_APART}
    return end, added([kept, {SpentOn.PROBE: _total(job.seconds) - _total(kept)}])


def _total(seconds: Seconds) -> float:
    return sum(seconds.values())
