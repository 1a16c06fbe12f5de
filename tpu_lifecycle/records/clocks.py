"""By how much a VM's clock is ahead of those of the machines that set the marks.

Nobody sees both clocks at once, but both machines write files of the store that say when: the store
notes by its own clock when it got them. A file is never there before its writer says so, hence the
file that was stored soonest tells most of its writer's clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from pipeline_store import uris
from pipeline_store.formats import AgentHello, AttemptEvent, Heartbeat
from tpu_lifecycle.records.attempts import AttemptRecord

NOTICEABLE = timedelta(seconds=5)
"""A difference between two clocks that is less is not told from a store that takes its time."""

LATE = timedelta(minutes=1)
"""Marks that are stored later than they say were copied there, or set by a clock that is wrong."""


def ahead(record: AttemptRecord, hello: AgentHello | None, beat: Heartbeat | None) -> timedelta:
    """Return by how much worker 0's clock is ahead of ours; negative: it is behind.

    Zero also when the store's times do not tell.

    :param hello: of worker 0, as is the heartbeat.
    """
    told = [(record.layout.hello(0), hello.started)] if hello else []
    told += [(record.layout.heartbeat(0), beat.time)] if beat else []
    marks = [(record.layout.record, record.attempt.created)]
    if (ready := record.marks.get(AttemptEvent.READY)) is not None:
        marks.append((record.layout.mark(AttemptEvent.READY), ready.time))
    theirs = _ahead_of_store(told)
    ours = _ahead_of_store(marks) if theirs is not None else None
    if theirs is None or ours is None or ours < -LATE or abs(theirs - ours) < NOTICEABLE:
        return timedelta(0)
    return theirs - ours


def _ahead_of_store(told: Iterable[tuple[str, datetime]]) -> timedelta | None:
    """Return by how much the clock that wrote some files is ahead of the store's, at least."""
    stored = [(time, uris.modified(uri)) for uri, time in told]
    return max((time - modified for time, modified in stored if modified), default=None)
