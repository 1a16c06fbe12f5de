"""A store and an emulated cloud for tests of the life cycle."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pipeline_config import load_preset, with_overrides
from pipeline_store import uris
from pipeline_store.formats import AttemptEvent, RunRecord
from pipeline_store.identity import run_key
from pipeline_store.layout import RunLayout, StoreLayout
from tpu_emulator.testing import RunningEmulator, wait_for
from tpu_lifecycle.control.observe import ReadyWatch
from tpu_lifecycle.control.provisioning import Asker, Provisioner
from tpu_lifecycle.control.release import ReleaseReport, Sweeper, release
from tpu_lifecycle.records.attempts import AttemptRecord
from tpu_lifecycle.records.reservation import OpenReservation, reserve
from tpu_lifecycle.service.backend import TpuBackend, TpuRequest
from tpu_lifecycle.service.cloud_tpu import connect

ZONE, OTHER_ZONE = "us-central1-a", "us-west4-a"
OWNER = "our-team"
DAG_ID = "Test.DAG"
LONG_SLEEP = "#!/bin/sh\nexec sleep 600\n"


def idle_launcher(*, mailbox_uri: str, token: str, **_: Any) -> dict[str, str]:
    """Boots into a process that does nothing."""
    return {"startup-script": LONG_SLEEP, "mailbox-uri": mailbox_uri, "attempt-token": token}


def write_run(
    store: StoreLayout, overrides: Mapping[str, Any] | None = None, *, run_id: str | None = None
) -> RunLayout:
    """Write a new run's record and configuration, as the validate task does."""
    run_id = run_id or f"manual__{uuid.uuid4()}"
    key = run_key(DAG_ID, run_id)
    run = store.run(key)
    fast = {
        "tpu.zones": [ZONE],
        "tpu.delete_grace_seconds": 0.2,
        "tpu.poll_interval": 0.5,
        "tpu.heartbeat_interval_seconds": 0.5,
    }
    config = with_overrides(load_preset("smoke"), fast | dict(overrides or {}))
    uris.write(run.config, config.to_bytes())
    RunRecord(
        run_key=key,
        dag_id=DAG_ID,
        run_id=run_id,
        partition="2026-01-01",
        lineage_id="default",
        config_sha256=config.sha256,
        created=datetime.now(UTC),
    ).write(run.record)
    return run


@dataclass
class World:
    """One test's store, in a cloud that tests share."""

    emulator: RunningEmulator
    backend: TpuBackend
    store: StoreLayout

    @classmethod
    @contextmanager
    def create(cls, emulator: RunningEmulator, folder: Path) -> Iterator[World]:
        """Yield a world with a store of its own; the shared cloud is empty before and after."""
        world = cls(emulator, connect_to(emulator), StoreLayout(str(folder / "store")))
        Path(world.store.root).mkdir(exist_ok=True)
        world.assert_nothing_left()
        yield world
        emulator.admin.clear_faults()
        world.assert_nothing_left()

    def reserve(
        self, overrides: Mapping[str, Any] | None = None, *, run: RunLayout | None = None
    ) -> OpenReservation:
        """Reserve for a run, or for a new one whose settings differ from the test defaults."""
        return reserve(
            self.store,
            (run or write_run(self.store, overrides)).root,
            project_id=self.emulator.project,
            owner=OWNER,
            bundle_sha256="0" * 64,
        )

    def sweeper(self, backend: TpuBackend | None = None) -> Sweeper:
        return Sweeper(backend or self.backend, pause=0.05, reissue=1.0, timeout=20.0)

    def provisioner(self, reservation: OpenReservation, **changes: Any) -> Provisioner:
        arguments: dict[str, Any] = {
            "reservation": reservation,
            "store": self.store,
            "backend": self.backend,
            "launcher": idle_launcher,
            "sweeper": self.sweeper(),
        }
        return Provisioner(**arguments | changes)

    def request(self, reservation: OpenReservation, record: AttemptRecord) -> TpuRequest:
        """Return what is asked of the service for an attempt."""
        return Asker(reservation, self.store, self.backend, idle_launcher, self.sweeper()).request(
            record
        )

    def obtain_ready(self, reservation: OpenReservation) -> AttemptRecord:
        record = self.provisioner(reservation).obtain()
        watch = ReadyWatch(self.backend, reservation, record, reservation.wait_deadline)
        wait_for(lambda: watch.look().verdict.is_final)
        assert AttemptEvent.READY in watch.record.marks
        return watch.record

    def release(self, reservation: OpenReservation) -> ReleaseReport:
        return release(reservation, self.sweeper(), reason="test")

    def assert_outcomes(self, reservation: OpenReservation, expected: list[str]) -> None:
        """Give everything back; each attempt ended as expected."""
        entries = self.release(reservation).ledger.entries
        assert [entry.outcome.split(":")[0] for entry in entries] == expected

    def nodes(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.emulator.admin.table()["nodes"]
        return found

    def create_calls(self) -> list[dict[str, Any]]:
        return self.emulator.admin.calls("CreateQueuedResource")

    def assert_nothing_left(self) -> None:
        """No queued resource in any state, no node, no process of a VM."""
        assert self.emulator.admin.table() == {
            "queued_resources": [],
            "nodes": [],
            "orphan_pids": [],
        }


def connect_to(emulator: RunningEmulator) -> TpuBackend:
    return connect(project_id=emulator.project, endpoint=emulator.endpoint, insecure=True)
