"""TPUs that are no single queued resource with one node: nodes alone, several slices; extras."""

from __future__ import annotations

from dataclasses import replace

import pytest
from google.cloud import tpu_v2

from pipeline_store.formats import AttemptEvent
from tests.tpu_lifecycle.test_reaper import expired, make_reaper
from tests.tpu_lifecycle.world import OTHER_ZONE, OWNER, ZONE, World, idle_launcher
from tpu_emulator.testing import wait_for
from tpu_lifecycle.control.observe import ReadyWatch
from tpu_lifecycle.control.provisioning import StockoutError
from tpu_lifecycle.control.verdict import Outcome
from tpu_lifecycle.service import cloud_messages
from tpu_lifecycle.service.backend import TpuConflictError, TpuName, TpuRequest, TpuState
from tpu_lifecycle.service.cloud_tpu import connect
from tpu_lifecycle.service.labels import run_labels

NODES = {"tpu.api": "nodes"}
TWO = {"tpu.slice_count": 2}
PARENT = "projects/p/locations/us-central1-a"
PLAIN = TpuRequest(
    name=TpuName(ZONE, "q"),
    accelerator_type="v5litepod-1",
    runtime_version="v2-alpha-tpuv5-lite",
    provisioning_model="on-demand",
    queue_timeout_seconds=600,
    labels={"owner": OWNER},
    metadata=idle_launcher(mailbox_uri="", token=""),
)


class TestNodes:
    def test_a_node_is_rented_and_given_back(self, world: World) -> None:
        reservation = world.reserve(NODES)
        record = world.obtain_ready(reservation)
        assert world.emulator.admin.table()["queued_resources"] == []
        [node] = world.nodes()
        assert node["node_id"] == record.attempt.node_id
        found = world.backend.list_zone(ZONE, run_labels(reservation.record))
        assert [state.name for state in found] == [record.name]
        assert world.release(reservation).deleted == [record.name]

    def test_a_lost_reply_is_followed_by_adoption(self, world: World) -> None:
        reservation = world.reserve(NODES)
        world.emulator.admin.lose_reply("CreateNode")
        record = world.provisioner(reservation).obtain()
        assert record.number == 1
        assert not record.may_land
        assert len(world.nodes()) == 1
        world.release(reservation)

    def test_a_foreign_node_is_left_alone(self, world: World) -> None:
        reservation = world.reserve(NODES)
        record = reservation.new_attempt(1, ZONE)
        provisioner = world.provisioner(reservation)
        foreign = replace(world.request(reservation, record), labels={"owner": "somebody-else"})
        world.backend.create(foreign)
        with pytest.raises(TpuConflictError, match="not ours"):
            provisioner.obtain()
        assert world.release(reservation).deleted == []
        world.sweeper().delete([record.name])

    @pytest.mark.parametrize("shape", ["sync", "lro"])
    def test_a_stockout_is_noticed_in_whatever_form(self, world: World, shape: str) -> None:
        reservation = world.reserve(NODES | {"tpu.zones": [ZONE, OTHER_ZONE]})
        world.emulator.admin.stockout(ZONE, shape=shape)
        provisioner = world.provisioner(reservation)
        record = provisioner.obtain()
        if shape == "lro":
            # The call was accepted; only its operation says that nothing came of it.
            watch = ReadyWatch(world.backend, reservation, record, reservation.wait_deadline)
            wait_for(lambda: watch.look().verdict.is_final)
            verdict = watch.look().verdict
            assert verdict.outcome is Outcome.REFUSED
            assert verdict.cause == "TpuCapacityError"
            provisioner.refuse(record, verdict.reason, verdict.cause)
            record = provisioner.obtain()
        assert record.attempt.zone == OTHER_ZONE
        assert provisioner._cooldowns.cooling().keys() == {ZONE}
        world.release(reservation)

    def test_no_zone_has_one(self, world: World) -> None:
        reservation = world.reserve(NODES)
        world.emulator.admin.stockout(ZONE, shape="sync")
        with pytest.raises(StockoutError):
            world.provisioner(reservation).obtain()

    def test_a_preempted_node_is_lost(self, world: World) -> None:
        reservation = world.reserve(NODES | {"tpu.provisioning_model": "spot"})
        record = world.obtain_ready(reservation)
        world.emulator.admin.preempt(record.attempt.node_id)
        wait_for(lambda: world.backend.describe(record.name).gone_reason)
        assert world.obtain_ready(reservation).number == 2
        world.release(reservation)

    def test_the_tier_is_said_of_the_node(self) -> None:
        for model in ("spot", "reserved"):
            node = cloud_messages.node(replace(PLAIN, provisioning_model=model))
            assert getattr(node.scheduling_config, model)
        assert not cloud_messages.node(PLAIN).scheduling_config

    def test_its_vm_deletes_the_node(self, world: World) -> None:
        assert world.backend.resource_path(PLAIN.name, "nodes").endswith("/nodes/q")
        assert world.backend.resource_path(PLAIN.name).endswith("/queuedResources/q")


class TestSlices:
    def test_all_nodes_come_and_go_together(self, world: World) -> None:
        reservation = world.reserve(TWO)
        record = world.obtain_ready(reservation)
        names = {node["node_id"] for node in world.nodes()}
        assert names == set(record.name.node_ids)
        assert len(names) == 2
        assert record.marks[AttemptEvent.READY].workers == 2
        [state] = world.backend.list_zone(ZONE, run_labels(reservation.record))
        assert (state.name, state.name.slices, state.workers) == (record.name, 2, 2)
        report = world.release(reservation)
        assert report.deleted == [record.name]
        assert report.ledger.entries[0].chips == 2

    def test_one_lost_slice_loses_the_tpu(self, world: World) -> None:
        reservation = world.reserve(TWO)
        record = world.obtain_ready(reservation)
        world.emulator.admin.preempt(record.name.node_ids[1], node_state="GONE")
        wait_for(lambda: world.backend.describe(record.name).gone_reason)
        assert world.obtain_ready(reservation).number == 2
        world.assert_outcomes(reservation, ["lost", "released"])

    def test_the_reaper_takes_all_of_them(self, world: World) -> None:
        reservation = expired(world.reserve(TWO))
        record = reservation.new_attempt(1, ZONE)
        world.backend.create(world.request(reservation, record))
        wait_for(lambda: len(world.nodes()) == 2)
        [item] = make_reaper(world).reap().reaped
        assert item.name == record.name.resource_id
        wait_for(lambda: not world.backend.describe(record.name).exists)

    def test_nodes_that_are_left_of_several_are_found_and_deleted(self, world: World) -> None:
        client = world.backend._client  # type: ignore[attr-defined]
        for index in (0, 2):
            client.create_node(
                parent=world.emulator.parent(ZONE),
                node_id=f"bert-stray-g1-a1-{index}",
                node=cloud_messages.node(PLAIN),
            )
        found = world.backend.list_zone(ZONE, {"owner": OWNER})
        # Nothing says any more that they belonged together.
        assert len(found) == 2
        world.sweeper().delete([TpuName(ZONE, "bert-stray-g1-a1", slices=3)])

    def test_the_state_is_that_of_the_worst_node(self) -> None:
        name = TpuName(ZONE, "q", slices=3)
        queued = tpu_v2.QueuedResource(state={"state": "ACTIVE"})
        states = tpu_v2.Node.State
        ready, repairing, gone = (
            tpu_v2.Node(state=state, network_endpoints=[{}])
            for state in (states.READY, states.REPAIRING, states.PREEMPTED)
        )

        def look(*nodes: tpu_v2.Node) -> TpuState:
            return cloud_messages.state(name, queued, nodes)

        assert look(ready, ready, ready).is_ready
        assert look(ready, repairing, ready).node == "REPAIRING"
        assert look(ready, repairing, ready).gone_reason is None
        assert look(ready, repairing, gone).gone_reason == "its node is PREEMPTED"
        missing = look(ready, ready)
        assert not missing.is_ready
        assert missing.gone_reason == "1 of its 3 nodes no longer exist"
        assert cloud_messages.state(name, None, [ready]).exists

    def test_one_request_asks_for_all(self) -> None:
        request = replace(PLAIN, name=TpuName(ZONE, "q", slices=3))
        queued = cloud_messages.queued_resource(request, PARENT)
        [spec] = queued.tpu.node_spec
        assert (spec.multislice_params.node_count, spec.multislice_params.node_id_prefix) == (
            3,
            "q",
        )
        assert cloud_messages.slices(queued) == 3


def test_tags_disks_and_reservation_are_asked_for() -> None:
    disk = f"projects/p/zones/{ZONE}/disks/d"
    request = replace(
        PLAIN,
        provisioning_model="reserved",
        reservation_name="ours",
        network_tags=["a", "b"],
        data_disks=[disk],
        service_account="vm@p.iam.gserviceaccount.com",
    )
    queued = cloud_messages.queued_resource(request, PARENT)
    assert queued.reservation_name == f"{PARENT}/reservations/ours"
    node = queued.tpu.node_spec[0].node
    assert list(node.tags) == ["a", "b"]
    assert node.service_account.email == request.service_account
    [attached] = node.data_disks
    assert attached.source_disk == disk
    assert attached.mode is tpu_v2.AttachedDisk.DiskMode.READ_ONLY
    whole = "projects/other/locations/us-central1-a/reservations/theirs"
    request = replace(request, reservation_name=whole)
    assert cloud_messages.queued_resource(request, PARENT).reservation_name == whole


def test_an_operation_that_nobody_remembers_says_nothing(world: World) -> None:
    operation = f"{world.emulator.parent(ZONE)}/operations/forgotten"
    assert world.backend.creation_error(operation, 1) is None


def test_every_call_says_which_part_of_the_program_made_it(world: World) -> None:
    backend = connect(
        project_id=world.emulator.project,
        endpoint=world.emulator.endpoint,
        insecure=True,
        role="teardown",
    )
    backend.list_zone(ZONE, {})
    backend.close()
    newest = max(world.emulator.admin.calls("ListNodes"), key=lambda call: call["id"])
    assert "bert-repretraining/teardown" in newest["caller"]
