from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from google.cloud import tpu_v2

from pipeline_store.formats import AttemptEvent, TpuPlace
from tests.tpu_lifecycle.world import OTHER_ZONE, OWNER, ZONE, World, write_run
from tpu_emulator.testing import wait_for
from tpu_lifecycle.control import provisioning
from tpu_lifecycle.control.capacity import (
    QuotaExhaustedError,
    QuotaInUseError,
    StockoutError,
)
from tpu_lifecycle.control.observe import ReadyWatch
from tpu_lifecycle.control.release import become_holder, give_up
from tpu_lifecycle.control.verdict import Outcome
from tpu_lifecycle.records import attempts
from tpu_lifecycle.records.budgets import PreemptionBudgetError
from tpu_lifecycle.records.installation import establish
from tpu_lifecycle.records.reservation import (
    ReleasedError,
    ReservationError,
    SupersededError,
    open_reservation,
    reserve,
)
from tpu_lifecycle.service import cloud_messages
from tpu_lifecycle.service.backend import (
    TpuAccessError,
    TpuBackend,
    TpuConflictError,
    TpuInvalidRequestError,
    TpuPermissionError,
    TpuRequest,
    TpuUnavailableError,
)


class After:
    """The real backend; something happens the moment a create call returns."""

    def __init__(self, backend: TpuBackend, action: Callable[[], None]) -> None:
        self.describe, self.delete, self.list_zone = (
            backend.describe,
            backend.delete,
            backend.list_zone,
        )
        self.vm_endpoint, self.resource_path = backend.vm_endpoint, backend.resource_path
        self.vm_deletions = backend.vm_deletions
        self.creation_error = backend.creation_error
        self._backend = backend
        self._action = action

    def create(self, request: TpuRequest) -> str:
        operation = self._backend.create(request)
        self._action()
        return operation


@pytest.fixture(autouse=True)
def _quick_repetitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provisioning, "CREATE_PAUSES_SECONDS", (0.05, 0.05))


def test_a_reservation_opens_the_next_generation_and_releases_earlier_ones(world: World) -> None:
    run = write_run(world.store)
    first = world.reserve(run=run)
    second = world.reserve(run=run)
    assert (first.record.generation, second.record.generation) == (1, 2)
    assert first.is_released()
    assert not second.is_released()
    assert open_reservation(run.root).record == second.record
    assert second.record.created < second.job_deadline < second.wait_deadline
    assert second.wait_deadline < second.record.expires_at
    place = TpuPlace.load(world.store.tpu_place(world.emulator.project, ZONE))
    assert place.zone == ZONE


def test_a_run_without_reservation_says_what_to_do(world: World) -> None:
    with pytest.raises(ReservationError, match="run the reserve task first"):
        open_reservation(write_run(world.store).root)


def test_the_tpu_is_asked_for_as_configured(world: World) -> None:
    reservation = world.reserve({"tpu.provisioning_model": "spot"})
    record = world.obtain_ready(reservation)
    [queued] = world.emulator.admin.table()["queued_resources"]
    [node] = world.nodes()
    assert queued["queued_resource_id"] == node["node_id"] == record.attempt.node_id
    assert queued["tier"] == "spot"
    assert node["accelerator_type"] == reservation.record.accelerator_type
    assert node["labels"] == {
        "owner": OWNER,
        "installation": establish(world.store),
        "dag": "test-dag",
        "run-key": reservation.record.run_key,
        "generation": "1",
        "attempt": "1",
        "expires-at": str(int(reservation.record.expires_at.timestamp())),
    }
    assert set(record.marks) == {AttemptEvent.ASKED, AttemptEvent.ANSWERED, AttemptEvent.READY}
    assert record.marks[AttemptEvent.READY].workers == 1
    world.release(reservation)


def test_another_process_goes_on_with_the_attempt_there_is(world: World) -> None:
    reservation = world.reserve()
    first = world.provisioner(reservation).obtain()
    again = world.provisioner(reservation).obtain()
    assert again.attempt == first.attempt
    assert len(world.emulator.admin.table()["queued_resources"]) == 1
    world.release(reservation)


def test_a_lost_reply_does_not_make_a_second_tpu(world: World) -> None:
    reservation = world.reserve()
    world.emulator.admin.lose_reply("CreateQueuedResource")
    record = world.provisioner(reservation).obtain()
    assert record.number == 1
    assert not record.may_land
    assert len(world.emulator.admin.table()["queued_resources"]) == 1
    world.release(reservation)


@pytest.mark.parametrize("api", ["queued-resources", "nodes"])
def test_a_service_that_gets_a_call_twice_makes_one_tpu(world: World, api: str) -> None:
    reservation = world.reserve({"tpu.api": api})
    method = "CreateNode" if api == "nodes" else "CreateQueuedResource"
    world.emulator.admin.duplicate_next(method)
    record = world.obtain_ready(reservation)
    assert (record.number, len(world.nodes())) == (1, 1)
    world.release(reservation)


def test_a_creation_that_fails_after_it_was_accepted_is_a_refusal(world: World) -> None:
    reservation = world.reserve()
    world.emulator.admin.fail_operation(
        "CreateQueuedResource", code="INTERNAL", message="an internal error"
    )
    record = world.provisioner(reservation).obtain()
    watch = ReadyWatch(world.backend, reservation, record, reservation.wait_deadline)
    wait_for(lambda: watch.look().verdict.is_final)
    verdict = watch.look().verdict
    assert (verdict.outcome, verdict.cause) == (Outcome.REFUSED, "TpuCapacityError")
    assert "an internal error" in verdict.reason
    world.release(reservation)


def test_a_process_that_died_in_the_create_call_is_followed_by_adoption(world: World) -> None:
    reservation = world.reserve()
    # What a process leaves that died after the call and before it could write anything.
    record = reservation.new_attempt(1, ZONE)
    world.backend.create(world.request(reservation, record))
    adopted = world.provisioner(reservation).obtain()
    assert adopted.attempt == record.attempt
    assert len(world.emulator.admin.table()["queued_resources"]) == 1
    world.release(reservation)


def test_a_foreign_tpu_of_the_same_name_is_left_alone(world: World) -> None:
    reservation = world.reserve()
    provisioner = world.provisioner(reservation)
    record = reservation.new_attempt(1, ZONE)
    request = world.request(reservation, record)
    foreign = replace(request, labels={"owner": "somebody-else"})
    # Sent past the backend, whose request id would make both the same request.
    client = world.backend._client  # type: ignore[attr-defined]
    client.create_queued_resource(
        request=tpu_v2.CreateQueuedResourceRequest(
            parent=world.emulator.parent(ZONE),
            queued_resource_id=record.attempt.queued_resource_id,
            queued_resource=cloud_messages.queued_resource(foreign, world.emulator.parent(ZONE)),
        )
    )
    with pytest.raises(TpuConflictError, match="not ours"):
        provisioner.obtain()
    assert len(world.emulator.admin.table()["queued_resources"]) == 1
    world.sweeper().delete([record.name])


@pytest.mark.parametrize("shape", ["sync", "state"])
def test_a_stockout_moves_on_to_the_next_zone(world: World, shape: str) -> None:
    reservation = world.reserve({"tpu.zones": [ZONE, OTHER_ZONE]})
    world.emulator.admin.stockout(ZONE, shape=shape)
    provisioner = world.provisioner(reservation)
    record = provisioner.obtain()
    if shape == "state":
        watch = ReadyWatch(world.backend, reservation, record, reservation.wait_deadline)
        wait_for(lambda: watch.look().verdict.is_final)
        verdict = watch.look().verdict
        assert verdict.outcome is Outcome.REFUSED
        assert "no more capacity" in verdict.reason
        assert verdict.retryable
        give_up(
            reservation, record, world.sweeper(), event=AttemptEvent.REFUSED, reason=verdict.reason
        )
        record = provisioner.obtain()
    assert (record.number, record.attempt.zone) == (2, OTHER_ZONE)
    assert [q["zone"] for q in world.emulator.admin.table()["queued_resources"]] == [OTHER_ZONE]
    report = world.release(reservation)
    assert [entry.outcome.split(":")[0] for entry in report.ledger.entries] == [
        "refused",
        "released",
    ]
    assert report.ledger.entries[0].cost == 0.0


def test_no_zone_has_capacity(world: World) -> None:
    reservation = world.reserve({"tpu.zones": [ZONE, OTHER_ZONE]})
    world.emulator.admin.stockout("*", shape="sync", count=2)
    with pytest.raises(StockoutError, match=rf"None of {ZONE}, {OTHER_ZONE} has a.*round 1"):
        world.provisioner(reservation).obtain()
    world.emulator.admin.clear_faults()
    # A retry of the task starts the next round.
    assert world.provisioner(reservation).obtain().number == 3
    world.release(reservation)


@pytest.mark.parametrize(
    ("code", "message", "expected"),
    [
        (
            "RESOURCE_EXHAUSTED",
            "Quota limit 'TPUV5PerProjectPerZoneForTPUAPI'. Limit: 0",
            QuotaExhaustedError,
        ),
        (
            "RESOURCE_EXHAUSTED",
            "Quota limit 'TPUV5PerProjectPerZoneForTPUAPI'. Limit: 1",
            QuotaInUseError,
        ),
        ("PERMISSION_DENIED", "tpu.nodes.create denied", TpuPermissionError),
        ("INVALID_ARGUMENT", "unknown runtime version", TpuInvalidRequestError),
    ],
)
def test_refusals_are_told_apart(
    world: World, code: str, message: str, expected: type[Exception]
) -> None:
    reservation = world.reserve()
    world.emulator.admin.fail_next("CreateQueuedResource", code=code, message=message)
    with pytest.raises(expected, match=message.split(maxsplit=1)[0]):
        world.provisioner(reservation).obtain()
    assert not reservation.attempt(1).may_land
    assert not reservation.attempt(1).is_usable


@pytest.mark.parametrize("code", ["PERMISSION_DENIED", "INVALID_ARGUMENT", "NOT_FOUND"])
def test_a_zone_that_refuses_for_good_is_left_out(
    world: World, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    reservation = world.reserve({"tpu.zones": [ZONE, OTHER_ZONE]})
    fail_next = world.emulator.admin.fail_next
    fail_next("CreateQueuedResource", code=code, message="not here")
    world.emulator.admin.stockout(OTHER_ZONE, shape="sync")
    with pytest.raises(StockoutError):
        world.provisioner(reservation).obtain()
    assert f"Zone {ZONE} REFUSES FOR GOOD" in caplog.text
    # The next round asks only where waiting can help.
    record = world.provisioner(reservation).obtain()
    assert (record.number, record.attempt.zone) == (3, OTHER_ZONE)
    world.release(reservation)


def test_a_refusal_keeps_its_cause_when_the_process_dies_after_the_answer(world: World) -> None:
    reservation = world.reserve()
    record = reservation.new_attempt(1, ZONE).mark_asked()
    record.mark(AttemptEvent.ANSWERED, "no right to create", cause="TpuPermissionError")
    before = len(world.create_calls())
    with pytest.raises(TpuPermissionError, match="no right to create") as refused:
        world.provisioner(reservation).obtain()
    assert not refused.value.retryable
    assert reservation.attempt(1).marks[AttemptEvent.REFUSED].cause == "TpuPermissionError"
    assert len(world.create_calls()) == before


def test_when_every_zone_refuses_for_good_nothing_is_waited_for(world: World) -> None:
    reservation = world.reserve({"tpu.zones": [ZONE, OTHER_ZONE]})
    fail_next = world.emulator.admin.fail_next
    fail_next("CreateQueuedResource", code="PERMISSION_DENIED", message="no right")
    quota = "Quota limit 'TPUV5PerProjectPerZoneForTPUAPI'. Limit: 0"
    fail_next("CreateQueuedResource", code="RESOURCE_EXHAUSTED", message=quota, zone=OTHER_ZONE)
    with pytest.raises(TpuPermissionError, match=r"no right(.|\n)*Quota limit(.|\n)*reserve task"):
        world.provisioner(reservation).obtain()


@pytest.mark.parametrize("code", ["PERMISSION_DENIED", "UNAUTHENTICATED"])
def test_a_look_that_is_refused_says_nothing_of_the_tpu(world: World, code: str) -> None:
    reservation = world.reserve()
    record = world.obtain_ready(reservation)
    world.emulator.admin.fail_next("GetQueuedResource", code=code, message="for a moment")
    with pytest.raises(TpuAccessError, match="for a moment") as refused:
        world.provisioner(reservation).obtain()
    assert refused.value.retryable
    assert world.provisioner(reservation).obtain().name == record.name
    world.release(reservation)


def test_credentials_that_are_not_taken_do_not_rule_out_a_zone(world: World) -> None:
    reservation = world.reserve()
    world.emulator.admin.fail_next("CreateQueuedResource", code="UNAUTHENTICATED", message="who?")
    with pytest.raises(TpuAccessError, match="who") as refused:
        world.provisioner(reservation).obtain()
    assert refused.value.retryable
    assert world.provisioner(reservation).obtain().attempt.zone == ZONE
    world.release(reservation)


def test_what_has_the_name_is_not_given_up_because_it_cannot_be_seen(world: World) -> None:
    reservation = world.reserve()
    record = reservation.new_attempt(1, ZONE)
    request = replace(world.request(reservation, record), token="of-an-earlier-request")  # noqa: S106
    world.backend.create(request)
    world.emulator.admin.fail_next("GetQueuedResource", code="PERMISSION_DENIED", message="no")
    assert world.provisioner(reservation).obtain().number == 1
    world.release(reservation)


def test_what_lands_late_is_deleted_when_another_tpu_is_there(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    reservation = world.reserve({"tpu.zones": [ZONE, OTHER_ZONE]})
    world.emulator.admin.fail_next("CreateQueuedResource", code="UNAVAILABLE", count=3)
    second = world.provisioner(reservation).obtain()
    assert second.number == 2
    late = reservation.attempt(1)
    world.backend.create(world.request(reservation, late))
    world.provisioner(reservation).delete_given_up()
    assert not world.backend.describe(late.name).exists
    assert world.backend.describe(second.name).exists
    # The teardown need not wait until the call that had no answer cannot land any more.
    monkeypatch.setattr(attempts, "LANDING_WINDOW", timedelta(0))
    world.release(reservation)


def test_a_service_that_is_away_for_a_moment_is_asked_again(world: World) -> None:
    reservation = world.reserve()
    world.emulator.admin.fail_next("CreateQueuedResource", code="UNAVAILABLE", count=2)
    assert world.provisioner(reservation).obtain().number == 1
    world.release(reservation)


def test_a_create_call_without_answer_may_still_land(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    reservation = world.reserve()
    world.emulator.admin.fail_next("CreateQueuedResource", code="UNAVAILABLE", count=3)
    with pytest.raises(TpuUnavailableError, match="UNAVAILABLE"):
        world.provisioner(reservation).obtain()
    record = reservation.attempt(1)
    assert record.may_land
    assert record.is_landing
    assert record.needs_deletion
    # It lands now: whoever comes next deletes it, and the ledger is written only when it is gone.
    world.backend.create(world.request(reservation, record))
    second = world.provisioner(reservation).obtain()
    assert second.number == 2
    assert not world.backend.describe(record.name).exists
    assert AttemptEvent.GONE not in reservation.attempt(1).marks
    monkeypatch.setattr(attempts, "LANDING_WINDOW", timedelta(0))
    assert not reservation.attempt(1).is_landing
    world.release(reservation)
    assert AttemptEvent.GONE in reservation.attempt(1).marks


def test_a_refusal_after_a_call_without_answer_is_no_answer_to_that(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    reservation = world.reserve()
    denied = ("PERMISSION_DENIED", "tpu.nodes.create denied")
    world.emulator.admin.fail_next("CreateQueuedResource", code="UNAVAILABLE", count=1)
    pauses = iter([denied])

    def sleep(seconds: float) -> None:
        code, message = next(pauses)
        world.emulator.admin.fail_next("CreateQueuedResource", code=code, message=message)

    monkeypatch.setattr(provisioning.time, "sleep", sleep)
    with pytest.raises(TpuPermissionError):
        world.provisioner(reservation).obtain()
    record = reservation.attempt(1)
    assert record.may_land
    assert not record.was_denied


def test_the_queue_deadline_is_within_the_reservation(world: World) -> None:
    reservation = world.reserve({"budget.max_hours": 0.1, "tpu.queue_timeout_seconds": 200})
    record = reservation.new_attempt(1, ZONE)
    assert world.request(reservation, record).queue_timeout_seconds == 200
    soon = record.attempt.created + timedelta(seconds=30)
    shorter = replace(
        reservation, record=reservation.record.model_copy(update={"expires_at": soon})
    )
    assert world.request(shorter, record).queue_timeout_seconds == 30


def test_a_foreign_request_is_never_taken_for_ours(world: World) -> None:
    reservation = world.reserve()
    provisioner = world.provisioner(reservation)
    record = reservation.new_attempt(1, ZONE)
    request = world.request(reservation, record)
    foreign = replace(request, labels={"owner": "somebody-else"})
    world.backend.create(replace(foreign, token="theirs"))  # noqa: S106
    with pytest.raises(TpuConflictError):
        world.backend.create(request)
    with pytest.raises(TpuConflictError, match="not ours"):
        provisioner.obtain()
    # Nor does giving back touch it.
    assert world.release(reservation).deleted == []
    assert world.backend.describe(record.name).exists
    world.sweeper().delete([record.name])


def test_another_project_is_refused_until_the_earlier_one_is_given_back(world: World) -> None:
    run = write_run(world.store)
    first = world.reserve(run=run)
    place = {"owner": OWNER, "bundle_sha256": "0" * 64}
    with pytest.raises(ReservationError, match=f"other-project.*{world.emulator.project}"):
        reserve(world.store, run.root, project_id="other-project", **place)
    world.release(first)
    second = reserve(world.store, run.root, project_id="other-project", **place)
    assert second.record.generation == 2


def test_nothing_is_asked_for_after_the_release(world: World) -> None:
    reservation = world.reserve()
    reservation.release("test")
    before = len(world.create_calls())
    with pytest.raises(ReleasedError, match="was released"):
        world.provisioner(reservation).obtain()
    assert len(world.create_calls()) == before


def test_a_tpu_that_is_released_is_not_taken_up_again(world: World) -> None:
    reservation = world.reserve()
    world.obtain_ready(reservation)
    # The tombstone is written first; the TPU itself is still there.
    reservation.release("test")
    with pytest.raises(ReleasedError, match="was released"):
        world.provisioner(reservation).obtain()
    world.release(reservation)


def test_what_was_made_while_the_release_came_is_deleted_by_its_maker(world: World) -> None:
    reservation = world.reserve()
    backend = After(world.backend, lambda: reservation.release("meanwhile"))
    before = len(world.create_calls())
    with pytest.raises(ReleasedError, match="was released"):
        world.provisioner(reservation, backend=backend).obtain()
    assert len(world.create_calls()) == before + 1


def test_a_cancelled_task_deletes_what_its_call_made(world: World) -> None:
    reservation = world.reserve()
    cancelled = threading.Event()
    provisioner = world.provisioner(
        reservation,
        backend=After(world.backend, cancelled.set),
        is_cancelled=cancelled.is_set,
    )
    with pytest.raises(ReleasedError, match="being cancelled"):
        provisioner.obtain()
    assert cancelled.is_set()


def test_a_tpu_that_vanished_is_replaced_within_the_budget(world: World) -> None:
    reservation = world.reserve({"budget.max_preemptions": 1})
    first = world.obtain_ready(reservation)
    world.emulator.admin.preempt(first.attempt.node_id, node_state="GONE")
    wait_for(lambda: world.backend.describe(first.name).gone_reason)
    second = world.obtain_ready(reservation)
    assert (second.number, second.attempt.zone) == (2, ZONE)
    assert second.attempt.token != first.attempt.token
    assert reservation.attempt(1).outcome.startswith("lost: ")
    world.emulator.admin.preempt(second.attempt.node_id)
    wait_for(lambda: world.backend.describe(second.name).gone_reason)
    with pytest.raises(PreemptionBudgetError, match="max_preemptions=1"):
        world.provisioner(reservation).obtain()
    report = world.release(reservation)
    assert len(report.ledger.entries) == 2
    assert all(entry.chip_seconds > 0 for entry in report.ledger.entries)


def test_a_stale_attempt_cannot_become_holder(world: World) -> None:
    reservation = world.reserve()
    old, new = reservation.new_attempt(1, ZONE), reservation.new_attempt(2, ZONE)
    assert become_holder(reservation.run, old.attempt).sequence == 1
    assert become_holder(reservation.run, old.attempt).sequence == 2
    assert become_holder(reservation.run, new.attempt).sequence == 3
    with pytest.raises(SupersededError, match="stale"):
        become_holder(reservation.run, old.attempt)


def test_an_attempt_is_superseded_by_a_newer_one(world: World) -> None:
    reservation = world.reserve()
    reservation.new_attempt(1, ZONE)
    reservation.new_attempt(2, ZONE)
    with pytest.raises(SupersededError, match="replaced by a newer one"):
        reservation.check_may_create(1)
    with pytest.raises(SupersededError, match="in charge"):
        reservation.new_attempt(2, ZONE)
