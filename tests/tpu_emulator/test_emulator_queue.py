from __future__ import annotations

from pathlib import Path

import pytest
from google.api_core import exceptions
from google.api_core.operation import Operation
from google.longrunning import operations_pb2

from tests.tpu_emulator.support import Tpu, connect, new_request_id, node_body, unique
from tpu_emulator.testing import start_emulator, wait_for


def test_a_request_becomes_active_with_a_ready_node_and_goes_away(tpu: Tpu) -> None:
    name = unique()
    operation = tpu.create_queued(name, node_body(labels={"owner": "me"}))
    created = operation.result(timeout=20)
    assert created.name == tpu.queued_name(name)
    assert operation.metadata.verb == "create"
    assert operation.metadata.target == created.name
    tpu.wait_queued(name, "ACTIVE")

    node = tpu.client.get_node(name=tpu.node_name(name))
    assert node.state.name == "READY"
    assert node.health.name == "HEALTHY"
    assert node.queued_resource == created.name
    assert dict(node.labels) == {"owner": "me"}
    assert node.accelerator_config.topology == "2x4"
    assert len(node.network_endpoints) == 1
    assert node.id
    assert node.create_time

    tpu.delete_queued(name).result(timeout=20)
    with pytest.raises(exceptions.NotFound):
        tpu.client.get_queued_resource(name=created.name)
    with pytest.raises(exceptions.NotFound):
        tpu.client.get_node(name=node.name)


def test_an_operation_can_be_resumed_by_its_name(tpu: Tpu) -> None:
    name = tpu.create_queued(unique()).operation.name
    get = operations_pb2.GetOperationRequest(name=name)
    finished = wait_for(lambda: (o := tpu.client.get_operation(get)).done and o)
    assert finished.response.type_url.endswith("QueuedResource")
    listed = tpu.client.list_operations(operations_pb2.ListOperationsRequest(name=tpu.parent))
    assert name in {operation.name for operation in listed.operations}

    tpu.client.cancel_operation(operations_pb2.CancelOperationRequest(name=name))
    tpu.client.delete_operation(operations_pb2.DeleteOperationRequest(name=name))
    with pytest.raises(exceptions.NotFound):
        tpu.client.get_operation(get)


@pytest.mark.parametrize(
    "milestone", [pytest.param("provisioning", marks=pytest.mark.thorough), "active"]
)
def test_when_the_create_operation_ends_is_configurable(state_folder: Path, milestone: str) -> None:
    with (
        start_emulator(state_folder, create_finishes_at=milestone, boot_delay=1.0) as emulator,
        connect(emulator) as tpu,
    ):
        result = tpu.create_queued("n").result(timeout=30)
        assert result.state.state.name == milestone.upper()


def test_lists_are_paged_in_order(tpu: Tpu) -> None:
    zone = tpu.emulator.parent("us-east5-b")
    names = [unique("page") for _ in range(5)]
    for name in names:
        request = tpu.queued_request(name)
        request["parent"] = request["queued_resource"]["tpu"]["node_spec"][0]["parent"] = zone
        tpu.client.create_queued_resource(request=request)
    pages = list(tpu.client.list_queued_resources(request={"parent": zone, "page_size": 2}).pages)
    assert [len(page.queued_resources) for page in pages] == [2, 2, 1]
    listed = [item.name for page in pages for item in page.queued_resources]
    assert listed == sorted(f"{zone}/queuedResources/{name}" for name in names)
    wait_for(lambda: len(list(tpu.client.list_nodes(parent=zone))) == 5)
    nodes = list(tpu.client.list_nodes(request={"parent": zone, "page_size": 3}))
    assert [node.name for node in nodes] == sorted(f"{zone}/nodes/{name}" for name in names)
    with pytest.raises(exceptions.InvalidArgument, match="page_token"):
        tpu.client.list_nodes(request={"parent": zone, "page_token": "!"})


def test_taken_names_are_refused(tpu: Tpu) -> None:
    name = tpu.active()
    with pytest.raises(exceptions.AlreadyExists, match=name):
        tpu.create_queued(name)
    with pytest.raises(exceptions.AlreadyExists, match=f"nodes/{name}"):
        tpu.create_node(name)
    other = tpu.queued_request(unique())
    other["queued_resource"]["tpu"]["node_spec"][0]["node_id"] = name
    with pytest.raises(exceptions.AlreadyExists, match=f"nodes/{name}"):
        tpu.client.create_queued_resource(request=other)


def test_a_waiting_request_claims_its_node_name(tpu: Tpu) -> None:
    tpu.admin.stockout("us-central1-a", shape="wait")
    name = unique()
    tpu.create_queued(name)
    tpu.wait_queued(name, "WAITING_FOR_RESOURCES")
    with pytest.raises(exceptions.AlreadyExists):
        tpu.create_node(name)


def test_a_replayed_create_returns_the_same_operation_and_creates_nothing(tpu: Tpu) -> None:
    request = tpu.queued_request(unique()) | {"request_id": new_request_id()}
    first = tpu.client.create_queued_resource(request=request)
    second = tpu.client.create_queued_resource(request=request)
    assert first.operation.name == second.operation.name
    with pytest.raises(exceptions.InvalidArgument, match="request_id"):
        tpu.client.create_queued_resource(
            request=tpu.queued_request(unique()) | {"request_id": request["request_id"]}
        )


def test_a_replayed_delete_returns_the_same_operation_after_the_resource_is_gone(tpu: Tpu) -> None:
    name, request_id = tpu.active(), new_request_id()
    first = tpu.delete_queued(name, request_id=request_id)
    tpu.wait_gone(name)
    assert tpu.delete_queued(name, request_id=request_id).operation.name == first.operation.name
    with pytest.raises(exceptions.NotFound):
        tpu.delete_queued(name, request_id=new_request_id())


def test_the_deadline_fails_a_request_that_waits(tpu: Tpu) -> None:
    tpu.admin.stockout("us-central1-a", shape="wait")
    name = unique()
    tpu.create_queued(name, queueing_policy={"valid_until_duration": {"seconds": 1}})
    tpu.wait_queued(name, "FAILED")
    found = tpu.client.get_queued_resource(name=tpu.queued_name(name))
    assert "expired" in found.state.failed_data.error.message
    assert name not in {row["node_id"] for row in tpu.admin.table()["nodes"]}
    tpu.delete_queued(name, force=False)
    tpu.wait_gone(name)


def test_the_deadline_leaves_an_active_request_alone(tpu: Tpu) -> None:
    # Time enough to become active on a busy machine.
    name = tpu.active(queueing_policy={"valid_until_duration": {"seconds": 2}})
    after = unique()
    tpu.admin.stockout("us-central1-a", shape="wait")
    # This request's deadline lies after the first one's, so both have passed when it fails.
    tpu.create_queued(after, queueing_policy={"valid_until_duration": {"seconds": 2}})
    tpu.wait_queued(after, "FAILED")
    assert tpu.queued_state(name) == "ACTIVE"


def test_a_start_time_in_the_future_is_waited_for(tpu: Tpu) -> None:
    name = unique()
    tpu.create_queued(name, queueing_policy={"valid_after_duration": {"seconds": 3600}})
    tpu.wait_queued(name, "WAITING_FOR_RESOURCES")
    assert tpu.active() != name
    assert tpu.queued_state(name) == "WAITING_FOR_RESOURCES"


def test_delete_without_force_is_refused_while_there_are_nodes(tpu: Tpu) -> None:
    name = tpu.active()
    with pytest.raises(exceptions.FailedPrecondition, match="force"):
        tpu.delete_queued(name, force=False)
    tpu.client.delete_node(name=tpu.node_name(name)).result(timeout=20)
    tpu.wait_queued(name, "SUSPENDED")
    found = tpu.client.get_queued_resource(name=tpu.queued_name(name))
    assert found.state.state_initiator.name == "USER"
    tpu.delete_queued(name, force=False)
    tpu.wait_gone(name)


def test_a_second_delete_in_flight_is_refused_as_busy(state_folder: Path) -> None:
    with start_emulator(state_folder, delete_delay=60.0) as emulator, connect(emulator) as tpu:
        name = tpu.active()
        tpu.delete_queued(name)
        assert tpu.node_state(name) == "DELETING"
        with pytest.raises(exceptions.Aborted, match="unable to queue the operation"):
            tpu.delete_queued(name)
        with pytest.raises(exceptions.AlreadyExists):
            tpu.create_queued(name)


def test_deleting_while_it_is_created_ends_the_create_operation(state_folder: Path) -> None:
    with (
        start_emulator(state_folder, create_finishes_at="active", boot_delay=60.0) as emulator,
        connect(emulator) as tpu,
    ):
        operation = tpu.create_queued("n")
        tpu.wait_queued("n", "PROVISIONING")
        tpu.delete_queued("n")
        tpu.wait_gone("n")
        with pytest.raises(exceptions.Aborted):
            operation.result(timeout=20)


def test_reset_queues_the_request_again_with_new_nodes(tpu: Tpu) -> None:
    name = tpu.active()
    before = tpu.client.get_node(name=tpu.node_name(name)).id
    request = {"name": tpu.queued_name(name)}
    operation: Operation = tpu.client.reset_queued_resource(request=request)
    assert operation.result(timeout=20).state.state.name == "WAITING_FOR_RESOURCES"
    tpu.wait_queued(name, "ACTIVE")
    assert tpu.client.get_node(name=tpu.node_name(name)).id != before


def test_multislice_makes_numbered_nodes(tpu: Tpu) -> None:
    name = unique("ms")
    request = tpu.queued_request(name)
    spec = request["queued_resource"]["tpu"]["node_spec"][0]
    del spec["node_id"]
    spec["multislice_params"] = {"node_count": 3}
    tpu.client.create_queued_resource(request=request)
    tpu.wait_queued(name, "ACTIVE")
    nodes = [tpu.client.get_node(name=tpu.node_name(f"{name}-{i}")) for i in range(3)]
    assert all(node.multislice_node and node.state.name == "READY" for node in nodes)
    tpu.delete_queued(name)
    for index in range(3):
        tpu.wait_gone(f"{name}-{index}")


def test_a_known_reservation_is_accepted_and_an_unknown_one_is_not_found(tpu: Tpu) -> None:
    tpu.active(reservation_name=f"{tpu.parent}/reservations/team-a")
    with pytest.raises(exceptions.NotFound, match="team-b"):
        tpu.create_queued(unique(), reservation_name=f"{tpu.parent}/reservations/team-b")
