"""The attempts of a reservation as the store records them: their requests and outcomes.

The clocks of a VM and of the machine that sets the marks cannot be compared directly, but both
machines write files with times in them, and the store notes by its own clock when it got each. A
file is never stored before its writer wrote the time, hence the file that was stored soonest after
that tells most about its writer's clock.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from pipeline_store import uris
from pipeline_store.formats import (
    AgentHello,
    Attempt,
    AttemptEvent,
    AttemptMark,
    FormatError,
    Heartbeat,
    Reservation,
)
from pipeline_store.identity import resource_id
from pipeline_store.layout import AttemptLayout, ReservationLayout
from tpu_lifecycle.service.backend import (
    TpuInvalidRequestError,
    TpuName,
    TpuNotFoundError,
    TpuPermissionError,
)

LANDING_WINDOW = timedelta(seconds=60)
"""Longest time after a create call was sent in which it may still take effect, or its TPU may not
be visible yet: the call's own timeout, and as much again for a slow service."""

LASTING_REFUSALS = (TpuPermissionError, TpuInvalidRequestError, TpuNotFoundError)
"""Answers to a create call after which listing the same zone cannot be expected to work."""

BOOT_ADVICE = (
    "Check that tpu.container_image is set, that tpu.service_account may pull it and read and "
    "write the store, that the subnetwork has Private Google Access, and the startup script's log "
    "on the VM (journalctl -u google-startup-scripts)"
)
"""Advice for a TPU whose agents never report; without a final period."""

GIVEN_UP = frozenset({AttemptEvent.REFUSED, AttemptEvent.LOST, AttemptEvent.CANCELLED})
"""Marks after which an attempt's TPU is deleted and another one requested."""

_REFUSALS = frozenset(error.__name__ for error in LASTING_REFUSALS)
NOTICEABLE = timedelta(seconds=5)
"""A smaller difference between two clocks cannot be distinguished from a slow store."""

LATE = timedelta(minutes=1)
"""Marks stored this much later than their own time were copied, or set by a wrong clock."""


class Loss(StrEnum):
    """How a TPU was lost."""

    TAKEN = "taken"
    STOPPED = "stopped"
    NEVER_REPORTED = "never-reported"
    SILENT = "silent"
    HUNG = "hung"


TAKEN_BY_SERVICE = frozenset({Loss.TAKEN, Loss.STOPPED})
"""Losses in which the service takes the TPU away; the others are the run's own trouble."""


@dataclass(frozen=True)
class AttemptRecord:
    """One attempt with the marks that are set; reload it to see newer ones."""

    attempt: Attempt
    layout: AttemptLayout
    marks: dict[AttemptEvent, AttemptMark]

    @property
    def number(self) -> int:
        """Return the attempt's number within its generation, counting from 1."""
        return self.attempt.attempt

    @property
    def name(self) -> TpuName:
        """Return the name and zone of its TPU, whether or not there is one."""
        attempt = self.attempt
        return TpuName(attempt.zone, attempt.queued_resource_id, attempt.slice_count)

    @property
    def is_usable(self) -> bool:
        """Return whether it may still run jobs, now or later."""
        return not self.marks.keys() & (GIVEN_UP | {AttemptEvent.GONE})

    @property
    def is_ready(self) -> bool:
        """Return whether its TPU was seen READY and not given up since."""
        return self.is_usable and AttemptEvent.READY in self.marks

    @property
    def needs_deletion(self) -> bool:
        """Return whether it was given up but its deletion is not confirmed."""
        return not self.is_usable and AttemptEvent.GONE not in self.marks

    @property
    def may_land(self) -> bool:
        """Return whether a create call of unknown outcome may still make its TPU appear."""
        return not self.marks.keys() & {AttemptEvent.ANSWERED, AttemptEvent.READY}

    @property
    def asked(self) -> datetime | None:
        """Return when the last create call was sent, or None when none was."""
        mark = self.marks.get(AttemptEvent.ASKED)
        return mark.time if mark else None

    @property
    def workers(self) -> int:
        """Return the number of its hosts; 1 while it is not known."""
        ready = self.marks.get(AttemptEvent.READY)
        return (ready.workers or 1) if ready else 1

    @property
    def was_asked(self) -> bool:
        """Return whether a create call was ever sent."""
        return bool(
            self.marks.keys() & {AttemptEvent.ASKED, AttemptEvent.ANSWERED, AttemptEvent.READY}
        )

    @property
    def is_landing(self) -> bool:
        """Return whether its TPU may still appear from the last create call."""
        since = self.asked or self.attempt.created
        return self.may_land and datetime.now(UTC) - since < LANDING_WINDOW

    @property
    def is_unsettled(self) -> bool:
        """Return whether another poll may find a TPU that was not there before."""
        return AttemptEvent.GONE not in self.marks and (
            self.is_landing or (self.may_land and self.is_usable)
        )

    @property
    def was_denied(self) -> bool:
        """Return whether its one create call was answered with a lasting refusal: it has no TPU."""
        answer = self.marks.get(AttemptEvent.ANSWERED)
        is_refusal = answer is not None and answer.cause in _REFUSALS
        return is_refusal and AttemptEvent.READY not in self.marks

    @property
    def outcome(self) -> str:
        """Return how it ended, in words."""
        for event in (AttemptEvent.LOST, AttemptEvent.REFUSED, AttemptEvent.CANCELLED):
            if event in self.marks:
                return f"{event}: {self.marks[event].reason}"
        return "released"

    def mark_asked(self) -> AttemptRecord:
        """Record that a create call is about to be sent, and return the record with the mark."""
        mark = AttemptMark(event=AttemptEvent.ASKED, time=datetime.now(UTC))
        mark.write(self.layout.mark(AttemptEvent.ASKED))
        return AttemptRecord(self.attempt, self.layout, self.marks | {AttemptEvent.ASKED: mark})

    def mark(
        self,
        event: AttemptEvent,
        reason: str = "",
        **details: Any,
    ) -> AttemptRecord:
        """Set a mark unless it is already set, and return the record with it.

        :param details: further fields of :class:`pipeline_store.formats.AttemptMark`.
        """
        mark = AttemptMark(event=event, time=datetime.now(UTC), reason=reason, **details)
        uri = self.layout.mark(event)
        if not mark.create(uri):
            mark = AttemptMark.load(uri)
        return AttemptRecord(self.attempt, self.layout, self.marks | {event: mark})


def load_attempt(reservation: ReservationLayout, number: int) -> AttemptRecord | None:
    """Read one attempt with its marks, or None when there is none of that number."""
    layout = reservation.attempt(number)
    attempt = Attempt.load_or_none(layout.record)
    if attempt is None:
        return None
    marks = {e: AttemptMark.load_or_none(layout.mark(e)) for e in AttemptEvent}
    return AttemptRecord(attempt, layout, {e: mark for e, mark in marks.items() if mark})


def load_attempts(reservation: ReservationLayout) -> list[AttemptRecord]:
    """Read all attempts, oldest first. Their numbers have no gaps: each is created if absent."""
    records: list[AttemptRecord] = []
    while (record := load_attempt(reservation, len(records) + 1)) is not None:
        records.append(record)
    return records


def salvage_attempts(layout: ReservationLayout, reservation: Reservation) -> list[AttemptRecord]:
    """Read all attempts as far as possible: damage in the store must not keep a TPU alive.

    A damaged mark counts as not set. For a damaged attempt, its number gives the name but not the
    zone: it is returned once for every zone of the reservation.
    """
    records: list[AttemptRecord] = []
    number = 1
    while uris.exists((mailbox := layout.attempt(number)).record):
        marks = {event: mark for event in AttemptEvent if (mark := _readable_mark(mailbox, event))}
        try:
            candidates = [Attempt.load(mailbox.record)]
        except FormatError:
            candidates = [_any_attempt(reservation, number, zone) for zone in reservation.zones]
        records += [AttemptRecord(attempt, mailbox, marks) for attempt in candidates]
        number += 1
    return records


def _readable_mark(mailbox: AttemptLayout, event: AttemptEvent) -> AttemptMark | None:
    try:
        return AttemptMark.load_or_none(mailbox.mark(event))
    except FormatError:
        return None


def create_attempt(
    layout: ReservationLayout,
    reservation: Reservation,
    number: int,
    zone: str,
    checkpoint_step: int | None,
) -> AttemptRecord | None:
    """Write the next attempt's record; None when another process took the number first."""
    attempt = _any_attempt(reservation, number, zone).model_copy(
        update={
            "token": secrets.token_hex(16),
            "created": datetime.now(UTC),
            "checkpoint_step": checkpoint_step,
        }
    )
    mailbox = layout.attempt(number)
    return AttemptRecord(attempt, mailbox, {}) if attempt.create(mailbox.record) else None


def _any_attempt(reservation: Reservation, number: int, zone: str) -> Attempt:
    """Return the fields common to all attempts of that number in that zone; the token is empty."""
    name = resource_id(
        reservation.run_key, reservation.generation, number, reservation.installation
    )
    return Attempt(
        run_key=reservation.run_key,
        generation=reservation.generation,
        attempt=number,
        token="",
        zone=zone,
        queued_resource_id=name,
        node_id=name,
        slice_count=reservation.slice_count,
        created=reservation.created,
    )


def read_heartbeat(record: AttemptRecord, worker: int) -> Heartbeat | None:
    """Return a worker's last heartbeat; None when there is none, or an orphan wrote it.

    A damaged heartbeat counts as missing: it is rewritten continually, so if it stays damaged, its
    worker has died and counts as silent.
    """
    try:
        beat = Heartbeat.load_or_none(record.layout.heartbeat(worker))
    except FormatError:
        return None
    return beat if beat and beat.token == record.attempt.token else None


def ahead(record: AttemptRecord, hello: AgentHello | None, beat: Heartbeat | None) -> timedelta:
    """Return by how much worker 0's clock is ahead of ours; negative: it is behind.

    Zero also when that cannot be derived from the store's times.

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
    """Return the least amount by which the clock of some files' writer is ahead of the store's."""
    stored = [(time, uris.modified(uri)) for uri, time in told]
    return max((time - modified for time, modified in stored if modified), default=None)
