from __future__ import annotations

import grpc
import pytest
from google.api_core import exceptions

from tests.tpu_emulator.support import Tpu, connect, new_request_id, unique
from tpu_emulator.testing import wait_for

ZONE = "us-central1-a"


def _last_call(tpu: Tpu, method: str) -> dict[str, object]:
    return tpu.admin.calls(method)[-1]


def test_a_create_that_commits_late_lands_after_its_client_is_gone(tpu: Tpu) -> None:
    name = unique()
    with connect(tpu.emulator) as hasty:
        # Connected before, so that the call arrives in the time that it has.
        list(hasty.client.list_nodes(parent=hasty.parent))
        tpu.admin.delay_next("CreateQueuedResource", seconds=2.5, commit_late=True)
        request = hasty.queued_request(name)
        with pytest.raises(exceptions.DeadlineExceeded):
            hasty.client.create_queued_resource(request=request, timeout=0.5)
    assert _last_call(tpu, "CreateQueuedResource")["code"] == ""  # still in flight
    with pytest.raises(exceptions.NotFound):
        tpu.delete_queued(name)
    tpu.wait_queued_exists(name)
    tpu.wait_queued(name, "ACTIVE")
    assert _last_call(tpu, "CreateQueuedResource")["code"] == "OK"


def test_a_slow_reply_has_its_effect_at_once(tpu: Tpu) -> None:
    name = unique()
    tpu.admin.delay_next("CreateQueuedResource", seconds=60.0)
    request = tpu.queued_request(name)
    with pytest.raises(exceptions.DeadlineExceeded):
        tpu.client.create_queued_resource(request=request, timeout=1.0)
    tpu.wait_queued(name, "ACTIVE")


def test_a_lost_reply_leaves_the_resource_and_a_replay_finds_it(tpu: Tpu) -> None:
    tpu.admin.lose_reply("CreateQueuedResource")
    request = tpu.queued_request(unique()) | {"request_id": new_request_id()}
    with pytest.raises(exceptions.ServiceUnavailable):
        tpu.client.create_queued_resource(request=request)
    assert tpu.queued_state(request["queued_resource_id"])
    replayed = tpu.client.create_queued_resource(request=request).result(timeout=20)
    assert replayed.name == tpu.queued_name(request["queued_resource_id"])


def test_a_failing_call_has_no_effect_and_the_count_is_kept(tpu: Tpu) -> None:
    name = unique()
    tpu.admin.fail_next("CreateNode", code="PERMISSION_DENIED", message="no role", count=2)
    for _ in range(2):
        with pytest.raises(exceptions.PermissionDenied, match="no role"):
            tpu.create_node(name)
    with pytest.raises(exceptions.NotFound):
        tpu.node_state(name)
    assert tpu.create_node(name).result(timeout=20).state.name == "READY"


def test_a_fault_for_every_method_hits_the_next_call(tpu: Tpu) -> None:
    tpu.admin.fail_next("*", code="unavailable")
    with pytest.raises(exceptions.ServiceUnavailable):
        list(tpu.client.list_nodes(parent=tpu.parent))
    list(tpu.client.list_nodes(parent=tpu.parent))


def test_a_stockout_can_show_in_the_call(tpu: Tpu) -> None:
    tpu.admin.stockout(ZONE, shape="sync", count=2)
    name = unique()
    with pytest.raises(exceptions.ResourceExhausted, match="no more capacity"):
        tpu.create_queued(name)
    with pytest.raises(exceptions.ResourceExhausted, match="no more capacity"):
        tpu.create_node(name)
    tpu.active(name)


def test_a_stockout_can_show_in_the_operation(tpu: Tpu) -> None:
    tpu.admin.stockout(ZONE, shape="lro", count=2)
    queued, node = unique(), unique()
    operation = tpu.create_queued(queued)
    with pytest.raises(exceptions.ResourceExhausted, match="no more capacity"):
        operation.result(timeout=20)
    assert tpu.queued_state(queued) == "FAILED"
    with pytest.raises(exceptions.ResourceExhausted, match="no more capacity"):
        tpu.create_node(node).result(timeout=20)
    with pytest.raises(exceptions.NotFound):
        tpu.node_state(node)


def test_a_stockout_can_show_in_the_state_only(tpu: Tpu) -> None:
    tpu.admin.stockout(ZONE, shape="state")
    name = unique()
    assert tpu.create_queued(name).result(timeout=20).state.state.name == "WAITING_FOR_RESOURCES"
    tpu.wait_queued(name, "FAILED")
    error = tpu.client.get_queued_resource(name=tpu.queued_name(name)).state.failed_data.error
    assert error.code == grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]
    with pytest.raises(exceptions.AlreadyExists):
        tpu.create_queued(name)


def test_a_stockout_is_limited_to_its_zone(tpu: Tpu) -> None:
    tpu.admin.stockout("us-west4-a", shape="sync")
    tpu.active()
    assert [fault["zone"] for fault in tpu.admin.faults()] == ["us-west4-a"]


def test_armed_faults_can_be_listed_and_cleared(tpu: Tpu) -> None:
    tpu.admin.lose_reply("DeleteNode", count=3)
    tpu.admin.fail_next("GetNode", code="INTERNAL")
    assert [(f["kind"], f["remaining"]) for f in tpu.admin.faults()] == [
        ("lose-reply", 3),
        ("fail", 1),
    ]
    assert tpu.admin.clear_faults() == 2
    assert tpu.admin.faults() == []


def test_misspelt_faults_are_refused(tpu: Tpu) -> None:
    for arm in (
        lambda: tpu.admin.fail_next("GetNode", code="TEAPOT"),
        lambda: tpu.admin.fail_next("GetNod", code="INTERNAL"),
        lambda: tpu.admin.lose_reply("CreateTpu"),
        lambda: tpu.admin.delay_next("Create", seconds=1),
        lambda: tpu.admin.stockout("moon-1"),
        lambda: tpu.admin.stockout(ZONE, shape="round"),
        lambda: tpu.admin.lose_reply("GetNode", count=0),
        lambda: tpu.admin.delay_next("GetNode", seconds=-1),
    ):
        with pytest.raises(grpc.RpcError) as caught:
            arm()
        assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert tpu.admin.faults() == []


def test_every_call_is_recorded_with_name_code_and_request(tpu: Tpu) -> None:
    last = max((call["id"] for call in tpu.admin.calls()), default=0)
    name = unique()
    with pytest.raises(exceptions.NotFound):
        tpu.node_state(name)
    tpu.create_node(name).result(timeout=20)
    calls = wait_for(lambda: tpu.admin.calls(after=last))
    recorded = [(call["method"], call["name"], call["code"]) for call in calls]
    assert recorded[:2] == [
        ("GetNode", tpu.node_name(name), "NOT_FOUND"),
        ("CreateNode", tpu.node_name(name), "OK"),
    ]
    assert '"accelerator_type": "v5litepod-8"' in calls[1]["request"]
    assert calls[0]["received"] <= calls[0]["finished"] <= calls[1]["finished"]
    assert [call["method"] for call in tpu.admin.calls("CreateNode", after=last)] == ["CreateNode"]
