"""The dead man's switch on emulated TPU VMs: it works when all others are dead, and not before.

Its rules are in ``test_dead_man.py``, what it does by them in ``test_switch.py``.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from pipeline_store.formats import AgentHello, ExitKind, Lease
from tests.tpu_agent.cloud import NODE_ID, Cloud, cloud
from tests.tpu_agent.world import TOKEN, World, wait_for

LEASE_TIMEOUT = 1.5
"""Long enough that a busy machine renews and makes steps in time."""
SHORT = 0.5
"""Where there is nobody who could be late."""
VM = "bert-repretraining/vm"
DELETIONS = ("DeleteQueuedResource", "DeleteNode")


@pytest.fixture
def tpu(tmp_path: Path, world: World) -> Iterator[Cloud]:
    with cloud(tmp_path, world, vm_grace=1.0) as running:
        yield running


@contextmanager
def renewed(world: World) -> Iterator[None]:
    """Renew the lease as somebody does who looks after the TPU, while the block runs."""
    ended = threading.Event()

    def renew() -> None:
        sequence = 0
        while not ended.wait(0.1):
            sequence += 1
            now = datetime.now(UTC)
            Lease(token=TOKEN, sequence=sequence, renewed=now).write(world.mailbox.lease)

    thread = threading.Thread(target=renew)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def assert_deleted_by_itself(tpu: Cloud) -> None:
    tpu.wait_gone()
    calls = tpu.deletions()
    assert calls
    assert all(VM in call["caller"] for call in calls), "nobody else has helped"


def deny_deletions(tpu: Cloud) -> None:
    """Refuse the VM both: that of its queued resource, and that of its node."""
    for method in DELETIONS:
        tpu.emulator.admin.deny(method, caller=VM)


def allow_deletions(tpu: Cloud) -> None:
    for method in DELETIONS:
        tpu.emulator.admin.allow(method)


def steps_of(world: World) -> int:
    beat = world.wait_heartbeat("progress", lambda beat: beat.progress is not None)
    assert beat.progress is not None
    return beat.progress.step


def renewals(world: World) -> int:
    lease = Lease.load_or_none(world.mailbox.lease)
    return lease.sequence if lease else 0


def begin_to_work(tpu: Cloud, world: World) -> None:
    """Create the TPU and look after it until its job makes steps, however long it takes to boot."""
    with renewed(world):
        tpu.create(lease_timeout_seconds=LEASE_TIMEOUT)
        wait_for("steps", lambda: steps_of(world) > 1)


@pytest.mark.thorough
def test_expiry_with_a_hung_agent(tpu: Cloud, world: World) -> None:
    world.expires_at = datetime.now(UTC) + timedelta(seconds=15)
    far = datetime.now(UTC) + timedelta(hours=1)
    world.add_job("010-train", "waits", deadline=far)
    tpu.create()
    world.wait_starts(1)
    tpu.freeze_agent()
    assert_deleted_by_itself(tpu)
    assert datetime.now(UTC) >= world.expires_at
    assert (world.scratch / "saved").exists(), "the job could save its checkpoint"


@pytest.mark.thorough
def test_a_forgotten_tpu_without_a_job(tpu: Cloud, world: World) -> None:
    with renewed(world):
        tpu.create(lease_timeout_seconds=LEASE_TIMEOUT)
        world.add_job("010-train", "steps")
        wait_for("many steps", lambda: steps_of(world) > 10 * LEASE_TIMEOUT * 2)
        world.go()
        assert world.wait_status("010-train").exit_kind is ExitKind.OK
        assert tpu.is_there()
        assert tpu.deletions() == []
    assert_deleted_by_itself(tpu)


@pytest.mark.thorough
def test_a_working_job_keeps_its_forgotten_tpu_until_it_is_done(tpu: Cloud, world: World) -> None:
    world.add_job("010-train", "steps")
    begin_to_work(tpu, world)
    known = steps_of(world)
    wait_for("many steps", lambda: steps_of(world) > known + 10 * LEASE_TIMEOUT * 2)
    assert tpu.deletions() == []
    world.go()
    assert world.wait_status("010-train").exit_kind is ExitKind.OK
    assert_deleted_by_itself(tpu)


@pytest.mark.thorough
def test_a_hung_job_does_not_keep_its_forgotten_tpu(tpu: Cloud, world: World) -> None:
    world.add_job("010-train", "steps")
    begin_to_work(tpu, world)
    (world.scratch / "stuck").touch()
    assert_deleted_by_itself(tpu)
    assert (world.scratch / "saved").exists()
    assert world.wait_status("010-train").exit_kind is ExitKind.PREEMPTED
    log = world.log("010-train")
    assert f"this VM deletes its own TPU {tpu.queued_name}: nobody has renewed" in log


@pytest.mark.thorough
def test_a_tombstone_that_nobody_acted_on(tpu: Cloud, world: World) -> None:
    with renewed(world):
        tpu.create(lease_timeout_seconds=LEASE_TIMEOUT)
        wait_for("the switch", lambda: tpu.wait_process("tpu_agent.self_delete"))
        world.release()
        assert_deleted_by_itself(tpu)


@pytest.mark.thorough
def test_a_silent_store_is_no_sign_but_the_expiry_holds(tpu: Cloud, world: World) -> None:
    world.expires_at = datetime.now(UTC) + timedelta(seconds=15)
    with renewed(world):
        tpu.create(lease_timeout_seconds=LEASE_TIMEOUT)
        wait_for("the switch", lambda: tpu.wait_process("tpu_agent.self_delete"))
    mailbox = Path(world.mailbox.root)
    mailbox.rename(mailbox.with_name("aside"))
    mailbox.touch()  # no longer a folder: every read fails
    assert_deleted_by_itself(tpu)
    assert datetime.now(UTC) >= world.expires_at


@pytest.mark.thorough
def test_a_denied_deletion_is_tried_until_it_is_allowed(tpu: Cloud, world: World) -> None:
    deny_deletions(tpu)
    tpu.create(lease_timeout_seconds=SHORT)
    wait_for("three tries", lambda: len(tpu.deletions()) >= 3)
    assert {call["code"] for call in tpu.deletions() if call["code"]} == {"PERMISSION_DENIED"}
    assert tpu.is_there()
    allow_deletions(tpu)
    assert_deleted_by_itself(tpu)


@pytest.mark.thorough
def test_who_comes_back_in_time_keeps_the_tpu(tpu: Cloud, world: World) -> None:
    deny_deletions(tpu)
    tpu.create(lease_timeout_seconds=LEASE_TIMEOUT)
    wait_for("two tries", lambda: len(tpu.deletions()) >= 2)
    with renewed(world):
        # A job that is there before the switch has seen it would be ended with the next try.
        wait_for("renewals", lambda: renewals(world) > 10)
        world.add_job("010-train", "steps")
        wait_for("steps", lambda: steps_of(world) > 5)
        allow_deletions(tpu)
        known = len(tpu.deletions())
        wait_for("many steps", lambda: steps_of(world) > 40)
        assert len(tpu.deletions()) == known
        world.go()
        assert world.wait_status("010-train").exit_kind is ExitKind.OK
    assert_deleted_by_itself(tpu)


def test_a_node_without_a_queued_resource(tpu: Cloud) -> None:
    tpu.create_node(lease_timeout_seconds=SHORT)
    assert_deleted_by_itself(tpu)
    assert {call["method"] for call in tpu.deletions()} == {"DeleteNode"}


@pytest.mark.thorough
def test_a_slice_is_deleted_as_a_whole(tpu: Cloud) -> None:
    tpu.create("v5litepod-16", lease_timeout_seconds=SHORT)
    wait_for("four workers", lambda: len(tpu.workers()) == 4)
    assert_deleted_by_itself(tpu)
    assert {call["name"].rpartition("/")[2] for call in tpu.deletions()} == {NODE_ID}


@pytest.mark.thorough
def test_several_slices_are_deleted_as_a_whole(tpu: Cloud, world: World) -> None:
    with renewed(world):
        tpu.create_slices("v5litepod-16", 2, lease_timeout_seconds=LEASE_TIMEOUT)
        for worker in range(8):
            uri = world.mailbox.hello(worker)
            wait_for(f"worker {worker}", partial(AgentHello.load_or_none, uri))
    assert_deleted_by_itself(tpu)


@pytest.mark.thorough
def test_a_reboot_starts_the_switch_again(tpu: Cloud, world: World) -> None:
    with renewed(world):
        tpu.create(lease_timeout_seconds=LEASE_TIMEOUT)
        first = tpu.wait_process("tpu_agent.self_delete")
        tpu.emulator.admin.reboot(tpu.node_name)
        wait_for("another", lambda: tpu.wait_process("tpu_agent.self_delete") != first)
    assert_deleted_by_itself(tpu)
