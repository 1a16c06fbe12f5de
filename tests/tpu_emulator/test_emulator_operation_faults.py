"""Quota, operations that fail or take long, deletions that hang, lists that lag."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from google.api_core import exceptions

from tests.tpu_emulator.support import Tpu, alive, new_request_id, node_body, unique
from tpu_emulator.testing import wait_for


def _listed(tpu: Tpu) -> list[str]:
    found = tpu.client.list_queued_resources(parent=tpu.parent, timeout=20)
    return [queued.name.rpartition("/")[2] for queued in found]


def test_a_create_beyond_the_quota_is_refused_until_something_is_deleted(lonely: Tpu) -> None:
    tpu = lonely
    tpu.admin.quota(tpu.zone, "V5LITE_POD", 16)
    first, second, third = unique(), unique(), unique()
    tpu.active(first)
    tpu.create_node(second).result(timeout=20)
    with pytest.raises(exceptions.ResourceExhausted, match="Quota limit 'TPUV5LitePodPerProject"):
        tpu.create_queued(third)
    with pytest.raises(exceptions.ResourceExhausted, match="Limit: 16 in zone us-west4-a"):
        tpu.create_node(third)
    tpu.client.delete_node(name=tpu.node_name(second)).result(timeout=20)
    tpu.active(third)


def test_a_preempted_request_keeps_its_quota(lonely: Tpu) -> None:
    tpu = lonely
    tpu.admin.quota(tpu.zone, "V5LITE_POD", 8)
    name = tpu.active()
    tpu.admin.preempt(tpu.node_name(name), node_state="GONE")
    tpu.wait_queued(name, "SUSPENDED")
    with pytest.raises(exceptions.ResourceExhausted):
        tpu.create_queued(unique())
    tpu.delete_queued(name).result(timeout=20)
    tpu.active()


def test_what_is_deleted_counts_until_the_accounting_knows(lonely: Tpu) -> None:
    tpu = lonely
    tpu.delete_queued(tpu.active()).result(timeout=20)
    tpu.admin.quota(tpu.zone, "V5LITE_POD", 8, lag=2.0)
    node = unique()
    for create in (tpu.create_queued, tpu.create_node):
        with pytest.raises(exceptions.ResourceExhausted, match="Limit: 8"):
            create(node)

    def accepted() -> bool:
        try:
            return bool(tpu.create_node(node))
        except exceptions.ResourceExhausted:
            return False

    wait_for(accepted)


def test_a_quota_is_replaced_and_lifted_and_limited_to_its_zone(lonely: Tpu, tpu: Tpu) -> None:
    lonely.admin.quota(lonely.zone, "V5LITE_POD", 0)
    lonely.admin.quota(lonely.zone, "v5litepod", 4)
    assert [fault["details"]["chips"] for fault in lonely.admin.faults()] == [4]
    tpu.active()
    with pytest.raises(exceptions.ResourceExhausted):
        lonely.create_queued(unique())
    lonely.create_queued(unique(), node_body(accelerator_type="v5litepod-4"))
    lonely.admin.quota(lonely.zone, "V5LITE_POD", None)
    lonely.active()


def test_the_operation_of_a_create_can_fail(lonely: Tpu) -> None:
    tpu = lonely
    tpu.admin.fail_operation("CreateNode", code="INTERNAL", message="a bad day", zone=tpu.zone)
    node = unique()
    with pytest.raises(exceptions.InternalServerError, match="a bad day"):
        tpu.create_node(node).result(timeout=20)
    with pytest.raises(exceptions.NotFound):
        tpu.node_state(node)
    tpu.admin.fail_operation("CreateQueuedResource")
    queued = unique()
    with pytest.raises(exceptions.InternalServerError):
        tpu.create_queued(queued).result(timeout=20)
    found = tpu.client.get_queued_resource(name=tpu.queued_name(queued))
    assert found.state.state.name == "FAILED"
    assert found.state.failed_data.error.message == "INTERNAL injected by the admin service"


def test_a_create_can_say_that_it_failed_though_the_vm_comes(lonely: Tpu) -> None:
    tpu = lonely
    tpu.admin.fail_operation("*", after_effect=True, count=2)
    node, queued = unique(), unique()
    with pytest.raises(exceptions.InternalServerError):
        tpu.create_node(node).result(timeout=20)
    assert tpu.node_state(node) == "READY"
    with pytest.raises(exceptions.InternalServerError):
        tpu.create_queued(queued).result(timeout=20)
    tpu.wait_queued(queued, "ACTIVE")


@pytest.mark.parametrize("after_effect", [False, True])
def test_the_operation_of_a_delete_can_fail(lonely: Tpu, after_effect: bool) -> None:
    tpu = lonely
    name = tpu.active()
    pids = wait_for(lambda: tpu.worker(name)["pids"])
    tpu.admin.fail_operation("DeleteQueuedResource", code="ABORTED", after_effect=after_effect)
    with pytest.raises(exceptions.Aborted):
        tpu.delete_queued(name).result(timeout=20)
    if after_effect:
        tpu.wait_gone(name)
        assert not alive(pids)
    else:
        assert tpu.queued_state(name) == "ACTIVE"
        assert alive(pids) == pids
        tpu.delete_queued(name).result(timeout=20)


def test_every_other_operation_can_fail_without_an_effect(lonely: Tpu) -> None:
    tpu, node = lonely, unique()
    tpu.create_node(node).result(timeout=20)
    queued = tpu.active()
    for method, call, argument in (
        ("StopNode", tpu.client.stop_node, {"name": tpu.node_name(node)}),
        ("DeleteNode", tpu.client.delete_node, {"name": tpu.node_name(node)}),
        (
            "ResetQueuedResource",
            tpu.client.reset_queued_resource,
            {"name": tpu.queued_name(queued)},
        ),
    ):
        tpu.admin.fail_operation(method)
        _fails(call, argument)
    assert tpu.node_state(node) == "READY"
    assert tpu.queued_state(queued) == "ACTIVE"
    tpu.client.stop_node(request={"name": tpu.node_name(node)}).result(timeout=20)
    tpu.admin.fail_operation("StartNode")
    _fails(tpu.client.start_node, {"name": tpu.node_name(node)})
    assert tpu.node_state(node) == "STOPPED"


def _fails(call: Callable[..., Any], request: dict[str, str]) -> None:
    with pytest.raises(exceptions.InternalServerError):
        call(request=request, timeout=20).result(timeout=20)


def test_an_operation_can_be_slow(lonely: Tpu) -> None:
    tpu, name = lonely, unique()
    tpu.admin.slow_operation("CreateNode", seconds=600, zone=tpu.zone)
    operation = tpu.create_node(name)
    other = unique()
    tpu.create_node(other).result(timeout=20)
    assert tpu.node_state(name) == "CREATING"
    assert not operation.done()


def test_a_deletion_can_be_stuck_until_it_is_freed(lonely: Tpu) -> None:
    tpu = lonely
    name, other = tpu.active(), tpu.active()
    pids = wait_for(lambda: tpu.worker(name)["pids"])
    tpu.admin.stick_deleting(tpu.zone)
    tpu.delete_queued(name)
    tpu.delete_queued(other).result(timeout=20)
    assert tpu.queued_state(name) == "DELETING"
    assert alive(pids) == pids
    with pytest.raises(exceptions.Aborted, match="DELETING"):
        tpu.delete_queued(name)
    assert tpu.admin.unstick("us-south1-a") == 0
    assert tpu.admin.unstick(tpu.zone) == 1
    tpu.wait_gone(name)
    assert not alive(pids)


def test_a_deletion_can_be_stuck_for_a_time_and_clearing_frees_it(lonely: Tpu) -> None:
    tpu, node = lonely, unique()
    tpu.create_node(node).result(timeout=20)
    tpu.admin.stick_deleting(tpu.zone, seconds=600)
    operation = tpu.client.delete_node(name=tpu.node_name(node))
    assert tpu.node_state(node) == "DELETING"
    tpu.admin.clear_faults(tpu.zone)
    operation.result(timeout=20)


def test_lists_can_lag_behind(lonely: Tpu) -> None:
    tpu = lonely
    old = tpu.active()
    wait_for(lambda: _listed(tpu) == [old])
    tpu.admin.stale_lists(600, zone=tpu.zone)
    new = tpu.active()
    tpu.delete_queued(old).result(timeout=20)
    # Ten minutes ago there was neither; a get knows better.
    assert _listed(tpu) == []
    assert list(tpu.client.list_nodes(parent=tpu.parent)) == []
    assert tpu.queued_state(new) == "ACTIVE"
    tpu.admin.clear_faults(tpu.zone)
    assert _listed(tpu) == [new]


def test_a_lagging_list_shows_what_is_deleted_and_states_of_before(lonely: Tpu) -> None:
    tpu = lonely
    name = tpu.active()
    tpu.admin.stale_lists(1.0, zone=tpu.zone)
    wait_for(lambda: _states(tpu) == {name: "ACTIVE"})
    tpu.delete_queued(name, request_id=new_request_id()).result(timeout=20)
    with pytest.raises(exceptions.NotFound):
        tpu.queued_state(name)
    wait_for(lambda: _states(tpu) == {})


def _states(tpu: Tpu) -> dict[str, str]:
    found = tpu.client.list_queued_resources(parent=tpu.parent, timeout=20)
    return {queued.name.rpartition("/")[2]: queued.state.state.name for queued in found}
