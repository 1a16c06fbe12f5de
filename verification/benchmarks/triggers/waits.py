"""Provides jobs to wait for: they run forever on TPUs that do nothing."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pipeline_config import load_preset, with_overrides
from pipeline_store import uris
from pipeline_store.formats import Heartbeat, Progress, RunRecord
from pipeline_store.identity import run_key
from pipeline_store.layout import AttemptLayout, RunLayout, StoreLayout
from tpu_emulator.testing import RunningEmulator, wait_for
from tpu_lifecycle.control.mailbox import submit_job
from tpu_lifecycle.control.provisioning import Provisioner
from tpu_lifecycle.control.release import Sweeper, become_holder
from tpu_lifecycle.records.attempts import AttemptRecord
from tpu_lifecycle.records.reservation import OpenReservation, reserve
from tpu_lifecycle.service.cloud_tpu import connect

CONN_ID = "bench"
JOB_ID = "010-train"
ZONES = ("us-central1-a", "us-west4-a", "us-east5-a", "us-south1-a")


@dataclass
class Waits:
    """The TPUs, and the triggers that wait for their jobs as the database would keep them."""

    wires: list[dict[str, Any]]
    mailboxes: list[tuple[AttemptLayout, str]]
    interval: float
    _beats: int = 0

    @classmethod
    def make(cls, emulator: RunningEmulator, folder: Path, count: int, interval: float) -> Waits:
        """Create ``count`` TPUs and submit a job on each."""
        store = StoreLayout(str(folder / "store"))
        backend = connect(project_id=emulator.project, endpoint=emulator.endpoint, insecure=True)
        waits = cls([], [], interval)
        for number in range(count):
            reservation = _reserve(emulator, store, ZONES[number % len(ZONES)], interval)
            record = Provisioner(
                reservation=reservation,
                store=store,
                backend=backend,
                launcher=lambda **_: {},
                sweeper=Sweeper(backend),
            ).obtain()
            waits._add(reservation, record)
        wait_for(
            lambda: all(node["state"] == "READY" for node in emulator.admin.table()["nodes"]),
            timeout=120.0,
        )
        backend.close()
        return waits

    def _add(self, reservation: OpenReservation, record: AttemptRecord) -> None:
        sequence = become_holder(reservation.run, record.attempt).sequence
        submit_job(
            reservation, record, job_id=JOB_ID, entry_point="training.train", arguments=["--run"]
        )
        self.mailboxes.append((record.layout, record.attempt.token))
        self.wires.append(
            {
                "run_uri": reservation.run.root,
                "generation": 1,
                "attempt": record.number,
                "deadline": reservation.wait_deadline.timestamp(),
                "poll_interval": reservation.config.tpu.poll_interval,
                "gcp_conn_id": CONN_ID,
                "holder_sequence": sequence,
                "job_id": JOB_ID,
                "viewer": "try1",
            }
        )

    def connection(self, emulator: RunningEmulator) -> dict[str, Any]:
        """Return the Airflow connection to the emulator."""
        extra = {"is_anonymous": True, "project": emulator.project}
        extra |= {"tpu_api_endpoint": emulator.endpoint, "tpu_insecure": True}
        return {"conn_type": "google_cloud_platform", "extra": extra}

    def beat(self) -> None:
        """Write a heartbeat for the next TPU, so that each has about two in a poll interval."""
        layout, token = self.mailboxes[self._beats % len(self.mailboxes)]
        self._beats += 1
        Heartbeat(
            worker=0,
            token=token,
            time=datetime.now(UTC),
            job_id=JOB_ID,
            progress=Progress(step=self._beats, train_steps=10**9, loss=5.0),
            log_chunks=0,
            disk_free_bytes=1,
        ).write(layout.heartbeat(0))
        time.sleep(self.interval / 2 / len(self.mailboxes))


def _reserve(
    emulator: RunningEmulator, store: StoreLayout, zone: str, interval: float
) -> OpenReservation:
    run_id = f"bench__{uuid.uuid4()}"
    run = RunLayout(store.run(run_key("bench", run_id)).root)
    settings = {
        "tpu.zones": [zone],
        "tpu.poll_interval": interval,
        "tpu.heartbeat_timeout_seconds": 3600.0,
        "budget.max_hours": 10.0,
    }
    config = with_overrides(load_preset("smoke"), settings)
    uris.write(run.config, config.to_bytes())
    RunRecord(
        run_key=run_key("bench", run_id),
        dag_id="bench",
        run_id=run_id,
        partition="2026-01-01",
        lineage_id=config.model.lineage_id,
        config_sha256=config.sha256,
        created=datetime.now(UTC),
    ).write(run.record)
    return reserve(
        store, run.root, project_id=emulator.project, owner="bench", bundle_sha256="0" * 64
    )
