"""Faults of calls: their scope, and those that last."""

from __future__ import annotations

import grpc
import pytest
from google.api_core import exceptions

from tests.tpu_emulator.support import Tpu, connect, new_request_id, unique
from tpu_emulator.testing import ZONE

OTHER = "us-south1-a"


def _list(tpu: Tpu, zone: str = ZONE) -> None:
    list(tpu.client.list_nodes(parent=tpu.emulator.parent(zone), timeout=20))


def test_a_call_is_recorded_with_zone_and_caller(tpu: Tpu) -> None:
    last = max((call["id"] for call in tpu.admin.calls()), default=0)
    with connect(tpu.emulator, user_agent="my-tool/reaper") as reaper:
        _list(reaper, OTHER)
    _list(tpu)
    first, second = tpu.admin.calls("ListNodes", after=last)
    assert first["zone"] == OTHER
    assert "my-tool/reaper" in first["caller"]
    assert second["zone"] == ZONE
    assert "my-tool" not in second["caller"]
    assert "gl-python" in second["caller"]


def test_a_fault_can_be_limited_to_a_zone(tpu: Tpu) -> None:
    tpu.admin.fail_next("ListNodes", code="INTERNAL", zone=OTHER)
    tpu.admin.lose_reply("ListNodes", zone=OTHER)
    tpu.admin.delay_next("ListNodes", seconds=600, zone=OTHER)
    _list(tpu)
    assert {fault["zone"] for fault in tpu.admin.faults()} == {OTHER}


def test_a_fault_can_be_limited_to_a_caller(tpu: Tpu) -> None:
    tpu.admin.fail_next("ListNodes", code="INTERNAL", caller="my-tool/cron")
    tpu.admin.deny("ListNodes", caller="my-tool/vm")
    _list(tpu)
    with connect(tpu.emulator, user_agent="my-tool/cron") as cron:
        with pytest.raises(exceptions.InternalServerError):
            _list(cron)
        _list(cron)
    with (
        connect(tpu.emulator, user_agent="my-tool/vm") as vm,
        pytest.raises(exceptions.PermissionDenied),
    ):
        _list(vm)
    assert tpu.admin.allow(caller="my-tool/cron") == 0
    assert tpu.admin.allow(caller="my-tool/vm") == 1


def test_the_faults_of_one_zone_can_be_cleared(tpu: Tpu) -> None:
    tpu.admin.fail_next("GetNode", code="INTERNAL", zone=OTHER)
    tpu.admin.stockout(OTHER)
    tpu.admin.lose_reply("GetNode", zone=ZONE)
    assert tpu.admin.clear_faults(OTHER) == 2
    assert [fault["kind"] for fault in tpu.admin.faults()] == ["lose-reply"]


def test_permission_is_denied_until_it_is_given(tpu: Tpu) -> None:
    name = tpu.active()
    tpu.admin.deny("DeleteQueuedResource", ZONE)
    for _ in range(3):
        with pytest.raises(exceptions.PermissionDenied, match=r"tpu\.queuedResources\.delete"):
            tpu.delete_queued(name)
    assert tpu.queued_state(name) == "ACTIVE"
    assert tpu.admin.allow("GetNode") == 0
    assert tpu.admin.allow("DeleteQueuedResource", ZONE) == 1
    tpu.delete_queued(name)
    tpu.wait_gone(name)


def test_everything_can_be_denied(tpu: Tpu) -> None:
    tpu.admin.deny(zone=OTHER)
    with pytest.raises(exceptions.PermissionDenied):
        _list(tpu, OTHER)
    _list(tpu)
    assert tpu.admin.allow() == 1
    _list(tpu, OTHER)


def _codes_during_a_burst(tpu: Tpu, seed: int) -> list[str]:
    tpu.admin.clear_faults()
    tpu.admin.burst("ListNodes", seconds=600, share=0.5, seed=seed)
    codes = []
    for _ in range(30):
        try:
            _list(tpu)
            codes.append("fine")
        except exceptions.GoogleAPICallError as error:
            codes.append(str(error.grpc_status_code))
    return codes


def test_a_burst_hits_a_share_of_the_calls_by_seed(tpu: Tpu) -> None:
    codes = _codes_during_a_burst(tpu, seed=1)
    assert set(codes) == {"fine", "StatusCode.UNAVAILABLE", "StatusCode.DEADLINE_EXCEEDED"}
    assert _codes_during_a_burst(tpu, seed=1) == codes
    assert _codes_during_a_burst(tpu, seed=2) != codes


def test_a_burst_ends_by_itself(tpu: Tpu) -> None:
    tpu.admin.burst("*", codes=["ABORTED"], seconds=0.0)
    _list(tpu)
    assert tpu.admin.faults() == []


def test_a_duplicate_of_a_create_without_request_id_meets_its_twin(tpu: Tpu) -> None:
    name = unique()
    tpu.admin.duplicate_next("CreateNode", ZONE)
    with pytest.raises(exceptions.AlreadyExists):
        tpu.create_node(name)
    tpu.wait_node(name, "READY")
    codes = [call["code"] for call in tpu.admin.calls("CreateNode") if name in call["name"]]
    assert codes == ["OK", "ALREADY_EXISTS"]


def test_a_duplicate_with_a_request_id_has_one_effect(tpu: Tpu) -> None:
    request = tpu.queued_request(unique()) | {"request_id": new_request_id()}
    tpu.admin.duplicate_next("CreateQueuedResource")
    created = tpu.client.create_queued_resource(request=request).result(timeout=20)
    assert created.name == tpu.queued_name(request["queued_resource_id"])


def test_senseless_lasting_faults_are_refused(tpu: Tpu) -> None:
    admin = tpu.admin
    for arm in (
        lambda: admin.deny("Nonsense"),
        lambda: admin.deny(zone="moon-1"),
        lambda: admin.burst("*", codes=[], seconds=1),
        lambda: admin.burst("*", codes=["TEAPOT"], seconds=1),
        lambda: admin.burst("*", seconds=-1),
        lambda: admin.burst("*", seconds=1, share=0),
        lambda: admin.fail_next("GetNode", code="INTERNAL", zone="moon-1"),
        lambda: admin.clear_faults("moon-1"),
        lambda: admin.quota(ZONE, "V99", 1),
        lambda: admin.quota(ZONE, "V5P", -1),
        lambda: admin.quota(ZONE, "V5P", 8, lag=601),
        lambda: admin.fail_operation("GetNode"),
        lambda: admin.fail_operation("CreateNode", code="TEAPOT"),
        lambda: admin.slow_operation("GetNode", seconds=1),
        lambda: admin.slow_operation("CreateNode", seconds=-1),
        lambda: admin.stick_deleting("moon-1"),
        lambda: admin.stale_lists(601),
    ):
        with pytest.raises(grpc.RpcError) as caught:
            arm()
        assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT, caught.value.details()
    assert admin.faults() == []
