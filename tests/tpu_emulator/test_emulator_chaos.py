"""Random disturbances: the same for the same seed, and nothing survives them."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest
from google.api_core import exceptions

from tests.tpu_emulator.support import Tpu, connect, unique
from tpu_emulator.chaos import KINDS
from tpu_emulator.testing import start_emulator, wait_for


def test_a_seed_decides_what_happens(tpu: Tpu) -> None:
    plan = tpu.admin.chaos_plan(7, events=200)
    assert tpu.admin.chaos_plan(7, events=200) == plan
    assert tpu.admin.chaos_plan(8, events=200) != plan
    assert {event["kind"] for event in plan} == set(KINDS)
    assert [event["at"] for event in plan] == sorted(event["at"] for event in plan)
    few = tpu.admin.chaos_plan(7, "us-west4-a", kinds=["stockout"], events=3)
    assert [event["kind"] for event in few] == ["stockout"] * 3
    assert {event["arguments"]["zone"] for event in few} == {"us-west4-a"}


def test_the_plan_of_a_seed_is_carried_out(lonely: Tpu) -> None:
    tpu = lonely
    kinds = ["stockout", "stick-deleting"]
    planned = tpu.admin.chaos_plan(3, tpu.zone, kinds=kinds, events=4)
    tpu.admin.chaos(3, tpu.zone, mean_seconds=0.05, kinds=kinds, events=4)
    wait_for(lambda: not [f for f in tpu.admin.faults() if f["kind"] == "chaos"])
    armed = [fault["kind"].removesuffix("-deleting") for fault in tpu.admin.faults()]
    expected = {"stockout": "stockout", "stick-deleting": "stuck"}
    assert armed == [expected[event["kind"]] for event in planned]


def test_nodes_are_disturbed(lonely: Tpu) -> None:
    tpu = lonely
    tpu.active()
    tpu.admin.chaos(1, tpu.zone, mean_seconds=0.2, kinds=["vanish"])
    wait_for(lambda: not tpu.names_in_zone())
    [fault] = tpu.admin.faults()
    assert fault["kind"] == "chaos"
    assert tpu.admin.clear_faults(tpu.zone) == 1


@pytest.mark.thorough
def test_the_schedule_goes_on_after_a_restart(state_folder: Path) -> None:
    with start_emulator(state_folder) as emulator:
        emulator.admin.chaos(1, mean_seconds=0.3, kinds=["stockout"], events=6)
        wait_for(lambda: len(emulator.admin.faults()) > 2)
        emulator.kill()
        emulator.start()
        wait_for(lambda: [f["kind"] for f in emulator.admin.faults()] == ["stockout"] * 6)


def test_nothing_is_left_when_the_disturbances_end(state_folder: Path) -> None:
    """Whatever the emulator does to a client that creates and deletes, it forgets nothing."""
    with start_emulator(state_folder) as emulator, connect(emulator) as tpu:
        emulator.admin.chaos(11, tpu.zone, mean_seconds=0.1)
        for _ in range(12):
            name = unique()
            for call in (tpu.create_queued, tpu.create_node, tpu.delete_queued):
                _try(call, name)
        emulator.admin.clear_faults()
        wait_for(lambda: _delete_all(tpu), timeout=90)
        table = emulator.admin.table()
        assert table == {"queued_resources": [], "nodes": [], "orphan_pids": []}
        assert {row["running"] for row in emulator.admin.bill()["nodes"]} <= {False}


def _try(call: object, name: str) -> None:
    assert callable(call)
    try:
        call(name)
    except exceptions.GoogleAPICallError:
        return


def _delete_all(tpu: Tpu) -> bool:
    names = tpu.names_in_zone()
    for name in names:
        try:
            if "/nodes/" in name:
                tpu.client.delete_node(name=name)
            else:
                tpu.client.delete_queued_resource(request={"name": name, "force": True})
        except exceptions.GoogleAPICallError:
            continue  # busy; the next round
    return not names


@pytest.mark.parametrize(
    "arguments",
    [{"kinds": ["earthquake"]}, {"zone": "moon-1"}, {"mean_seconds": 0.0}, {"events": 0}],
)
def test_senseless_chaos_is_refused(tpu: Tpu, arguments: dict[str, object]) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        tpu.admin.chaos(1, **arguments)  # type: ignore[arg-type] # one wrong value each
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
