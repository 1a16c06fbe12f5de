"""One schedule's store and emulated cloud, with methods to break them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from pipeline_config import PipelineConfig, load_preset, with_overrides
from pipeline_store import uris
from pipeline_store.formats import RunRecord
from pipeline_store.identity import run_key
from pipeline_store.layout import RunLayout, StoreLayout
from tpu_emulator import processes
from tpu_emulator.testing import RunningEmulator, start_emulator
from verification.chaos.schedule import CHECKPOINT_INTERVAL, TRAIN_STEPS, ZONES

OWNER = "chaos"
DAG_ID = "chaos"
# A path with such a component cannot be opened, not even by root.
_UNREACHABLE = "x" * 300

FAST = {
    "tpu.zones": list(ZONES),
    "tpu.delete_grace_seconds": 0.5,
    "tpu.poll_interval": 0.5,
    "tpu.heartbeat_interval_seconds": 0.5,
    "tpu.heartbeat_timeout_seconds": 10.0,
    "tpu.boot_timeout_seconds": 40,
    "tpu.queue_timeout_seconds": 60,
    "tpu.zone_cooldown_seconds": 1.0,
    "budget.max_hours": 0.5,
    "budget.max_preemptions": 20,
    "budget.max_stalled_attempts": 10,
    "budget.max_failures": 10,
    "optimizer.warmup_steps": 5,
    "training.train_steps": TRAIN_STEPS,
    "training.checkpoint_interval": CHECKPOINT_INTERVAL,
}


# Long enough for a fault to hit each state.
_DELAYS = {
    "accept_delay": 0.3,
    "provision_delay": 0.5,
    "boot_delay": 0.5,
    "delete_delay": 0.3,
    "suspend_delay": 0.3,
    "vm_grace": 1.0,
}


@dataclass
class World:
    """A store and an emulated cloud."""

    folder: Path
    emulator: RunningEmulator
    store: StoreLayout
    config: PipelineConfig
    run: RunLayout
    run_id: str
    _outages: int = field(default=0)

    @classmethod
    @contextlib.contextmanager
    def create(cls, folder: Path, settings: dict[str, Any] | None = None) -> Iterator[World]:
        """Yield a new world in an empty folder.

        :param settings: overrides of the fast settings, by dotted name.
        """
        (folder / "store.real").mkdir(parents=True, exist_ok=True)
        (folder / "store").symlink_to("store.real")
        store = StoreLayout(str(folder / "store"))
        config = with_overrides(load_preset("smoke"), FAST | (settings or {}))
        # The boot script runs with the Python that PATH finds first, as on a TPU VM.
        path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
        with start_emulator(folder, vm_env={"PATH": path}, **_DELAYS) as emulator:
            run_id = f"chaos__{uuid.uuid4()}"
            run = _write_run(store, config, run_id)
            yield cls(folder, emulator, store, config, run, run_id)

    def environment(self, conn_id: str) -> dict[str, str]:
        """Return the environment by which Airflow's processes find the cloud."""
        connection = {
            "conn_type": "google_cloud_platform",
            "extra": {
                "is_anonymous": True,
                "project": self.emulator.project,
                "tpu_api_endpoint": self.emulator.endpoint,
                "tpu_insecure": True,
            },
        }
        return {f"AIRFLOW_CONN_{conn_id.upper()}": json.dumps(connection)}

    def nodes(self) -> list[dict[str, Any]]:
        """Return the cloud's nodes."""
        found: list[dict[str, Any]] = self.emulator.admin.table()["nodes"]
        return found

    def left(self) -> dict[str, Any]:
        """Return the cloud's counts of queued resources in any state, nodes, and VM processes."""
        table = self.emulator.admin.table()
        pids = {
            pid for found in processes.find(str(self.emulator.state_dir), {}).values()
            for pid in (process.pid for process in found)
        }  # fmt: skip
        return {
            "queued_resources": len(table["queued_resources"]),
            "nodes": len(table["nodes"]),
            "processes": len(pids),
        }

    def vm_processes(self, module: str) -> list[psutil.Process]:
        """Return the processes of VMs that run a Python module."""
        found = processes.find(str(self.emulator.state_dir), {})
        chosen = []
        for process in (process for group in found.values() for process in group):
            with contextlib.suppress(psutil.Error):
                command = process.cmdline()
                if any(part.startswith(module) for part in command[1:3]):
                    chosen.append(process)
        return chosen

    def hang_vms(self) -> bool:
        """Suspend every process of every VM, like a hung machine; return False if there is none."""
        found = processes.find(str(self.emulator.state_dir), {})
        for process in (process for group in found.values() for process in group):
            with contextlib.suppress(psutil.Error):
                process.send_signal(signal.SIGSTOP)
        return bool(found)

    def lose_store(self) -> None:
        """Let every read and write of the store fail, until :meth:`find_store`."""
        self._outages += 1
        self._point_store_at(_UNREACHABLE)

    def find_store(self) -> None:
        """End one :meth:`lose_store`."""
        self._outages -= 1
        if self._outages == 0:
            self._point_store_at("store.real")

    def _point_store_at(self, target: str) -> None:
        # Renaming over it is atomic: no reader ever sees an empty store.
        aside = self.folder / f"store.{uuid.uuid4().hex}"
        aside.symlink_to(target)
        os.replace(aside, self.folder / "store")


def _write_run(store: StoreLayout, config: PipelineConfig, run_id: str) -> RunLayout:
    key = run_key(DAG_ID, run_id)
    run = store.run(key)
    uris.write(run.config, config.to_bytes())
    RunRecord(
        run_key=key,
        dag_id=DAG_ID,
        run_id=run_id,
        partition="2026-01-01",
        lineage_id=config.model.lineage_id,
        config_sha256=config.sha256,
        created=datetime.now(UTC),
    ).write(run.record)
    return run
