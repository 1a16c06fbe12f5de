from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from google.api_core import exceptions

from tests.tpu_emulator.support import (
    Tpu,
    alive,
    connect,
    metadata,
    new_request_id,
    node_body,
    status,
)
from tpu_emulator.testing import RunningEmulator, start_emulator, wait_for

COUNT_BOOTS = "#!/bin/sh\necho boot >> boots\nexec sleep 600\n"


def _boots(tpu: Tpu, name: str) -> str:
    path = Path(tpu.worker(name)["directory"]) / "boots"
    wait_for(lambda: path.exists() and path.read_text())
    return path.read_text()


def _restart(emulator: RunningEmulator) -> None:
    emulator.kill()
    emulator.start()


def test_a_killed_emulator_adopts_the_vms_that_live_on(state_folder: Path) -> None:
    with start_emulator(state_folder) as emulator:
        with connect(emulator) as tpu:
            name = tpu.active(node=node_body(COUNT_BOOTS))
            assert _boots(tpu, name) == "boot\n"
            before = tpu.worker(name)
        _restart(emulator)
        assert alive(before["pids"]) == before["pids"]
        with connect(emulator) as tpu:
            assert tpu.worker(name) == before
            assert metadata(before["metadata_port"], "instance/name") == f"{name}-w-0"
            assert tpu.queued_state(name) == "ACTIVE"
            tpu.delete_queued(name)
            tpu.wait_gone(name)
        assert not alive(before["pids"])


def test_vms_that_died_meanwhile_are_booted_again_in_their_folder(state_folder: Path) -> None:
    with start_emulator(state_folder) as emulator:
        with connect(emulator) as tpu:
            name = tpu.active(node=node_body(COUNT_BOOTS))
            _boots(tpu, name)
            before = tpu.worker(name)
        emulator.kill()
        for pid in before["pids"]:
            psutil.Process(pid).kill()
        emulator.start()
        with connect(emulator) as tpu:
            wait_for(lambda: _boots(tpu, name) == "boot\nboot\n")
            after = tpu.worker(name)
            assert after["metadata_port"] == before["metadata_port"]
            assert after["boots"] == 2
            assert tpu.node_state(name) == "READY"


def test_a_stopped_emulator_leaves_no_process_and_boots_its_nodes_at_the_next_start(
    state_folder: Path,
) -> None:
    with start_emulator(state_folder) as emulator:
        with connect(emulator) as tpu:
            name = tpu.active(node=node_body(COUNT_BOOTS))
            _boots(tpu, name)
            pids = tpu.worker(name)["pids"]
        emulator.stop()
        assert pids
        assert not alive(pids)
        emulator.start()
        with connect(emulator) as tpu:
            wait_for(lambda: _boots(tpu, name) == "boot\nboot\n")


@pytest.mark.thorough
def test_an_emulator_told_to_keep_them_leaves_the_vms_running(state_folder: Path) -> None:
    with start_emulator(state_folder, on_exit="keep") as emulator:
        with connect(emulator) as tpu:
            name = tpu.active(node=node_body(COUNT_BOOTS))
            _boots(tpu, name)
            before = tpu.worker(name)
        emulator.stop()
        assert alive(before["pids"]) == before["pids"]
        emulator.start()
        with connect(emulator) as tpu:
            assert tpu.worker(name) == before


@pytest.mark.thorough
def test_a_vm_whose_script_has_ended_is_not_booted_again(state_folder: Path) -> None:
    with start_emulator(state_folder) as emulator:
        with connect(emulator) as tpu:
            name = tpu.active(node=node_body("#!/bin/sh\nexit 4\n"))
            wait_for(lambda: tpu.worker(name)["startup_script_exit"] == 4)
        _restart(emulator)
        with connect(emulator) as tpu:
            assert tpu.worker(name)["boots"] == 1


@pytest.mark.thorough
def test_a_metadata_port_taken_meanwhile_makes_the_vm_boot_with_another(
    state_folder: Path,
) -> None:
    import socket

    with start_emulator(state_folder) as emulator:
        with connect(emulator) as tpu:
            name = tpu.active(node=node_body(COUNT_BOOTS))
            _boots(tpu, name)
            before = tpu.worker(name)
        emulator.kill()
        with socket.socket() as thief:
            thief.bind(("127.0.0.1", before["metadata_port"]))
            thief.listen()
            emulator.start()
            with connect(emulator) as tpu:
                wait_for(lambda: _boots(tpu, name) == "boot\nboot\n")
                after = tpu.worker(name)
        assert after["metadata_port"] != before["metadata_port"]
        assert not alive(before["pids"])


@pytest.mark.thorough
def test_what_was_under_way_goes_on_after_a_kill(state_folder: Path) -> None:
    with start_emulator(state_folder, boot_delay=2.0, delete_delay=2.0) as emulator:
        with connect(emulator) as tpu:
            request = tpu.queued_request("n") | {"request_id": new_request_id()}
            operation = tpu.client.create_queued_resource(request=request)
            tpu.wait_queued("n", "PROVISIONING")
        _restart(emulator)
        with connect(emulator) as tpu:
            tpu.wait_queued("n", "ACTIVE")
            replay = tpu.client.create_queued_resource(request=request)
            assert replay.operation.name == operation.operation.name
            tpu.delete_queued("n")
        _restart(emulator)
        with connect(emulator) as tpu:
            tpu.wait_gone("n")
            assert tpu.admin.calls("DeleteQueuedResource")[-1]["code"] == "OK"


@pytest.mark.thorough
@pytest.mark.parametrize("outcome", ["PREEMPTED", "GONE"])
def test_a_preemption_under_way_goes_on_after_a_kill(state_folder: Path, outcome: str) -> None:
    stubborn = "#!/bin/sh\ntrap '' TERM\ntouch up\nwhile :; do sleep 0.1; done\n"
    with start_emulator(state_folder, vm_grace=3.0) as emulator:
        with connect(emulator) as tpu:
            name = tpu.active(node=node_body(stubborn))
            up = Path(tpu.worker(name)["directory"]) / "up"
            wait_for(up.exists)
            pids = tpu.worker(name)["pids"]
            tpu.admin.preempt(name, node_state=outcome)
            tpu.wait_queued(name, "SUSPENDING")
        _restart(emulator)
        with connect(emulator) as tpu:
            tpu.wait_queued(name, "SUSPENDED")
        assert pids
        assert not alive(pids)


def test_armed_faults_survive(state_folder: Path) -> None:
    with start_emulator(state_folder) as emulator:
        emulator.admin.lose_reply("CreateNode", count=2)
        _restart(emulator)
        assert [fault["remaining"] for fault in emulator.admin.faults()] == [2]


def test_a_deletion_that_is_stuck_stays_so(state_folder: Path) -> None:
    with start_emulator(state_folder) as emulator, connect(emulator) as tpu:
        name = tpu.active(node=node_body(COUNT_BOOTS))
        emulator.admin.stick_deleting(tpu.zone)
        tpu.delete_queued(name)
        _restart(emulator)
        assert wait_for(lambda: tpu.queued_state(name)) == "DELETING"
        assert emulator.admin.unstick() == 1
        tpu.wait_gone(name)


@pytest.mark.thorough
def test_armed_preemptions_and_notices_survive(state_folder: Path, tmp_path: Path) -> None:
    mark = tmp_path / "checkpoint"
    with start_emulator(state_folder) as emulator, connect(emulator) as tpu:
        name = tpu.active(node=node_body(COUNT_BOOTS))
        emulator.admin.preempt_when_file(tpu.zone, str(mark))
        emulator.admin.notice(name, seconds=600)
        _restart(emulator)
        port = tpu.worker(name)["metadata_port"]
        assert metadata(port, "instance/preempted") == "TRUE"
        mark.touch()
        tpu.wait_queued(name, "SUSPENDED")


@pytest.mark.thorough
@pytest.mark.parametrize("fault", ["no-boot", "fail", "hang"])
def test_a_node_with_a_broken_worker_is_adopted_as_it_is(state_folder: Path, fault: str) -> None:
    with start_emulator(state_folder) as emulator, connect(emulator) as tpu:
        emulator.admin.arm_worker(tpu.zone, 1, fault)
        name = tpu.active(node=node_body(COUNT_BOOTS, accelerator_type="v5litepod-16"))
        if fault == "hang":
            wait_for(lambda: _is_frozen(tpu.worker(name, 1)["pids"]))
        else:
            wait_for(lambda: tpu.worker(name, 1)["dead"] and not tpu.worker(name, 1)["pids"])
        wait_for(lambda: all(tpu.worker(name, number)["pids"] for number in (0, 2, 3)))
        before = tpu.entry(name)
        _restart(emulator)
        assert wait_for(lambda: tpu.entry(name)) == before
        if fault == "hang":
            assert _is_frozen(tpu.worker(name, 1)["pids"])


def _is_frozen(pids: list[int]) -> bool:
    return bool(pids) and all(status(pid) == psutil.STATUS_STOPPED for pid in pids)


@pytest.mark.thorough
def test_a_late_operation_and_its_planned_failure_survive(state_folder: Path) -> None:
    with start_emulator(state_folder) as emulator, connect(emulator) as tpu:
        emulator.admin.slow_operation("CreateNode", seconds=2.0)
        emulator.admin.fail_operation("CreateNode", code="INTERNAL", after_effect=True)
        operation = tpu.create_node("n", node_body(COUNT_BOOTS))
        _restart(emulator)
        tpu.wait_node("n", "READY")
        wait_for(operation.done)
        assert operation.exception().grpc_status_code.name == "INTERNAL"


@pytest.mark.thorough
def test_the_emulator_can_be_told_to_crash_and_come_back(state_folder: Path) -> None:
    with start_emulator(state_folder) as emulator, connect(emulator) as tpu:
        name = tpu.active(node=node_body(COUNT_BOOTS))
        _boots(tpu, name)
        before = tpu.worker(name)
        emulator.admin.delay_next("ListNodes", seconds=600)
        with ThreadPoolExecutor(1) as pool:
            in_flight = pool.submit(tpu.client.list_nodes, parent=tpu.parent, timeout=60)
            wait_for(lambda: emulator.admin.calls("ListNodes"))
            emulator.admin.restart(seconds=0.5)
            with pytest.raises(exceptions.ServiceUnavailable):
                in_flight.result(timeout=60)
        log = emulator.log.read_text
        wait_for(lambda: log().count("serving the Cloud TPU v2 API") == 2)
        assert emulator.is_running
        assert tpu.worker(name) == before
        tpu.delete_queued(name)
        tpu.wait_gone(name)
        assert not alive(before["pids"])
