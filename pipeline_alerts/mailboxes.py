"""Reads from the store when the TPUs that are rented for a folder last showed activity.

Files that a VM writes by itself, above all its heartbeat without a job, do not count as activity: a
forgotten TPU writes them, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from pipeline_alerts.facts import read_reservations
from pipeline_store import uris
from pipeline_store.formats import AttemptEvent
from pipeline_store.layout import RunLayout
from tpu_lifecycle.records.attempts import AttemptRecord, read_heartbeat
from tpu_lifecycle.records.reservation import OpenReservation


@dataclass(frozen=True)
class Mailbox:
    """One attempt with the signs of activity in its mailbox.

    :ivar tpu: number of the TPU within the run, from 0.
    :ivar changes: when each file of the mailbox last changed, by its path in the mailbox.
    :ivar released: when its reservation was released, if it was.
    :ivar beats: when each worker last reported a running job.
    """

    tpu: int
    reservation: OpenReservation
    record: AttemptRecord
    changes: dict[str, datetime]
    released: datetime | None
    beats: list[datetime]

    @property
    def may_exist(self) -> bool:
        """Return whether a TPU was requested and not denied, and is not confirmed gone."""
        is_gone = AttemptEvent.GONE in self.record.marks
        return self.record.was_asked and not is_gone and not self.record.was_denied

    @property
    def is_rented(self) -> bool:
        """Return whether its TPU was seen READY and is not confirmed gone."""
        return AttemptEvent.READY in self.record.marks and self.may_exist

    @property
    def has_reported(self) -> bool:
        """Return whether one of its agents has ever reported."""
        return any(path.startswith("workers/") for path in self.changes)

    @property
    def name(self) -> str:
        """Return the name of the attempt within the run, such as ``tpu1-g1-a2``."""
        number = f"tpu{self.tpu}-" if self.tpu else ""
        return f"{number}g{self.reservation.record.generation}-a{self.record.number}"

    def jobs(self) -> list[datetime]:
        """Return when jobs were submitted to it, ran on it and ended."""
        ends = (t for path, t in self.changes.items() if path.endswith("/status.json"))
        given = (t for path, t in self.changes.items() if path.startswith("jobs/"))
        return [*given, *self.beats, *ends]

    def signs(self) -> list[datetime]:
        """Return when its jobs showed activity, and when others than its VMs wrote to it."""
        others = (t for path, t in self.changes.items() if not path.startswith("workers/"))
        return [*others, *self.jobs()]


@dataclass(frozen=True)
class Rental:
    """The reservations of one folder with their mailboxes.

    :ivar opened: when each reservation that is not released was made.
    """

    opened: list[datetime]
    mailboxes: list[Mailbox]

    @classmethod
    def read(cls, tpu: int, folder: RunLayout) -> Rental:
        """Read a folder: one listing, the attempts, and the heartbeats of TPUs that are in use.

        :raises OSError: the store cannot be read.
        :raises FormatError: a file is damaged.
        """
        reservations = read_reservations(folder)
        changes = _changes(folder.reservations) if reservations else {}
        opened, mailboxes = [], []
        for reservation in reservations:
            generation = f"g{reservation.record.generation}/"
            released = changes.get(f"{generation}released.json")
            if released is None:
                made = changes.get(f"{generation}reservation.json")
                opened.append(made or reservation.record.created)
            for record in reservation.attempts():
                own = _below(changes, f"{generation}attempts/a{record.number}/")
                beats = list(_beats(record, own))
                mailboxes.append(Mailbox(tpu, reservation, record, own, released, beats))
        return cls(opened, mailboxes)


def _changes(folder: str) -> dict[str, datetime]:
    """Return when each file below a folder last changed, by its path in the folder."""
    top = f"{uris.for_library(folder).rstrip('/')}/"
    found = uris.list_details(folder)
    return {uris.for_library(d.uri).removeprefix(top): d.modified for d in found}


def _below(changes: dict[str, datetime], prefix: str) -> dict[str, datetime]:
    return {p.removeprefix(prefix): t for p, t in changes.items() if p.startswith(prefix)}


def _beats(record: AttemptRecord, changes: dict[str, datetime]) -> Iterator[datetime]:
    """Yield when workers last reported a running job, by the store's clock."""
    if not record.is_ready:
        return
    for worker in range(record.workers):
        seen = changes.get(f"workers/{worker}/heartbeat.json")
        beat = read_heartbeat(record, worker) if seen else None
        if seen and beat is not None and beat.job_id is not None:
            yield seen
