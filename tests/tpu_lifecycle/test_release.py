from __future__ import annotations

import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline_store import uris
from pipeline_store.formats import AttemptEvent, FormatError, Holder, Ledger, Released
from pipeline_store.layout import StoreLayout
from tests.tpu_lifecycle.world import OTHER_ZONE, ZONE, World, connect_to, write_run
from tpu_emulator.testing import start_emulator, wait_for
from tpu_lifecycle.control import release
from tpu_lifecycle.control.release import (
    CancelledAttemptError,
    become_holder,
    cancel_holder,
    fenced_delete,
    give_up,
)
from tpu_lifecycle.records.attempts import AttemptRecord, Loss
from tpu_lifecycle.records.ledger import timeline, total
from tpu_lifecycle.records.reservation import OpenReservation, ReleasedError, open_reservation
from tpu_lifecycle.service import cloud_tpu
from tpu_lifecycle.service.backend import TpuError, TpuPermissionError, TpuUnavailableError


def test_everything_is_given_back_and_accounted_for(world: World) -> None:
    reservation = world.reserve()
    record = world.obtain_ready(reservation)
    report = world.release(reservation)
    assert report.deleted == [record.name]
    world.assert_nothing_left()
    assert "test" in Released.load(reservation.layout.released).reason
    [entry] = Ledger.load(reservation.layout.ledger).entries
    assert entry.outcome == "released"
    assert entry.chips == 1
    assert entry.created < entry.gone
    assert entry.billed_seconds == pytest.approx(entry.chip_seconds)
    price = reservation.config.budget.price_per_chip_hour
    assert entry.cost == pytest.approx(entry.billed_seconds / 3600 * price)
    assert total(report.ledger) == (entry.chip_seconds, entry.cost)
    lines = timeline(reservation.attempts())
    assert [line.split("  ")[1] for line in lines] == [
        f"a1 asked for in {ZONE}",
        "a1 answered",
        "a1 ready",
        "a1 gone",
    ]


def test_releasing_again_changes_nothing(world: World) -> None:
    reservation = world.reserve()
    world.obtain_ready(reservation)
    first = world.release(reservation)
    second = world.release(reservation)
    assert second.deleted == []
    assert second.ledger == first.ledger


def test_a_reservation_that_made_nothing_is_released(world: World) -> None:
    report = world.release(world.reserve())
    assert report.deleted == []
    assert report.ledger.entries == []


def test_a_tpu_that_no_record_mentions_is_found_by_its_label(world: World) -> None:
    reservation = world.reserve({"tpu.zones": [ZONE, OTHER_ZONE]})
    record = reservation.new_attempt(1, OTHER_ZONE)
    world.backend.create(world.request(reservation, record))
    uris.delete_tree(reservation.layout.attempts)
    assert world.release(reservation).deleted == [record.name]


def test_a_request_that_lands_during_the_grace_period_is_caught_by_the_second_sweep(
    world: World,
) -> None:
    reservation = world.reserve()
    record = reservation.new_attempt(1, ZONE)
    request = world.request(reservation, record)
    sweeper = world.sweeper()
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        if not pauses:
            # Its caller is gone, it was on its way, and the first sweep has seen nothing.
            assert not world.backend.describe(record.name).exists
            world.backend.create(request)
        pauses.append(seconds)
        time.sleep(0.02)

    sweeper.sleep = sleep
    assert release.release(reservation, sweeper, reason="test").deleted == [record.name]
    assert pauses[0] == reservation.record.delete_grace_seconds


@pytest.mark.thorough
def test_a_request_that_lands_after_its_caller_died_is_caught_by_the_second_sweep(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    reservation = world.reserve()
    record = reservation.new_attempt(1, ZONE)
    request = world.request(reservation, record)
    # Connects, so that the call below arrives in the time that it has.
    assert not world.backend.describe(record.name).exists
    world.emulator.admin.delay_next("CreateQueuedResource", seconds=5.0, commit_late=True)
    monkeypatch.setattr(cloud_tpu, "RPC_TIMEOUT_SECONDS", 1.0)
    with pytest.raises(TpuUnavailableError):
        world.backend.create(request)  # the process that called is gone, its request is not
    monkeypatch.setattr(cloud_tpu, "RPC_TIMEOUT_SECONDS", 10.0)
    assert not world.backend.describe(record.name).exists
    monkeypatch.setattr(release, "IN_FLIGHT_SECONDS", 8.0)
    assert world.release(reservation).deleted == [record.name]


def test_a_living_creator_undoes_a_request_that_lands_during_the_release(world: World) -> None:
    reservation = world.reserve()
    world.emulator.admin.delay_next("CreateQueuedResource", seconds=2.0, commit_late=True)
    before = len(world.create_calls())
    outcome: list[BaseException] = []

    def create() -> None:
        try:
            world.provisioner(reservation).obtain()
        except ReleasedError as error:
            outcome.append(error)

    creator = threading.Thread(target=create)
    creator.start()
    wait_for(lambda: len(world.create_calls()) > before)
    reservation.release("test")
    creator.join()
    assert len(outcome) == 1
    world.assert_nothing_left()
    world.release(reservation)


@pytest.mark.parametrize(("answered_after", "expected"), [(0, 0.2), (3, 10.2), (99, 60.0)])
def test_the_grace_period_is_long_while_a_request_may_still_land(
    world: World, answered_after: int, expected: float
) -> None:
    reservation = world.reserve()
    record = reservation.new_attempt(1, ZONE)
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) >= answered_after:
            record.mark(AttemptEvent.ANSWERED)

    sweeper = world.sweeper()
    sweeper.sleep = sleep
    release.release(reservation, sweeper, reason="test")
    assert sum(slept) == pytest.approx(expected)


def test_earlier_generations_are_swept_too_and_later_ones_never(world: World) -> None:
    run = write_run(world.store)
    first = world.reserve(run=run)
    old = world.obtain_ready(first)
    second = world.reserve(run=run)
    assert world.release(second).deleted == [old.name]
    assert len(Ledger.load(first.layout.ledger).entries) == 1
    assert Ledger.load(second.layout.ledger).entries == []

    third = world.reserve(run=run)
    new = world.obtain_ready(third)
    # A delete task of an earlier generation that comes late leaves the newest alone.
    assert world.release(second).deleted == []
    assert world.backend.describe(new.name).is_ready
    assert world.release(third).deleted == [new.name]


def test_a_new_generation_gives_back_the_old_ones_tpu_before_it_asks(world: World) -> None:
    run = write_run(world.store)
    old = world.obtain_ready(world.reserve(run=run))
    second = world.reserve(run=run)
    new = world.obtain_ready(second)
    assert not world.backend.describe(old.name).exists
    assert [node["node_id"] for node in world.nodes()] == [new.attempt.node_id]
    assert world.release(second).deleted == [new.name]


def test_a_tpu_that_is_being_preempted_is_deleted_once_it_is_suspended(world: World) -> None:
    reservation = world.reserve()
    record = world.obtain_ready(reservation)
    world.emulator.admin.preempt(record.attempt.node_id)
    assert world.release(reservation).deleted == [record.name]


def test_so_it_is_at_once_and_not_when_a_stuck_one_would_be_asked_again(world: World) -> None:
    reservation = world.reserve()
    record = world.obtain_ready(reservation)
    world.emulator.admin.preempt(record.attempt.node_id)
    sweeper = replace(world.sweeper(), reissue=3600.0)
    release.release(reservation, sweeper, reason="test")
    world.assert_nothing_left()


def test_one_that_hangs_in_suspending_is_asked_to_go(tmp_path: Path) -> None:
    hanging: dict[str, Any] = {"suspend_delay": 3600.0, "delete_while_suspending": "allow"}
    with start_emulator(tmp_path, **hanging) as emulator:
        world = World(emulator, connect_to(emulator), StoreLayout(str(tmp_path / "store")))
        reservation = world.reserve()
        record = world.obtain_ready(reservation)
        emulator.admin.preempt(record.attempt.node_id, node_state="GONE")
        wait_for(lambda: world.backend.describe(record.name).queued_resource == "SUSPENDING")
        world.provisioner(reservation).lose(record, "preempted", Loss.TAKEN)
        assert AttemptEvent.GONE in reservation.attempt(1).marks
        world.release(reservation)


def test_a_replacement_is_asked_for_while_the_lost_tpu_hangs_in_deleting(world: World) -> None:
    reservation = world.reserve()
    first = world.obtain_ready(reservation)
    world.emulator.admin.stick_deleting(ZONE)
    impatient = replace(world.sweeper(), patience=0.5)
    provisioner = world.provisioner(reservation, sweeper=impatient)
    provisioner.lose(first, "preempted", Loss.TAKEN)
    assert AttemptEvent.GONE not in reservation.attempt(1).marks
    assert provisioner.obtain().number == 2
    assert world.backend.describe(first.name).queued_resource == "DELETING"
    # Giving back is not content with that.
    with pytest.raises(TpuUnavailableError, match=f"Not confirmed gone: {first.name}"):
        release.release(reservation, replace(impatient, timeout=1.0), reason="test")
    world.emulator.admin.unstick(ZONE)
    assert [entry.outcome[:4] for entry in world.release(reservation).ledger.entries] == [
        "lost",
        "rele",
    ]


def test_a_zone_that_cannot_be_looked_at_fails_the_release_after_the_rest(world: World) -> None:
    reservation = world.reserve({"tpu.zones": [ZONE, OTHER_ZONE]})
    world.obtain_ready(reservation)
    world.emulator.admin.fail_next(
        "ListQueuedResources", code="PERMISSION_DENIED", message="no", count=1
    )
    with pytest.raises(TpuPermissionError):
        world.release(reservation)
    world.assert_nothing_left()
    assert not uris.exists(reservation.layout.ledger)
    assert world.release(reservation).ledger.entries[0].outcome == "released"


def test_a_delete_call_that_fails_is_repeated(world: World) -> None:
    reservation = world.reserve()
    record = world.obtain_ready(reservation)
    world.emulator.admin.fail_next("DeleteQueuedResource", code="INTERNAL", count=2)
    assert world.release(reservation).deleted == [record.name]


def test_what_cannot_be_deleted_is_named(world: World) -> None:
    reservation = world.reserve()
    record = world.obtain_ready(reservation)
    sweeper = world.sweeper()
    sweeper.timeout = 0.0
    world.emulator.admin.delay_next("DeleteQueuedResource", seconds=0.5)
    with pytest.raises(TpuError, match=record.attempt.node_id):
        release.release(reservation, sweeper, reason="test")
    world.release(reservation)


def test_when_the_queued_resource_may_not_be_deleted_its_node_is(world: World) -> None:
    reservation = world.reserve()
    world.obtain_ready(reservation)
    world.emulator.admin.deny("DeleteQueuedResource")
    with pytest.raises(TpuPermissionError, match="DeleteQueuedResource"):
        world.release(reservation)
    wait_for(lambda: not world.nodes())
    assert AttemptEvent.GONE not in reservation.attempt(1).marks
    world.emulator.admin.deny("DeleteNode")
    with pytest.raises(TpuPermissionError, match="DeleteQueuedResource"):
        world.release(reservation)
    world.emulator.admin.clear_faults()
    world.release(reservation)


def test_an_attempt_that_is_given_up_is_confirmed_gone(world: World) -> None:
    reservation = world.reserve()
    record = world.obtain_ready(reservation)
    gone = give_up(reservation, record, world.sweeper(), event=AttemptEvent.LOST, reason="because")
    world.assert_nothing_left()
    assert not gone.needs_deletion
    assert gone.outcome == "lost: because"


@pytest.mark.parametrize("message", ["no", "on 'locations/x' (or it may not exist)"])
def test_no_error_counts_as_absence(world: World, message: str) -> None:
    reservation = world.reserve()
    record = world.obtain_ready(reservation)
    world.emulator.admin.fail_next(
        "GetQueuedResource", code="PERMISSION_DENIED", message=message, count=1
    )
    with pytest.raises(TpuPermissionError, match=str(record.name)):
        world.release(reservation)
    assert AttemptEvent.GONE not in reservation.attempt(1).marks
    assert world.release(reservation).deleted == [record.name]


def test_a_zone_that_does_not_exist_does_not_fail_the_release_for_ever(world: World) -> None:
    reservation = world.reserve({"tpu.zones": ["nowhere-north1-z", ZONE]})
    record = world.provisioner(reservation).obtain()
    assert (record.number, record.attempt.zone) == (2, ZONE)
    assert reservation.attempt(1).was_denied
    assert world.release(reservation).deleted == [record.name]
    assert AttemptEvent.GONE in reservation.attempt(1).marks


@pytest.mark.parametrize("code", ["NOT_FOUND", "INVALID_ARGUMENT", "PERMISSION_DENIED"])
@pytest.mark.parametrize("was_asked", [True, False])
def test_a_zone_that_is_not_there_does_not_fail_the_release(
    world: World, code: str, was_asked: bool
) -> None:
    reservation = world.reserve({"tpu.zones": [OTHER_ZONE, ZONE]})
    for method in ("CreateQueuedResource", "ListQueuedResources", "GetQueuedResource"):
        world.emulator.admin.fail_next(method, code=code, zone=OTHER_ZONE, count=99)
    if was_asked:
        record = reservation.new_attempt(1, OTHER_ZONE).mark_asked()
        with pytest.raises(TpuError) as refused:
            world.backend.create(world.request(reservation, record))
        cause = type(refused.value).__name__
        assert record.mark(AttemptEvent.ANSWERED, cause=cause).was_denied
    assert world.release(reservation).deleted == []


def test_what_a_refusal_says_is_not_searched_for_words(world: World) -> None:
    record = world.reserve().new_attempt(1, ZONE)
    text = "RESOURCE_EXHAUSTED: not a case of PERMISSION_DENIED"
    assert not record.mark(AttemptEvent.ANSWERED, text, cause="TpuCapacityError").was_denied


class TestDamage:
    """Files that cannot be read keep nobody from deleting; they are named when all is gone."""

    def release(self, world: World, reservation: OpenReservation, damaged: str) -> None:
        content = uris.read(damaged)
        uris.write(damaged, b"not json")
        with pytest.raises(FormatError, match=f"are deleted.*{re.escape(damaged)}.*Restore"):
            world.release(reservation)
        world.assert_nothing_left()
        assert not uris.exists(reservation.layout.ledger)
        uris.write(damaged, content)
        assert world.release(reservation).deleted == []
        assert uris.exists(reservation.layout.ledger)

    @pytest.mark.parametrize("event", [AttemptEvent.ANSWERED, AttemptEvent.READY])
    def test_a_mark(self, world: World, event: AttemptEvent) -> None:
        reservation = world.reserve()
        record = world.obtain_ready(reservation)
        self.release(world, reservation, record.layout.mark(event))

    def test_an_attempt(self, world: World) -> None:
        reservation = world.reserve({"tpu.zones": [OTHER_ZONE, ZONE]})
        world.emulator.admin.stockout(OTHER_ZONE, shape="sync")
        record = world.obtain_ready(reservation)
        assert record.number == 2
        self.release(world, reservation, record.layout.record)

    def test_an_attempt_whose_tpu_shows_no_labels(self, world: World) -> None:
        reservation = world.reserve({"tpu.zones": [OTHER_ZONE, ZONE]})
        record = reservation.new_attempt(1, ZONE).mark_asked().mark(AttemptEvent.ANSWERED)
        request = world.request(reservation, record)
        world.backend.create(replace(request, labels={}))
        self.release(world, reservation, record.layout.record)

    def test_an_earlier_reservation(self, world: World) -> None:
        run = write_run(world.store)
        earlier = world.reserve(run=run)
        world.obtain_ready(earlier)
        self.release(world, world.reserve(run=run), earlier.layout.record)


def test_giving_back_does_not_read_the_runs_configuration(world: World) -> None:
    reservation = world.reserve()
    record = world.obtain_ready(reservation)
    uris.write(reservation.run.config, b"[of another program version]")
    reopened = open_reservation(reservation.run.root)
    assert world.release(reopened).deleted == [record.name]
    assert Ledger.load(reservation.layout.ledger).entries[0].chip_seconds > 0


@pytest.mark.parametrize("was_asked", [True, False])
def test_a_tpu_without_labels_is_ours_only_if_we_asked_for_it(
    world: World, was_asked: bool
) -> None:
    reservation = world.reserve()
    record = reservation.new_attempt(1, ZONE)
    bare = replace(world.request(reservation, record), labels={})
    world.backend.create(bare)
    record = record.mark_asked().mark(AttemptEvent.ANSWERED) if was_asked else record
    gone = release.delete_attempt(reservation, record, world.sweeper())
    assert list(gone) == ([record.name] if was_asked else [])
    assert world.backend.describe(record.name).exists is not was_asked
    world.sweeper().delete([record.name])


class TestFencedDelete:
    """Cancelling a task: the order against the teardown and against newer tries is arbitrary."""

    def obtain(self, world: World, reservation: OpenReservation) -> tuple[AttemptRecord, int]:
        """Return a READY attempt, and the sequence number under which its task holds it."""
        record = world.obtain_ready(reservation)
        return record, Holder.load(reservation.run.holder).sequence

    def test_deletes_the_own_attempt_and_may_be_repeated(self, world: World) -> None:
        reservation = world.reserve()
        record, own = self.obtain(world, reservation)
        assert fenced_delete(world.backend, reservation, record, holder_sequence=own)
        wait_for(lambda: not world.backend.describe(record.name).exists)
        assert not fenced_delete(world.backend, reservation, record, holder_sequence=own)
        assert not reservation.attempt(1).is_usable

    def test_a_call_that_failed_is_made_up_for_by_a_repetition(self, world: World) -> None:
        reservation = world.reserve()
        record, own = self.obtain(world, reservation)
        world.emulator.admin.fail_next("GetQueuedResource", code="PERMISSION_DENIED", message="no")
        with pytest.raises(TpuPermissionError):
            fenced_delete(world.backend, reservation, record, holder_sequence=own)
        assert fenced_delete(world.backend, reservation, record, holder_sequence=own)
        wait_for(lambda: not world.backend.describe(record.name).exists)

    def test_leaves_a_newer_attempt_alone(self, world: World) -> None:
        reservation = world.reserve()
        old, own = self.obtain(world, reservation)
        give_up(reservation, old, world.sweeper(), event=AttemptEvent.LOST, reason="preempted")
        new, _ = self.obtain(world, reservation)
        assert not fenced_delete(world.backend, reservation, old, holder_sequence=own)
        assert world.backend.describe(new.name).is_ready
        world.release(reservation)

    def test_leaves_an_attempt_alone_that_another_task_took_over(self, world: World) -> None:
        reservation = world.reserve()
        record, first_try = self.obtain(world, reservation)
        second_try = become_holder(reservation.run, record.attempt).sequence
        for stale in (None, first_try):
            assert not fenced_delete(world.backend, reservation, record, holder_sequence=stale)
        assert world.backend.describe(record.name).is_ready
        assert fenced_delete(world.backend, reservation, record, holder_sequence=second_try)
        world.release(reservation)

    def test_leaves_a_request_alone_that_a_new_try_goes_on_to_wait_for(self, world: World) -> None:
        reservation = world.reserve()
        world.emulator.admin.stockout(ZONE, shape="wait")
        record = world.provisioner(reservation).obtain()
        own = Holder.load(reservation.run.holder).sequence
        assert world.provisioner(reservation).obtain().attempt == record.attempt
        assert not fenced_delete(world.backend, reservation, record, holder_sequence=own)
        assert world.backend.describe(record.name).exists
        world.release(reservation)

    def test_whoever_comes_after_asks_for_another_tpu(self, world: World) -> None:
        reservation = world.reserve({"budget.max_preemptions": 0})
        record, own = self.obtain(world, reservation)
        assert fenced_delete(world.backend, reservation, record, holder_sequence=own)
        assert world.provisioner(reservation).obtain().number == 2
        world.assert_outcomes(reservation, ["cancelled", "released"])

    def test_who_finds_the_attempt_cancelled_but_not_marked_gives_it_up(self, world: World) -> None:
        reservation = world.reserve()
        record, own = self.obtain(world, reservation)
        assert cancel_holder(reservation.run, record.attempt, own)
        with pytest.raises(CancelledAttemptError, match="was cancelled"):
            become_holder(reservation.run, record.attempt)
        assert world.provisioner(reservation).obtain().number == 2
        world.assert_outcomes(reservation, ["cancelled", "released"])

    def test_after_the_teardown_does_nothing(self, world: World) -> None:
        reservation = world.reserve()
        record, own = self.obtain(world, reservation)
        world.release(reservation)
        assert not fenced_delete(world.backend, reservation, record, holder_sequence=own)

    def test_nobody_was_ever_the_holder(self, world: World) -> None:
        reservation = world.reserve()
        record = reservation.new_attempt(1, ZONE)
        for own in (None, 1):
            assert not fenced_delete(world.backend, reservation, record, holder_sequence=own)

    def test_of_a_cancellation_and_a_take_over_at_once_one_wins(self, world: World) -> None:
        reservation = world.reserve()
        for number in range(1, 31):
            record = reservation.new_attempt(number, ZONE)
            own = become_holder(reservation.run, record.attempt).sequence
            start = threading.Barrier(2)
            with ThreadPoolExecutor(2) as threads:
                cancelled = threads.submit(self.cancel, start, reservation, record, own)
                taken = threads.submit(self.take_over, start, reservation, record)
            assert cancelled.result() is not taken.result()

    def cancel(
        self,
        gate: threading.Barrier,
        reservation: OpenReservation,
        record: AttemptRecord,
        own: int,
    ) -> bool:
        gate.wait()
        return cancel_holder(reservation.run, record.attempt, own)

    def take_over(
        self, gate: threading.Barrier, reservation: OpenReservation, record: AttemptRecord
    ) -> bool:
        gate.wait()
        try:
            become_holder(reservation.run, record.attempt)
        except CancelledAttemptError:
            return False
        return True
