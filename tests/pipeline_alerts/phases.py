"""Runs in each phase of their life, hours after it began, with what is then written again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Self
from unittest import mock

from pipeline_alerts import listing, standstill, watch
from pipeline_alerts.facts import read_reservations
from pipeline_alerts.watch import WatchReport
from pipeline_store.formats import (
    AttemptEvent,
    ExitKind,
    Heartbeat,
    JobStatus,
    Lease,
    WaitingTicket,
)
from pipeline_store.layout import RunLayout, StoreLayout
from tests.pipeline_alerts import situations
from tests.pipeline_alerts.situations import look, new_run, record_of
from tests.tpu_lifecycle.world import ZONE
from tpu_lifecycle.control.mailbox import submit_job
from tpu_lifecycle.records.attempts import AttemptRecord
from tpu_lifecycle.records.reservation import OpenReservation

TRAIN, EVALUATE = "010-train", "020-evaluate"
BOOT_MINUTES = 25


@dataclass
class Phase:
    """A run whose files were all written at the beginning; :meth:`after` is some time later."""

    store: StoreLayout
    run: RunLayout
    minutes: float = 0.0

    @classmethod
    def of(cls, store: StoreLayout) -> Phase:
        """Return a run that the validate task has recorded."""
        return cls(store, new_run(store, {"tpu.boot_timeout_seconds": BOOT_MINUTES * 60}))

    @property
    def now(self) -> datetime:
        return datetime.now(UTC) + timedelta(minutes=self.minutes)

    @contextmanager
    def after(self, minutes: float) -> Iterator[None]:
        """Let time pass for what looks, and for what is written within the block."""

        class Later(datetime):
            @classmethod
            def now(cls, tz: Any = None) -> Self:
                then = datetime.now(tz) + timedelta(minutes=minutes)
                return cls.fromtimestamp(then.timestamp(), tz)

        self.minutes = minutes
        with (
            mock.patch.object(listing, "datetime", Later),
            mock.patch.object(standstill, "datetime", Later),
            mock.patch.object(watch, "datetime", Later),
        ):
            yield

    def look(self, **changes: Any) -> WatchReport:
        # Long ago for the whole of the run is another alert's matter.
        return look(self.store, **{"overdue": timedelta(days=99), **changes})

    def written_now(self, uri: str) -> None:
        os.utime(uri, (self.now.timestamp(),) * 2)

    def ticket(self) -> None:
        """Let the run wait for its lineage, and look whether that is free."""
        record = record_of(self.run)
        WaitingTicket(
            run_key=record.run_key,
            dag_id=record.dag_id,
            run_id=record.run_id,
            partition=record.partition,
            since=self.now,
            renewed=self.now,
            valid_seconds=60.0,
        ).write(self.store.lineage(record.lineage_id).ticket(record.run_key))

    def reserve(self) -> OpenReservation:
        return situations.reserved(self.store, self.run)

    def ask(self) -> AttemptRecord:
        """Reserve, and ask for a TPU."""
        return self.reserve().new_attempt(1, ZONE).mark_asked()

    def ready(self) -> AttemptRecord:
        return self.ask().mark(AttemptEvent.READY, workers=1, node_created=self.now)

    def attempts(self) -> list[AttemptRecord]:
        [reservation] = read_reservations(self.run)
        return reservation.attempts()

    def lease(self, record: AttemptRecord) -> None:
        """Let a trigger look after the TPU."""
        Lease(token=record.attempt.token, sequence=1, renewed=self.now).write(record.layout.lease)
        self.written_now(record.layout.lease)

    def give_job(self, record: AttemptRecord, job_id: str = TRAIN) -> None:
        [reservation] = read_reservations(self.run)
        submit_job(reservation, record, job_id=job_id, entry_point="training.train", arguments=[])
        self.written_now(record.layout.job(job_id))

    def beat(self, record: AttemptRecord, job_id: str | None = None) -> None:
        """Let the agent of the VM give its sign, with a job or idle."""
        Heartbeat(
            worker=0,
            token=record.attempt.token,
            time=self.now,
            job_id=job_id,
            progress=None,
            log_chunks=0,
            disk_free_bytes=1,
        ).write(record.layout.heartbeat(0))
        self.written_now(record.layout.heartbeat(0))

    def end_job(self, record: AttemptRecord, job_id: str = TRAIN) -> None:
        JobStatus(
            worker=0,
            token=record.attempt.token,
            job_id=job_id,
            exit_kind=ExitKind.OK,
            exit_code=0,
            restarts=0,
            message="",
            started=self.now,
            finished=self.now,
            log_chunks=0,
        ).write(record.layout.status(0, job_id))
        self.written_now(record.layout.status(0, job_id))
