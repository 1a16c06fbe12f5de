from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from unittest import mock

import pytest
from google.cloud import tpu_v2

from pipeline_store.formats import Attempt, AttemptEvent, Reservation
from tests.tpu_lifecycle.world import OTHER_ZONE, ZONE, World, connect_to
from tpu_agent import own_tpu
from tpu_emulator.testing import wait_for
from tpu_lifecycle.service import cloud_messages, cloud_tpu, labels
from tpu_lifecycle.service.backend import TpuName, TpuState, TpuUnavailableError
from tpu_lifecycle.service.cloud_tpu import CloudTpuBackend, connect
from tpu_lifecycle.service.labels import TpuLabels, label_value, owner_label

MOMENT = datetime(2026, 1, 31, 12, tzinfo=UTC)


def test_an_absent_tpu_is_a_state(world: World) -> None:
    name = TpuName(ZONE, "bert-absent-g1-a1")
    assert world.backend.describe(name) == TpuState(name)
    world.backend.delete(name)  # no error


def test_a_list_that_leaves_out_a_place_is_an_error_not_a_shorter_list() -> None:
    # The emulator has no unreachable places, so the reply is made here.
    page = SimpleNamespace(unreachable=["us-central1-a"], queued_resources=[])
    client = SimpleNamespace(list_queued_resources=lambda **_: SimpleNamespace(pages=[page]))
    with (
        mock.patch.object(cloud_tpu, "PAUSES_SECONDS", ()),
        pytest.raises(TpuUnavailableError, match="cannot see"),
    ):
        CloudTpuBackend(client, "p").list_zone(ZONE, {})


def test_an_emulator_needs_an_endpoint() -> None:
    with pytest.raises(ValueError, match="endpoint of an emulator"):
        connect(project_id="p", insecure=True)


def test_each_backend_has_a_channel_of_its_own(world: World) -> None:
    other = connect_to(world.emulator)
    other.close()  # type: ignore[attr-defined]
    assert not world.backend.describe(TpuName(ZONE, "x")).exists


def test_lists_are_selected_by_label(world: World) -> None:
    reservation = world.reserve({"tpu.zones": [ZONE, OTHER_ZONE]})
    for number, zone in enumerate([ZONE, ZONE, ZONE, OTHER_ZONE], start=1):
        record = reservation.new_attempt(number, zone)
        world.backend.create(world.request(reservation, record))
        record.mark(AttemptEvent.ANSWERED)
    wanted = labels.run_labels(reservation.record)
    found = world.backend.list_zone(ZONE, wanted)
    assert [state.labels["attempt"] for state in found] == ["1", "2", "3"]
    assert world.backend.list_zone(ZONE, wanted | {"attempt": "2"})[0].name == found[1].name
    assert world.backend.list_zone(ZONE, owner_label("nobody")) == []
    world.release(reservation)


def test_a_read_survives_a_moment_without_service_but_not_for_ever(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cloud_tpu, "PAUSES_SECONDS", (0.01, 0.01))
    name = TpuName(ZONE, "bert-absent-g1-a1")
    world.emulator.admin.fail_next("GetQueuedResource", code="UNAVAILABLE", count=2)
    assert not world.backend.describe(name).exists
    world.emulator.admin.fail_next("GetQueuedResource", code="UNAVAILABLE", count=3)
    with pytest.raises(TpuUnavailableError, match="GetQueuedResource"):
        world.backend.describe(name)


def test_a_node_without_its_queued_resource_is_found_and_deleted(world: World) -> None:
    client = world.backend._client  # type: ignore[attr-defined]
    name = TpuName(ZONE, "bert-stray-g1-a1")
    client.create_node(
        parent=world.emulator.parent(ZONE),
        node_id=name.resource_id,
        node={
            "accelerator_type": "v5litepod-1",
            "runtime_version": "v2-alpha-tpuv5-lite",
            "labels": owner_label("stray-owner"),
        },
    )
    [state] = wait_for(lambda: world.backend.list_zone(ZONE, owner_label("stray-owner")))
    assert (state.name, state.queued_resource) == (name, None)
    wait_for(lambda: world.backend.describe(name).is_ready)
    assert world.sweeper().delete([name]).keys() == {name}


def test_a_vm_that_may_only_delete_nodes_ends_the_bill(world: World) -> None:
    reservation = world.reserve()
    record = world.obtain_ready(reservation)
    path = world.backend.resource_path(record.name)
    world.emulator.admin.deny("DeleteQueuedResource", ZONE, caller=own_tpu.USER_AGENT)
    said = own_tpu.delete(path, record.attempt.node_id, [], world.emulator.endpoint)
    assert f"nodes/{record.attempt.node_id} alone, as it does not delete {path}" in said
    assert "PERMISSION_DENIED" in said or "PermissionDenied" in said
    wait_for(lambda: not world.nodes())
    world.release(reservation)


def test_a_vm_asks_googles_service_for_queue_and_node_and_an_emulator_for_nothing() -> None:
    name, parent = TpuName(ZONE, "q"), f"https://tpu.googleapis.com/v2/projects/p/locations/{ZONE}"
    backend = CloudTpuBackend(None, "p")
    node = f"{parent}/nodes/{{node}}"
    assert backend.vm_deletions(name) == [f"{parent}/queuedResources/q?force=true", node]
    assert backend.vm_deletions(name, "nodes") == [node]
    assert CloudTpuBackend(None, "p", vm_endpoint="unix:/x").vm_deletions(name) == []


def test_labels_are_taken_from_the_node_when_the_request_shows_none() -> None:
    name = TpuName(ZONE, "q")
    node = tpu_v2.Node(labels={"owner": "us", "attempt": "1"})
    bare = tpu_v2.QueuedResource(tpu={"node_spec": [{"node_id": "q"}]})
    assert cloud_messages.state(name, bare, [node]).labels == {"owner": "us", "attempt": "1"}
    spec = {"node_id": "q", "node": {"labels": {"owner": "us"}}}
    asked = tpu_v2.QueuedResource(tpu={"node_spec": [spec]})
    assert cloud_messages.state(name, asked, []).labels == {"owner": "us"}


def test_label_values_hold_only_what_labels_may() -> None:
    assert label_value("Team Ä/1") == "team---1"
    assert len(label_value("x" * 100)) == 63
    reservation = Reservation(
        run_key="0a1b2c3d4e5f",
        generation=2,
        project_id="p",
        zones=[ZONE],
        owner="Team A",
        dag_id="My.DAG",
        accelerator_type="v5litepod-1",
        bundle_sha256="0",
        created=MOMENT,
        expires_at=MOMENT,
        delete_grace_seconds=90.0,
        price_per_chip_hour=1.2,
        currency="USD",
        price_date="2026-01",
    )
    attempt = Attempt(
        run_key="0a1b2c3d4e5f",
        generation=2,
        attempt=3,
        token="t",  # noqa: S106
        zone=ZONE,
        queued_resource_id="q",
        node_id="q",
        created=MOMENT,
    )
    written = labels.attempt_labels(reservation, attempt)
    assert written["owner"] == "team-a"
    assert TpuLabels.parse(written) == TpuLabels(
        run_key="0a1b2c3d4e5f", generation=2, attempt=3, expires_at=MOMENT
    )
    with pytest.raises(ValueError, match="as we write them"):
        TpuLabels.parse({"owner": "team-a"})
