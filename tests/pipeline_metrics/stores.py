"""A store in which all is well, with everything in it that there is a metric of."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from model_registry import outcomes
from pipeline_alerts.facts import read_reservations
from pipeline_store import uris
from pipeline_store.formats import (
    AttemptEvent,
    CorpusSeen,
    Heartbeat,
    Ledger,
    LedgerEntry,
    LineageLease,
    OutcomeKind,
    PartitionArrival,
    PartitionManifest,
    PreparedInput,
    ProductionPointer,
    Progress,
    ReaperPass,
    RunRecord,
    Seconds,
    SpentOn,
    WaitingTicket,
    WatchPass,
)
from pipeline_store.identity import corpus_key
from pipeline_store.layout import RunLayout, StoreLayout
from tests.model_registry import retained
from tests.model_registry.runs import FinishedRun
from tests.tpu_lifecycle.world import ZONE, write_run
from tpu_lifecycle.control.mailbox import submit_job
from tpu_lifecycle.records.attempts import AttemptRecord
from tpu_lifecycle.records.reservation import OpenReservation, reserve

OWNER, CORPUS = "our-team", "corpus/{partition}/*"
NO_FILES = "0" * 64
PRICES = {
    "tpu.provisioning_model": "spot",
    "budget.price_per_chip_hour": 0.5,
    "budget.on_demand_price_per_chip_hour": 1.25,
}
TRAINED: Seconds = {SpentOn.TPU_INITIALIZATION: 100, SpentOn.COMPILE: 50, SpentOn.STEP: 850}
JOB = "010-train"


def now() -> datetime:
    return datetime.now(UTC)


def ago(**units: float) -> datetime:
    return now() - timedelta(**units)


def changed(uri: str, time: datetime) -> None:
    """Let a file look as if it was written at a time."""
    os.utime(uri, (time.timestamp(),) * 2)


@dataclass
class World:
    """A store, and what its makers have put into it.

    :ivar at_work: a TPU on which a run trains.
    :ivar manifest_uri: of the partition of the model in use.
    """

    store: StoreLayout
    at_work: AttemptRecord = field(init=False)
    manifest_uri: str = field(init=False)

    @classmethod
    def healthy(cls, root: str) -> World:
        """Return a store with two promoted runs, one at work, and everybody watching."""
        world = cls(StoreLayout(root))
        first = retained.promoted(root, "1")
        for run in (first, retained.promoted(root, "2", first.version_id)):
            world.bill(run.run, entry(1, TRAINED))
            world.prepared(run)
            world.manifest_uri = run.manifest_uri
        world.promoted()
        world.at_work = world.train()
        record = RunRecord.load(run.run.record)
        world.lease(record, expires=now() + timedelta(hours=20))
        world.wait(ago(minutes=5))
        world.arrive(ago(minutes=5), run_id=None)
        world.watch()
        world.reap()
        CorpusSeen(pattern=CORPUS, partitions=["day-3"], grown=ago(hours=1), looked=now()).write(
            world.store.corpus_seen
        )
        return world

    @property
    def lineage(self) -> Any:
        return self.store.lineage("default")

    def prepared(self, run: FinishedRun, **changes: Any) -> None:
        """Let a run have prepared its partition."""
        manifest = PartitionManifest.load(run.manifest_uri)
        statistics = manifest.statistics.model_copy(
            update={"text_tokens": 1000, "unknown_tokens": 10}
        )
        manifest.model_copy(update={"statistics": statistics} | changes).write(run.manifest_uri)
        PreparedInput(manifest=run.manifest_uri).write(run.run.prepared_partition)

    def bill(self, run: RunLayout, *entries: LedgerEntry) -> None:
        """Write what a run's TPUs cost."""
        Ledger(
            run_key=RunRecord.load(run.record).run_key,
            generation=1,
            entries=list(entries),
            price_per_chip_hour=0.5,
            currency="USD",
            price_date="2026-01-01",
            provisioning_model="spot",
            on_demand_price_per_chip_hour=1.25,
        ).write(run.reservation(1).ledger)

    def run(self, outcome: OutcomeKind | None = None) -> RunLayout:
        """Write one more run; with an outcome it has ended."""
        run = write_run(self.store, PRICES)
        if outcome is not None:
            outcomes.record(run, outcome, "test", written_by="test")
        return run

    def reserved(self, run: RunLayout) -> OpenReservation:
        return reserve(self.store, run.root, project_id="p", owner=OWNER, bundle_sha256="0" * 64)

    def rent(self, run: RunLayout | None = None, *, since: datetime | None = None) -> AttemptRecord:
        """Let a run have a TPU that is READY."""
        reservation = self.reserved(run or self.run())
        record = reservation.new_attempt(1, ZONE).mark_asked()
        record = record.mark(AttemptEvent.READY, workers=1, node_created=since or now())
        if since is not None:
            for event in record.marks:
                place = record.layout.mark(event)
                moved = record.marks[event].model_copy(update={"time": since})
                moved.write(place)
            record.attempt.model_copy(update={"created": since}).write(record.layout.record)
        return record

    def train(self) -> AttemptRecord:
        """Let a run train."""
        run = self.run()
        record = self.rent(run)
        [reservation] = read_reservations(run)
        submit_job(reservation, record, job_id=JOB, entry_point="training.train", arguments=[])
        self.beat(record)
        return record

    def beat(
        self, record: AttemptRecord, job_id: str | None = JOB, *, time: datetime | None = None
    ) -> None:
        """Let the agent of a TPU give its sign."""
        Heartbeat(
            worker=0,
            token=record.attempt.token,
            time=time or now(),
            job_id=job_id,
            progress=Progress(
                step=300,
                train_steps=400,
                loss=5.5,
                held_out_loss=5.25,
                tokens_per_second=1000.0,
                eta_seconds=50.0,
            ),
            log_chunks=0,
            disk_free_bytes=1,
        ).write(record.layout.heartbeat(0))

    def give_back(self, record: AttemptRecord) -> None:
        record.mark(AttemptEvent.GONE)

    def promoted(self, time: datetime | None = None) -> None:
        """Let the model in use have come into use at a time."""
        pointer = ProductionPointer.load(self.lineage.production)
        pointer.model_copy(update={"changed": time or now()}).write(self.lineage.production)

    def lease(self, record: RunRecord, *, expires: datetime) -> None:
        LineageLease(
            sequence=1,
            run_key=record.run_key,
            dag_id=record.dag_id,
            run_id=record.run_id,
            partition=record.partition,
            acquired=ago(minutes=1),
            expires=expires,
        ).write(self.lineage.lease)

    def wait(self, since: datetime) -> None:
        WaitingTicket(
            run_key="b" * 12,
            dag_id="dag",
            run_id="run",
            partition="day-3",
            since=since,
            renewed=now(),
            valid_seconds=3600.0,
        ).write(self.lineage.ticket("b" * 12))

    def arrive(
        self,
        since: datetime,
        *,
        run_id: str | None,
        partition: str = "day-3",
        pattern: str = CORPUS,
    ) -> None:
        """Let a partition have come into the corpus."""
        PartitionArrival(
            sequence=1,
            partition=partition,
            listing_sha256=NO_FILES,
            files=1,
            bytes=1,
            since=since,
            run_id=run_id,
        ).write(self.store.arrival(corpus_key(pattern), partition))

    def watch(self, finished: datetime | None = None) -> None:
        WatchPass(
            unbroken_since=ago(hours=5),
            finished=finished or now(),
            host="host",
            open_runs=1,
            problems=[],
        ).write(self.store.watch_pass)

    def reap(self, finished: datetime | None = None, problems: tuple[str, ...] = ()) -> None:
        ReaperPass(
            owner=OWNER,
            project_id="p",
            finished=finished or now(),
            host="host",
            seen=1,
            acted_on=0,
            problems=list(problems),
        ).write(self.store.reaper_pass(OWNER, "p"))

    def damage(self, uri: str) -> bytes:
        """Let a file be cut short, and return what it was."""
        kept = uris.read(uri)
        uris.write(uri, b'{"format": "?"')
        return kept

    def remove(self, run: RunLayout) -> None:
        uris.delete_tree(run.root)


def entry(number: int, seconds: Seconds, **more: Any) -> LedgerEntry:
    """Return an attempt with 8 chips for so long."""
    billed = sum(seconds.values())
    values = {
        "generation": 1,
        "attempt": number,
        "zone": ZONE,
        "accelerator_type": "v5litepod-8",
        "chips": 8,
        "created": ago(hours=2),
        "ready": ago(hours=2),
        "gone": ago(hours=1),
        "outcome": "released",
        "billed_seconds": billed,
        "chip_seconds": 8 * billed,
        "cost": 8 * billed / 3600 * 0.5,
        "seconds": seconds,
    }
    return LedgerEntry(**values | more)
