from __future__ import annotations

import grpc
import pytest
from google.api_core import exceptions

from tests.tpu_emulator.support import SLEEP, Tpu, node_body, unique
from tpu_emulator.testing import wait_for


@pytest.mark.parametrize("outcome", ["PREEMPTED", "TERMINATED", "GONE"])
def test_a_preempted_queued_resource_is_suspended_by_the_service(tpu: Tpu, outcome: str) -> None:
    name = tpu.active()
    tpu.admin.preempt(name, node_state=outcome)
    tpu.wait_queued(name, "SUSPENDED")
    found = tpu.client.get_queued_resource(name=tpu.queued_name(name))
    assert found.state.state_initiator.name == "SERVICE"
    if outcome == "GONE":
        with pytest.raises(exceptions.NotFound):
            tpu.node_state(name)
    else:
        assert tpu.node_state(name) == outcome
        assert tpu.entry(name)["workers"] == []
    tpu.delete_queued(name, force=False)
    tpu.wait_gone(name)


def test_the_vm_hears_of_its_preemption(tpu: Tpu) -> None:
    # No Python: on a busy machine its start takes as long as the grace period.
    script = """#!/bin/bash
report() {
  exec 3<>"/dev/tcp/${GCE_METADATA_HOST/://}"
  printf 'GET /computeMetadata/v1/instance/preempted HTTP/1.0\\r\\n' >&3
  printf 'Metadata-Flavor: Google\\r\\n\\r\\n' >&3
  echo "preempted is $(tail -n 1 <&3)"
  exit
}
trap report TERM
touch up
sleep 600 & wait
"""
    name = tpu.active(node=node_body(script))
    directory = tpu.worker(name)["directory"]
    wait_for(lambda: _exists(directory, "up"))
    tpu.admin.preempt(tpu.node_name(name))
    tpu.wait_queued(name, "SUSPENDED")
    log = tpu.emulator.state_dir / "logs" / f"us-central1-a_{name}_w0.log"
    assert "preempted is TRUE" in log.read_text()


def test_a_queued_resource_that_is_suspending_cannot_be_deleted(tpu: Tpu) -> None:
    stubborn = "#!/bin/sh\ntrap '' TERM\ntouch up\nwhile :; do sleep 0.1; done\n"
    name = tpu.active(node=node_body(stubborn))
    directory = tpu.worker(name)["directory"]
    wait_for(lambda: _exists(directory, "up"))
    tpu.admin.preempt(name)
    # The VM ignores SIGTERM, so the grace period keeps it SUSPENDING.
    with pytest.raises(exceptions.FailedPrecondition, match="SUSPENDING"):
        tpu.delete_queued(name)
    tpu.wait_queued(name, "SUSPENDED")
    tpu.delete_queued(name)
    tpu.wait_gone(name)


def test_preempting_one_slice_takes_the_whole_request(tpu: Tpu) -> None:
    name = unique("ms")
    request = tpu.queued_request(name)
    spec = request["queued_resource"]["tpu"]["node_spec"][0]
    del spec["node_id"]
    spec["multislice_params"] = {"node_count": 2, "node_id_prefix": name}
    tpu.client.create_queued_resource(request=request)
    tpu.wait_queued(name, "ACTIVE")
    tpu.admin.preempt(f"{name}-0")
    tpu.wait_queued(name, "SUSPENDED")
    assert tpu.node_state(f"{name}-1") == "PREEMPTED"


def test_a_preempted_node_without_a_queue_stays_until_it_is_deleted(tpu: Tpu) -> None:
    name = unique()
    body = node_body(SLEEP, scheduling_config={"spot": True})
    tpu.create_node(name, body).result(timeout=20)
    tpu.admin.preempt(name)
    tpu.wait_node(name, "PREEMPTED")
    wait_for(lambda: tpu.entry(name)["workers"] == [])
    with pytest.raises(grpc.RpcError, match="no running VM"):
        tpu.admin.preempt(name)
    tpu.client.delete_node(name=tpu.node_name(name)).result(timeout=20)


def test_an_unknown_node_cannot_be_preempted(tpu: Tpu) -> None:
    with pytest.raises(grpc.RpcError, match="was not found"):
        tpu.admin.preempt("nobody")


def _exists(directory: str, name: str) -> bool:
    from pathlib import Path

    return (Path(directory) / name).exists()
