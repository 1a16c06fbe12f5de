"""What happens to nodes: preemption at a time or step, notices, maintenance, broken workers."""

from __future__ import annotations

from pathlib import Path

import grpc
import psutil
import pytest
from google.api_core import exceptions

from tests.tpu_emulator.support import Tpu, alive, metadata, node_body, status, unique
from tpu_emulator.testing import wait_for

SLICE = "v5litepod-16"
GENTLE = (
    "#!/bin/bash\necho boot >> boots\ntrap 'echo asked >> boots; exit' TERM\nsleep 600 & wait\n"
)


def test_the_next_node_of_a_zone_is_preempted_after_a_time(lonely: Tpu) -> None:
    tpu = lonely
    tpu.admin.preempt_after(tpu.zone, 0.0, node_state="TERMINATED")
    name = unique()
    tpu.create_queued(name)
    tpu.wait_queued(name, "SUSPENDED")
    assert tpu.node_state(name) == "TERMINATED"
    assert "READY" in [change["state"] for change in tpu.admin.history(tpu.node_name(name))]
    assert tpu.admin.faults() == []
    tpu.active()


def test_a_node_can_be_preempted_before_it_is_ready(lonely: Tpu) -> None:
    tpu, name = lonely, unique()
    tpu.admin.slow_operation("CreateNode", seconds=600)
    tpu.create_node(name)
    tpu.admin.preempt_after(tpu.zone, 0.0, since="CREATING")
    tpu.wait_node(name, "PREEMPTED")


def test_nodes_are_preempted_one_after_the_other(lonely: Tpu) -> None:
    tpu = lonely
    tpu.admin.preempt_after(tpu.zone, 0.0, node_state="GONE", count=2)
    for _ in range(2):
        name = unique()
        tpu.create_queued(name)
        tpu.wait_queued(name, "SUSPENDED")
        with pytest.raises(exceptions.NotFound):
            tpu.node_state(name)
    tpu.active()


def test_a_node_is_preempted_when_a_file_is_there(lonely: Tpu, tmp_path: Path) -> None:
    tpu = lonely
    tpu.admin.preempt_when_file(tpu.zone, f"{tmp_path}/**/step-*7/done")
    name = tpu.active()
    (tmp_path / "run" / "step-3").mkdir(parents=True)
    (tmp_path / "run" / "step-3" / "done").touch()
    other = tpu.active()
    assert tpu.queued_state(name) == "ACTIVE"
    (tmp_path / "run" / "step-17").mkdir()
    (tmp_path / "run" / "step-17" / "done").touch()
    tpu.wait_queued(name, "SUSPENDED")
    assert tpu.queued_state(other) == "ACTIVE"


def test_a_preemption_can_be_announced(lonely: Tpu) -> None:
    tpu = lonely
    name = tpu.active()
    port = tpu.worker(name)["metadata_port"]
    tpu.admin.notice(tpu.node_name(name), seconds=600)
    wait_for(lambda: metadata(port, "instance/preempted") == "TRUE")
    assert tpu.node_state(name) == "READY"
    soon = tpu.active()
    tpu.admin.notice(tpu.node_name(soon), kind="preempted", seconds=0)
    tpu.wait_queued(soon, "SUSPENDED")
    assert tpu.node_state(soon) == "PREEMPTED"


def test_an_announced_preemption_of_a_deleted_node_is_forgotten(lonely: Tpu) -> None:
    tpu = lonely
    name = tpu.active()
    tpu.admin.notice(tpu.node_name(name), seconds=600)
    tpu.delete_queued(name).result(timeout=20)
    tpu.active(name)
    assert metadata(tpu.worker(name)["metadata_port"], "instance/preempted") == "FALSE"


def test_maintenance_is_announced_and_restarts_the_node_in_its_folder(lonely: Tpu) -> None:
    tpu = lonely
    name = tpu.active(node=node_body(GENTLE))
    before = tpu.worker(name)
    boots = Path(before["directory"]) / "boots"
    wait_for(lambda: boots.exists() and boots.read_text() == "boot\n")
    path = "instance/maintenance-event"
    tpu.admin.notice(tpu.node_name(name), kind="maintenance", seconds=600)
    assert metadata(before["metadata_port"], path) == "TERMINATE_ON_HOST_MAINTENANCE"
    assert boots.read_text() == "boot\n"
    tpu.admin.notice(tpu.node_name(name), kind="maintenance", seconds=0)
    wait_for(lambda: boots.read_text() == "boot\nasked\nboot\n")
    tpu.wait_node(name, "READY")
    assert metadata(before["metadata_port"], path) == "NONE"
    assert tpu.queued_state(name) == "ACTIVE"
    assert not alive(before["pids"])
    states = [change["state"] for change in tpu.admin.history(tpu.node_name(name))]
    assert states == ["CREATING", "READY", "RESTARTING", "READY"]


def test_a_node_can_vanish_with_its_queued_resource(lonely: Tpu) -> None:
    tpu = lonely
    name = tpu.active()
    pids = wait_for(lambda: tpu.worker(name)["pids"])
    tpu.admin.vanish(tpu.node_name(name))
    tpu.wait_gone(name)
    assert not alive(pids)
    assert not Path(tpu.emulator.state_dir, "vms", tpu.zone, name).exists()
    tpu.active(name)


def test_a_node_or_a_queued_resource_alone_can_vanish(lonely: Tpu) -> None:
    tpu, node, queued = lonely, unique(), unique()
    tpu.create_node(node).result(timeout=20)
    tpu.admin.stockout(tpu.zone, shape="wait")
    operation = tpu.create_queued(queued)
    tpu.admin.vanish(node)
    tpu.admin.vanish(tpu.queued_name(queued))
    tpu.wait_gone(node)
    tpu.wait_gone(queued)
    assert operation.done()


@pytest.mark.parametrize("fault", ["no-boot", "fail", "hang"])
def test_one_worker_of_a_slice_breaks(lonely: Tpu, fault: str) -> None:
    tpu = lonely
    tpu.admin.arm_worker(tpu.zone, 2, fault)
    small = tpu.active()  # has no such worker
    assert tpu.admin.faults()
    name = tpu.active(node=node_body(accelerator_type=SLICE))
    assert tpu.admin.faults() == []
    assert tpu.worker(small)["pids"]
    if fault == "hang":
        wait_for(lambda: _is_frozen(tpu, name, 2))
    else:
        wait_for(lambda: tpu.worker(name, 2)["dead"] and not tpu.worker(name, 2)["pids"])
    for number in (0, 1, 3):
        wait_for(lambda number=number: tpu.worker(name, number)["pids"])
    assert tpu.node_state(name) == "READY"
    if fault != "hang":
        tpu.admin.reboot(tpu.node_name(name))
        wait_for(lambda: tpu.worker(name, 0)["boots"] == 2 and tpu.worker(name, 0)["pids"])
        assert tpu.worker(name, 2)["pids"] == []
    tpu.delete_queued(name)
    tpu.wait_gone(name)
    assert tpu.admin.table()["orphan_pids"] == []


def _is_frozen(tpu: Tpu, name: str, worker: int) -> bool:
    pids = tpu.worker(name, worker)["pids"]
    return bool(pids) and all(status(pid) == psutil.STATUS_STOPPED for pid in pids)


def test_senseless_disturbances_of_nodes_are_refused(lonely: Tpu) -> None:
    admin, zone = lonely.admin, lonely.zone
    name, node = lonely.active(), unique()
    admin.slow_operation("CreateNode", seconds=600)
    lonely.create_node(node)
    for disturb in (
        lambda: admin.preempt_after("moon-1", 1),
        lambda: admin.preempt_after(zone, -1),
        lambda: admin.preempt_after(zone, 1, since="DELETING"),
        lambda: admin.preempt_after(zone, 1, node_state="READY"),
        lambda: admin.preempt_when_file(zone, "relative"),
        lambda: admin.notice(name, kind="birthday"),
        lambda: admin.notice(name, seconds=-1),
        lambda: admin.notice(node, kind="maintenance"),
        lambda: admin.arm_worker(zone, -1, "fail"),
        lambda: admin.arm_worker(zone, 0, "sulk"),
        lambda: admin.vanish("nobody"),
    ):
        with pytest.raises(grpc.RpcError) as caught:
            disturb()
        assert caught.value.code() in {
            grpc.StatusCode.INVALID_ARGUMENT,
            grpc.StatusCode.FAILED_PRECONDITION,
            grpc.StatusCode.NOT_FOUND,
        }, caught.value.details()
    assert admin.faults() == []
