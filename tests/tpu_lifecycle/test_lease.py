from __future__ import annotations

from pipeline_store import uris
from pipeline_store.formats import Lease
from tests.tpu_lifecycle.test_observe import watch
from tests.tpu_lifecycle.world import ZONE, World
from tpu_lifecycle.control.mailbox import LeaseKeeper
from tpu_lifecycle.control.observe import ReadyWatch


def test_a_lease_is_there_before_the_vm_is(world: World) -> None:
    reservation = world.reserve()
    record = world.provisioner(reservation).obtain()
    lease = Lease.load(record.layout.lease)
    assert (lease.token, lease.sequence) == (record.attempt.token, 1)
    world.release(reservation)


def test_every_look_renews_the_lease_when_it_is_due(world: World) -> None:
    reservation = world.reserve()
    record = world.obtain_ready(reservation)
    looking = watch(world, reservation, record)
    before = Lease.load(record.layout.lease).sequence
    looking.look()
    assert Lease.load(record.layout.lease).sequence == before + 1
    looking.look()
    assert Lease.load(record.layout.lease).sequence == before + 1
    looking.lease = LeaseKeeper(record, timeout=0.0)
    waiting = ReadyWatch(world.backend, reservation, record, reservation.wait_deadline)
    waiting.lease = LeaseKeeper(record, timeout=0.0)
    for number, each in enumerate([looking, looking, waiting, waiting], start=2):
        each.look()
        assert Lease.load(record.layout.lease).sequence == before + number
    world.release(reservation)


def test_a_damaged_lease_is_written_anew(world: World) -> None:
    record = world.reserve().new_attempt(1, ZONE)
    uris.write(record.layout.lease, b"not json")
    LeaseKeeper(record, timeout=60.0).renew()
    assert Lease.load(record.layout.lease).sequence == 1


def test_a_released_tpu_gets_no_new_lease(world: World) -> None:
    reservation = world.reserve()
    record = world.obtain_ready(reservation)
    looking = watch(world, reservation, record)
    looking.lease = LeaseKeeper(record, timeout=0.0)
    reservation.release("test")
    before = uris.read(record.layout.lease)
    looking.look()
    assert uris.read(record.layout.lease) == before
    world.release(reservation)
