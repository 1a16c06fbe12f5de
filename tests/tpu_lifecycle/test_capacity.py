from __future__ import annotations

from datetime import timedelta

import pytest

from pipeline_store import uris
from pipeline_store.formats import AttemptEvent, ZoneCooldown
from tests.tpu_lifecycle.world import OTHER_ZONE, ZONE, World
from tpu_emulator.testing import wait_for
from tpu_lifecycle.control.capacity import (
    QUOTA,
    QUOTA_TOO_SMALL,
    STOCKOUT,
    Cooldowns,
    QuotaExhaustedError,
    QuotaInUseError,
    StockoutError,
    next_zone,
    present_round,
)
from tpu_lifecycle.records.attempts import AttemptRecord, Loss
from tpu_lifecycle.records.reservation import OpenReservation

ZONES = [ZONE, OTHER_ZONE, "us-east1-c", "us-east5-a", "us-south1-a", "europe-west4-b"]


def refuse(
    reservation: OpenReservation, records: list[AttemptRecord], zone: str, cause: str = STOCKOUT
) -> None:
    record = reservation.new_attempt(len(records) + 1, zone)
    records.append(record.mark(AttemptEvent.REFUSED, "because", cause=cause))


def test_a_lost_tpu_is_asked_for_once_more_in_its_zone(world: World) -> None:
    zones = [ZONE, OTHER_ZONE]
    reservation = world.reserve({"tpu.zones": zones})
    records: list[AttemptRecord] = []
    events = [AttemptEvent.LOST, AttemptEvent.LOST, AttemptEvent.CANCELLED, AttemptEvent.REFUSED]
    # Lost once, or cancelled: the same zone again. Lost twice there, or refused: the next one.
    expected = [ZONE, ZONE, OTHER_ZONE, OTHER_ZONE, ZONE]
    for number, event in enumerate(events, start=1):
        zone = next_zone(zones, records)
        assert zone == expected[number - 1]
        records.append(reservation.new_attempt(number, zone).mark(event))
    assert next_zone(zones, records) == expected[-1]


def test_the_first_round_is_in_order_and_later_ones_are_shuffled(world: World) -> None:
    reservation = world.reserve({"tpu.zones": ZONES})
    records: list[AttemptRecord] = []
    orders = []
    for number in (1, 2, 3):
        assert present_round(ZONES, records, seed="x").number == number
        orders.append([])
        for _ in ZONES:
            zone = next_zone(ZONES, records, seed="x")
            orders[-1].append(zone)
            refuse(reservation, records, zone)
    assert orders[0] == ZONES
    assert orders[1] != ZONES
    assert orders[2] != orders[1]
    assert all(sorted(order) == sorted(ZONES) for order in orders)
    ends = [present_round(ZONES, records[:n], seed="x").has_just_begun for n in range(19)]
    assert [n for n, end in enumerate(ends) if end] == [6, 12, 18]


def test_equal_seeds_shuffle_equally(world: World) -> None:
    reservation = world.reserve({"tpu.zones": ZONES})
    records: list[AttemptRecord] = []
    for zone in ZONES:
        refuse(reservation, records, zone)
    lefts = {present_round(ZONES, records, seed=seed).left for seed in ["a", "a", "b", "c"]}
    assert len(lefts) == 3


def test_zones_that_cool_down_are_asked_last(world: World) -> None:
    reservation = world.reserve({"tpu.zones": ZONES})
    cooling = {ZONE, "us-east1-c"}
    walk = present_round(ZONES, [], cooling=cooling)
    assert walk.left == (OTHER_ZONE, *ZONES[3:], ZONE, "us-east1-c")
    records: list[AttemptRecord] = []
    refuse(reservation, records, OTHER_ZONE)
    assert next_zone(ZONES, records, cooling=cooling) == "us-east5-a"


def test_a_zone_with_too_small_a_quota_is_left_out(world: World) -> None:
    zones = [ZONE, OTHER_ZONE]
    reservation = world.reserve({"tpu.zones": zones})
    records: list[AttemptRecord] = []
    refuse(reservation, records, ZONE, QUOTA_TOO_SMALL)
    refuse(reservation, records, OTHER_ZONE, QUOTA)
    walk = present_round(zones, records)
    assert (walk.number, walk.left, walk.has_just_begun) == (2, (OTHER_ZONE,), True)
    refuse(reservation, records, OTHER_ZONE, QUOTA_TOO_SMALL)
    with pytest.raises(QuotaExhaustedError, match=r"any of us-central1-a, us-west4-a.*because"):
        next_zone(zones, records)


@pytest.mark.parametrize("was_seen_ready", [True, False])
def test_a_search_after_a_tpu_that_came_is_a_new_one(world: World, was_seen_ready: bool) -> None:
    zones = [ZONE, OTHER_ZONE]
    reservation = world.reserve({"tpu.zones": zones})
    records: list[AttemptRecord] = []
    refuse(reservation, records, ZONE)
    lost = reservation.new_attempt(2, OTHER_ZONE)
    if was_seen_ready:
        lost = lost.mark(AttemptEvent.READY, workers=1)
    records.append(lost.mark(AttemptEvent.LOST))
    refuse(reservation, records, OTHER_ZONE)
    walk = present_round(zones, records)
    assert (walk.number, walk.left, walk.has_just_begun) == (1, (ZONE,), False)


def test_a_stockout_is_remembered_for_other_runs(world: World) -> None:
    both = {"tpu.zones": [ZONE, OTHER_ZONE]}
    first = world.reserve(both)
    world.emulator.admin.stockout(ZONE, shape="sync")
    assert world.provisioner(first).obtain().attempt.zone == OTHER_ZONE
    world.release(first)
    second = world.reserve(both)
    assert world.provisioner(second).obtain().attempt.zone == OTHER_ZONE
    world.release(second)
    # Of another kind of TPU nothing is known, and all is forgotten after a while.
    for changes in ({"tpu.provisioning_model": "spot"}, {"tpu.zone_cooldown_seconds": 0.0}):
        other = world.reserve(both | changes)
        assert world.provisioner(other).obtain().attempt.zone == ZONE
        world.release(other)


def test_a_quota_that_a_neighbour_uses_is_waited_for(world: World) -> None:
    eight = {"tpu.accelerator_type": "v5litepod-8"}
    world.emulator.admin.quota(ZONE, "v5litepod", 8)
    neighbour, waiting = world.reserve(eight), world.reserve(eight)
    world.obtain_ready(neighbour)
    for _ in range(2):
        with pytest.raises(QuotaInUseError, match="Limit: 8"):
            world.provisioner(waiting).obtain()
    cooldowns = Cooldowns(world.store, waiting.record, "on-demand", 600.0)
    assert cooldowns.cooling().keys() == {ZONE}
    world.release(neighbour)
    assert world.obtain_ready(waiting).number == 3
    world.release(waiting)


def test_a_replacement_waits_until_the_quota_knows_of_the_loss(world: World) -> None:
    reservation = world.reserve({"tpu.accelerator_type": "v5litepod-8"})
    first = world.obtain_ready(reservation)
    world.emulator.admin.quota(ZONE, "v5litepod", 8, lag=3.0)
    world.emulator.admin.preempt(first.attempt.node_id)
    wait_for(lambda: world.backend.describe(first.name).gone_reason)
    provisioner = world.provisioner(reservation)
    provisioner.lose(first, "preempted", Loss.TAKEN)
    with pytest.raises(QuotaInUseError):
        provisioner.obtain()

    def again() -> bool:
        try:
            return provisioner.obtain().is_usable
        except QuotaInUseError:
            return False

    wait_for(again)
    world.release(reservation)


def test_a_quota_that_is_too_small_is_no_stockout(world: World) -> None:
    reservation = world.reserve({"tpu.zones": [ZONE, OTHER_ZONE]})
    message = "Quota limit 'TPUV5PerProjectPerZoneForTPUAPI' has been exceeded. Limit: 0"
    fail_next = world.emulator.admin.fail_next
    fail_next("CreateQueuedResource", code="RESOURCE_EXHAUSTED", message=message)
    world.emulator.admin.stockout(OTHER_ZONE, shape="sync")
    with pytest.raises(StockoutError):
        world.provisioner(reservation).obtain()
    cooldowns = Cooldowns(world.store, reservation.record, "on-demand", 600.0)
    assert cooldowns.cooling().keys() == {OTHER_ZONE}
    # The next round goes without the zone whose quota is too small.
    fail_next("CreateQueuedResource", code="RESOURCE_EXHAUSTED", message=message)
    with pytest.raises(QuotaExhaustedError, match="Ask for quota"):
        world.provisioner(reservation).obtain()
    assert [record.attempt.zone for record in reservation.attempts()] == [
        ZONE,
        OTHER_ZONE,
        OTHER_ZONE,
    ]
    with pytest.raises(QuotaExhaustedError):
        world.provisioner(reservation).obtain()
    assert len(reservation.attempts()) == 3


def test_too_small_a_quota_of_a_zone_sends_the_run_to_another(world: World) -> None:
    world.emulator.admin.quota(ZONE, "v5litepod", 0)
    try:
        reservation = world.reserve({"tpu.zones": [ZONE, OTHER_ZONE]})
        assert world.obtain_ready(reservation).attempt.zone == OTHER_ZONE
        refusal = reservation.attempt(1).marks[AttemptEvent.REFUSED]
        assert refusal.cause == QUOTA_TOO_SMALL
        world.release(reservation)
    finally:
        world.emulator.admin.quota(ZONE, "v5litepod", None)


def test_a_damaged_memory_stops_nothing(world: World) -> None:
    reservation = world.reserve()
    cooldowns = Cooldowns(world.store, reservation.record, "on-demand", 600.0)
    cooldowns.note(ZONE, "because")
    [uri] = uris.list_files(uris.join(world.store.root, "cooldowns"))
    noted = ZoneCooldown.load(uri)
    assert cooldowns.cooling() == {ZONE: noted.since + timedelta(seconds=600)}
    uris.write(uri, b"not json")
    assert cooldowns.cooling() == {}


def test_the_log_tells_how_the_zones_were_asked(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    reservation = world.reserve({"tpu.zones": [ZONE, OTHER_ZONE]})
    world.emulator.admin.stockout("*", shape="sync", count=2)
    with caplog.at_level("INFO"), pytest.raises(StockoutError):
        world.provisioner(reservation).obtain()
    said = "\n".join(record.getMessage() for record in caplog.records)
    assert f"Round 1: {ZONE}, {OTHER_ZONE}; cooling down: none" in said
    assert f"Round 1: {OTHER_ZONE}; cooling down: {ZONE} until" in said
    assert f"a2 asked for in {OTHER_ZONE}" in said
    assert "a2 refused: " in said
