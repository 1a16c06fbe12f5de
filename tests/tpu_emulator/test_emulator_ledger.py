"""The history of states, the bill, and a service whose clock differs."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import time
from pathlib import Path

import grpc
import pytest

from tests.tpu_emulator.support import Tpu, connect, node_body, unique
from tpu_emulator import billing
from tpu_emulator.testing import start_emulator, wait_for

HOUR = 3600.0


def _states(tpu: Tpu, name: str) -> list[str]:
    return [change["state"] for change in tpu.admin.history(name)]


def test_the_history_of_a_resource_outlives_it(tpu: Tpu) -> None:
    name = tpu.active()
    tpu.delete_queued(name).result(timeout=20)
    assert _states(tpu, tpu.queued_name(name)) == [
        "CREATING", "WAITING_FOR_RESOURCES", "PROVISIONING", "ACTIVE", "DELETING", "GONE",
    ]  # fmt: skip
    assert _states(tpu, tpu.node_name(name)) == ["CREATING", "READY", "DELETING", "GONE"]
    assert len(_states(tpu, name)) == 10  # both, by their common id
    with pytest.raises(grpc.RpcError, match="was not found"):
        tpu.admin.history("nobody")


def test_namesakes_have_lives_of_their_own(tpu: Tpu) -> None:
    name = unique()
    for _ in range(2):
        tpu.create_node(name).result(timeout=20)
        tpu.client.delete_node(name=tpu.node_name(name)).result(timeout=20)
    changes = tpu.admin.history(tpu.node_name(name))
    lives = [change["life"] for change in changes if change["state"] == "READY"]
    assert len(set(lives)) == 2
    assert len([row for row in tpu.admin.bill()["nodes"] if row["node_id"] == name]) == 2


def test_the_bill_prices_the_seconds_of_every_node(state_folder: Path) -> None:
    prices = {"v5litepod-8": "1.5", "v5litepod-16": "2"}
    with start_emulator(state_folder, price=prices) as emulator, connect(emulator) as tpu:
        gone = tpu.active(node=node_body(labels={"run": "a"}))
        tpu.delete_queued(gone).result(timeout=20)
        running = tpu.active(node=node_body(accelerator_type="v5litepod-16"))
        unpriced, refused = unique(), unique()
        tpu.create_node(unpriced, node_body(accelerator_type="v5litepod-1")).result(timeout=20)
        tpu.admin.fail_operation("CreateNode")
        tpu.create_node(refused).exception(timeout=20)
        bill = tpu.admin.bill()
        rows = {row["node_id"]: row for row in bill["nodes"]}
        assert rows[gone]["labels"] == {"run": "a"}
        assert rows[gone]["tier"] == "spot"
        assert not rows[gone]["running"]
        assert rows[gone]["node_seconds"] > 0
        assert rows[gone]["chip_seconds"] == rows[gone]["node_seconds"] * 8
        assert rows[gone]["cost"] == pytest.approx(rows[gone]["chip_seconds"] / HOUR * 1.5)
        assert rows[running]["running"]
        assert rows[unpriced]["tier"] == "on-demand"
        assert rows[unpriced]["cost"] == 0
        assert rows[refused]["node_seconds"] == 0
        assert bill["cost"] == pytest.approx(rows[gone]["cost"] + rows[running]["cost"])
        emulator.kill()
        emulator.start()
        later = {row["node_id"]: row for row in emulator.admin.bill()["nodes"]}
        assert later[gone]["node_seconds"] == rows[gone]["node_seconds"]
        assert later[running]["node_seconds"] > rows[running]["node_seconds"]


def test_a_preempted_node_costs_nothing_more(lonely: Tpu) -> None:
    tpu = lonely
    name = tpu.active()
    tpu.admin.preempt(tpu.node_name(name))
    tpu.wait_queued(name, "SUSPENDED")
    [row] = [row for row in tpu.admin.bill()["nodes"] if row["node_id"] == name]
    assert not row["running"]


@pytest.mark.parametrize(
    ("price", "problem"),
    [
        ({"v99": "1"}, "v99=1: unknown accelerator type; known: .*v5p-8"),
        ({"v5p-8": "much"}, "much"),
        ({"v5p-8": "-1"}, "v5p-8=-1: a price is not negative"),
    ],
)
def test_a_price_that_is_none_is_an_error(price: dict[str, str], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        billing.prices(price)


@pytest.mark.thorough
def test_a_price_that_is_none_is_refused(state_folder: Path) -> None:
    for price in ({"v99": "1"}, {"v5p-8": "much"}, {"v5p-8": "-1"}):
        with (
            pytest.raises(RuntimeError, match="did not start"),
            start_emulator(state_folder, price=price),
        ):
            pass


@pytest.mark.parametrize("skew", [pytest.param(-HOUR, marks=pytest.mark.thorough), HOUR])
def test_the_clock_of_the_service_may_differ(state_folder: Path, skew: float) -> None:
    with start_emulator(state_folder, clock_skew=skew) as emulator, connect(emulator) as tpu:
        name = unique()
        operation = tpu.create_queued(name, queueing_policy={"valid_until_duration": "600s"})
        tpu.wait_queued(name, "ACTIVE")
        queued = tpu.client.get_queued_resource(name=tpu.queued_name(name))
        node = tpu.client.get_node(name=tpu.node_name(name))
        times = [queued.create_time, node.create_time, operation.metadata.create_time]
        for created in times:
            assert abs(created.timestamp() - time.time() - skew) < HOUR / 2
        # A deadline that the client takes from its own clock is in the past or far away there.
        late = unique()
        policy = {"valid_until_time": {"seconds": int(time.time()) + 600}}
        tpu.admin.stockout(tpu.zone, shape="wait")
        tpu.create_queued(late, queueing_policy=policy)
        tpu.wait_queued(late, "FAILED" if skew > 0 else "WAITING_FOR_RESOURCES")


@pytest.mark.thorough
def test_the_state_of_another_version_is_refused(state_folder: Path) -> None:
    with start_emulator(state_folder) as emulator:
        emulator.stop()
        database = emulator.state_dir / "emulator.sqlite"
        with contextlib.closing(sqlite3.connect(database)) as connection:
            connection.execute("PRAGMA user_version = 1")
        with pytest.raises(RuntimeError, match=f"delete the folder {emulator.state_dir}"):
            emulator.start()
        shutil.rmtree(emulator.state_dir)
        emulator.start()
        wait_for(lambda: emulator.admin.table()["nodes"] == [])
