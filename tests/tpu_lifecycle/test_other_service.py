"""Another TPU service: whatever rents, deletes and checks works with it through its backend."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pipeline_config import load_preset, with_overrides
from pipeline_store.formats import AttemptEvent
from pipeline_store.layout import StoreLayout
from preflight.cloud import account
from preflight.cloud.apis import GoogleApis
from preflight.cloud.site import Site
from preflight.cloud.tpu_service import read_offer, tpu_rows
from tests.serving import serving
from tests.tpu_lifecycle.sheds import ACCOUNT, FACTS, ShedBackend, Sheds
from tests.tpu_lifecycle.world import OWNER, ZONE, write_run
from tpu_agent import own_tpu
from tpu_lifecycle.__main__ import main
from tpu_lifecycle.boot import boot
from tpu_lifecycle.boot.launcher import boot_metadata
from tpu_lifecycle.control.observe import ReadyWatch
from tpu_lifecycle.control.provisioning import Provisioner
from tpu_lifecycle.control.release import Sweeper, release
from tpu_lifecycle.records.attempts import AttemptRecord
from tpu_lifecycle.records.reservation import OpenReservation, reserve
from tpu_lifecycle.service import connecting
from tpu_lifecycle.service.backend import TpuBackend

ROOT = Path(__file__).parents[2]
PROJECT = "sheds-1"


@pytest.fixture
def sheds(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sheds]:
    """Let the service be another one, in the one place that says which it is."""
    with serving(Sheds()) as sheds:
        monkeypatch.setattr(connecting, "connect", lambda **_: ShedBackend(sheds, PROJECT))
        monkeypatch.setattr(connecting, "facts", lambda: FACTS)
        yield sheds


@pytest.fixture
def store(tmp_path: Path) -> StoreLayout:
    return StoreLayout(str(tmp_path / "store"))


def rent(sheds: Sheds, store: StoreLayout) -> tuple[TpuBackend, OpenReservation, AttemptRecord]:
    backend = ShedBackend(sheds, PROJECT)
    reservation = reserve(
        store, write_run(store).root, project_id=PROJECT, owner=OWNER, bundle_sha256="0" * 64
    )
    sweeper = Sweeper(backend, pause=0.05, reissue=1.0, timeout=20.0)
    record = Provisioner(reservation, store, backend, boot_metadata, sweeper).obtain()
    watch = ReadyWatch(backend, reservation, record, reservation.wait_deadline)
    assert watch.look().verdict.is_final
    assert AttemptEvent.READY in watch.record.marks
    return backend, reservation, watch.record


def test_a_tpu_is_rented_and_released(sheds: Sheds, store: StoreLayout) -> None:
    backend, reservation, _ = rent(sheds, store)
    assert len(sheds.machines) == 1
    report = release(
        reservation, Sweeper(backend, pause=0.05, reissue=1.0, timeout=20.0), reason="test"
    )
    assert not sheds.machines
    assert len(report.ledger.entries) == 1


def test_its_vm_deletes_it_by_switch_and_last_resort(
    sheds: Sheds, store: StoreLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GCE_METADATA_HOST", sheds.address)
    for _ in range(2):
        rent(sheds, store)
    (first, one), (second, two) = sheds.machines.items()
    metadata = one.request.metadata
    asked = metadata["tpu-deletions"].replace("{node}", first.resource_id).split()
    said = own_tpu.delete(metadata["tpu-name"], first.resource_id, asked, "")
    assert said.startswith("the service deletes http://")

    values = {f"attributes/{name}": value for name, value in two.request.metadata.items()}
    values |= {
        "attributes/tpu-env": f"NODE_ID: '{second.resource_id}'\n",
        "service-accounts/default/token": ACCOUNT,
    }
    monkeypatch.setattr(boot, "metadata", values.get)
    last_resort = boot.LastResort()
    last_resort.give_up_after(0)
    last_resort.tick()
    assert sheds.deleted_by_themselves == [first.resource_id, second.resource_id]
    assert not sheds.machines


def test_commands_list_and_reap_it(
    sheds: Sheds, store: StoreLayout, capsys: pytest.CaptureFixture[str]
) -> None:
    _, _, record = rent(sheds, store)
    words = ["--store", store.root, "--owner", OWNER]
    assert main(["list", *words]) == 0
    assert f"{record.name.resource_id}  {ZONE}" in capsys.readouterr().out

    (machine,) = sheds.machines.values()
    expired = str(int((datetime.now(UTC) - timedelta(hours=1)).timestamp()))
    labels = {**machine.request.labels, "expires-at": expired}
    machine.request = replace(machine.request, labels=labels)
    assert main(["reap", "--once", *words]) == 0
    (reaped,) = json.loads(capsys.readouterr().out)["reaped"]
    assert reaped["name"] == record.name.resource_id
    assert not sheds.machines


def test_preflight_asks_it_and_advises_its_commands(sheds: Sheds, store: StoreLayout) -> None:
    config = with_overrides(
        load_preset("smoke"),
        {"tpu.zones": [ZONE], "tpu.accelerator_type": "v6e-1", "tpu.runtime_version": "shed-1"},
    )
    backend = ShedBackend(sheds, PROJECT)
    rows = {row.name: row.finding for row in tpu_rows(config, read_offer(config, backend))}
    assert rows["tpu.zones"].status == rows["tpu.runtime_version"].status == "ok"
    assert rows["tpu.accelerator_type"].fix.startswith(f"sheds types --in {ZONE}")
    site = Site(config, store, GoogleApis(PROJECT, lambda: None), lambda: backend)
    assert account.needed_services(site)[0] == "sheds.example.com"
    assert account.wanted_roles(site) == {FACTS.role: FACTS.permissions}


def test_nothing_else_knows_the_service() -> None:
    known = re.compile(r"tpu_v2|tpu\.googleapis|queuedResources|gcloud compute tpus|roles/tpu\.")
    rooms = ("tpu_lifecycle", "tpu_agent", "preflight", "plugins", "dags", "pipeline_alerts")
    found = {
        path.relative_to(ROOT).as_posix()
        for room in rooms
        for path in (ROOT / room).rglob("*")
        if path.suffix in {".py", ".sh", ".html"} and known.search(path.read_text())
    }
    service = "tpu_lifecycle/service"
    assert found == {
        *(f"{service}/cloud_{name}.py" for name in ("errors", "facts", "messages", "tpu")),
        "tpu_agent/emulated_tpu.py",
    }
