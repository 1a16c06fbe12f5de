"""What can be wrong with a store: for each rule one fault, and what ends it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from model_registry import outcomes
from pipeline_alerts.causes import Cause
from pipeline_alerts.raising import raise_about_installation
from pipeline_store import uris
from pipeline_store.formats import (
    AlertCleared,
    AttemptEvent,
    LineageLease,
    OutcomeKind,
    PartitionManifest,
    PreparedInput,
    RunRecord,
    SpentOn,
    arrival_run_id,
)
from tests.pipeline_metrics.stores import NO_FILES, OWNER, World, ago, changed, entry, now

Fault = Callable[[World], Iterator[None]]
"""Makes the fault, yields, and ends it."""


def unreadable(world: World) -> Iterator[None]:
    place = world.store.reaper_pass("another", "p")
    uris.write(place, b"{")
    yield
    uris.delete(place)


def tpus_unreadable(world: World) -> Iterator[None]:
    run = world.run()
    # Of another lineage: nothing is known of that one's TPUs.
    record = RunRecord.load(run.record).model_copy(update={"lineage_id": "other"})
    record.write(run.record)
    place = world.rent(run).layout.record
    kept = world.damage(place)
    yield
    uris.write(place, kept)
    world.remove(run)


def reaper_never_seen(world: World) -> Iterator[None]:
    uris.delete(world.store.reaper_pass(OWNER, "p"))
    yield
    world.reap()


def watch_never_seen(world: World) -> Iterator[None]:
    uris.delete(world.store.watch_pass)
    yield
    world.watch()


def reaper_silent(world: World) -> Iterator[None]:
    world.reap(ago(hours=2))
    yield
    world.reap()


def reaper_problems(world: World) -> Iterator[None]:
    world.reap(problems=("zone does not answer",))
    yield
    world.reap()


def watch_silent(world: World) -> Iterator[None]:
    world.watch(ago(hours=1))
    yield
    world.watch()


def left_over(world: World) -> Iterator[None]:
    run = world.run(OutcomeKind.SKIPPED)
    changed(run.outcome, ago(hours=1))
    record = world.rent(run, since=ago(hours=2))
    yield
    world.give_back(record)


def idle(world: World) -> Iterator[None]:
    record = world.rent(since=ago(hours=1))
    world.beat(record, None)
    yield
    world.beat(record)


def queued(world: World) -> Iterator[None]:
    """Several attempts, none of which is asked for longer than an hour, and a pause after them."""
    run = world.run()
    reservation = world.reserved(run)
    for number, hours in enumerate((8, 7, 6), start=1):
        record = reservation.new_attempt(number, "us-west4-a").mark_asked()
        record.attempt.model_copy(update={"created": ago(hours=hours)}).write(record.layout.record)
        record.mark(AttemptEvent.REFUSED, "no capacity").mark(AttemptEvent.GONE)
    yield
    # Another one that comes, in the same reservation.
    came = reservation.new_attempt(4, "us-west4-a").mark_asked()
    came.mark(AttemptEvent.READY, workers=1, node_created=now()).mark(AttemptEvent.GONE)


def job_silent(world: World) -> Iterator[None]:
    world.beat(world.at_work, time=ago(hours=1))
    yield
    world.beat(world.at_work)


def run_failed(world: World) -> Iterator[None]:
    world.run(OutcomeKind.FAILED)
    yield
    world.run(OutcomeKind.SKIPPED)


def rejected(world: World) -> Iterator[None]:
    for _ in range(3):
        world.run(OutcomeKind.REJECTED)
    yield
    world.run(OutcomeKind.PROMOTED)


def overdue(world: World) -> Iterator[None]:
    run = world.run()
    record = RunRecord.load(run.record)
    record.model_copy(update={"created": ago(hours=40)}).write(run.record)
    yield
    outcomes.record(run, OutcomeKind.SKIPPED, "test", written_by="test")


def long_queue(world: World) -> Iterator[None]:
    world.wait(ago(hours=25))
    yield
    world.wait(ago(minutes=5))


def lease_expired(world: World) -> Iterator[None]:
    held = LineageLease.load(world.lineage.lease)
    held.model_copy(update={"expires": ago(hours=1)}).write(world.lineage.lease)
    yield
    held.write(world.lineage.lease)


def partition_waits(world: World) -> Iterator[None]:
    world.arrive(ago(hours=7), run_id=None)
    yield
    world.arrive(ago(hours=7), run_id=arrival_run_id("day-3", NO_FILES))


def model_old(world: World) -> Iterator[None]:
    world.promoted(ago(days=15))
    yield
    world.promoted()


def dropped(world: World) -> Iterator[None]:
    run = world.run(OutcomeKind.SKIPPED)
    manifest = PartitionManifest.load(world.manifest_uri)
    bad = manifest.model_copy(update={"partition": "day-9", "dropped": {"too_short": 900}})
    place = world.lineage.manifest("day-9", "9" * 16)
    bad.write(place)
    PreparedInput(manifest=place).write(run.prepared_partition)
    yield
    world.remove(run)


def goodput_low(world: World) -> Iterator[None]:
    run = world.run()
    world.reserved(run)
    world.bill(run, entry(1, {SpentOn.IDLE: 36_000.0}))
    outcomes.record(run, OutcomeKind.SKIPPED, "test", written_by="test")
    yield
    world.remove(run)


def alert_open(world: World) -> Iterator[None]:
    scope = f"watch-{now():%s%f}"  # each time is another alert
    raise_about_installation(
        world.store, scope, Cause.WATCH_SILENT, about="watch", summary="silent", reason="test"
    )
    yield
    AlertCleared(time=now()).create(world.store.alert_cleared(scope, "watch-silent"))


FAULTS: dict[str, Fault] = {
    "RepretrainStoreUnreadable": unreadable,
    "RepretrainTpusUnreadable": tpus_unreadable,
    "RepretrainReaperNeverSeen": reaper_never_seen,
    "RepretrainWatchNeverSeen": watch_never_seen,
    "RepretrainReaperSilent": reaper_silent,
    "RepretrainReaperProblems": reaper_problems,
    "RepretrainWatchSilent": watch_silent,
    "RepretrainTpuLeftOver": left_over,
    "RepretrainTpuIdle": idle,
    "RepretrainTpuQueueLong": queued,
    "RepretrainJobSilent": job_silent,
    "RepretrainRunFailed": run_failed,
    "RepretrainRejectedRepeatedly": rejected,
    "RepretrainRunOverdue": overdue,
    "RepretrainLineageQueueLong": long_queue,
    "RepretrainLeaseExpired": lease_expired,
    "RepretrainPartitionWaiting": partition_waits,
    "RepretrainModelOld": model_old,
    "RepretrainDataMostlyDropped": dropped,
    "RepretrainGoodputLow": goodput_low,
    "RepretrainAlertOpen": alert_open,
}
"""By the rule that fires. Of a dead exporter nothing is in the store."""

AT_ONCE = {"RepretrainTpusUnreadable": {"RepretrainStoreUnreadable"}}
"""Rules that fire with others: what TPUs have cost is read from the same files."""


@contextmanager
def wrong(world: World, rule: str) -> Iterator[None]:
    """Have a fault within the block."""
    steps = FAULTS[rule](world)
    next(steps)
    try:
        yield
    finally:
        next(steps, None)
