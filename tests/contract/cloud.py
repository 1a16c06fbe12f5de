"""The cloud that a contract is checked against: the emulator, or the real API with a cost cap."""

from __future__ import annotations

import itertools
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from google.cloud import tpu_v2

from pipeline_config import load_preset, with_overrides
from pipeline_store import uris
from pipeline_store.formats import RunRecord
from pipeline_store.identity import installation_label, run_key
from pipeline_store.layout import RunLayout, StoreLayout
from tpu_emulator.admin import AdminClient
from tpu_lifecycle.control.release import Sweeper
from tpu_lifecycle.service import labels
from tpu_lifecycle.service.backend import TpuName, TpuRequest, TpuState
from tpu_lifecycle.service.cloud_tpu import CloudTpuBackend
from verification.first_tpu.steps import SUITE_SECONDS, TPUS_AT_ONCE, worst_cost

DAG_ID = "contract-suite"

ANOTHER = "another request's token"

NO_STORE = "ANY"
"""What the reaper is told as its store: the suite has none, and TPUs that say so are that one's."""

Result = TypeVar("Result")


class TooExpensiveError(ValueError):
    """The suite could cost more than it may."""


def check_cost(accelerator_type: str, price_per_chip_hour: float, max_cost: float) -> float:
    """Return the worst cost.

    :raises TooExpensiveError: it exceeds the cap.
    """
    cost = worst_cost(accelerator_type, price_per_chip_hour)
    if cost > max_cost:
        raise TooExpensiveError(
            f"The contract suite can cost {cost:.2f}: {TPUS_AT_ONCE} {accelerator_type} for "
            f"{SUITE_SECONDS / 60:.0f} minutes at {price_per_chip_hour} a chip-hour. That is more "
            f"than --max-cost {max_cost:.2f}. Raise it, or take a smaller --tpu-type."
        )
    return cost


@dataclass
class Cloud:
    """A project and a zone, and what this suite makes in it, all of it under one owner label.

    :param admin: the emulator's, to bring about what cannot be ordered from the real service.
    :param patience: seconds that a TPU may take to come or to go.
    :param container_image: what agent and jobs run in; None: the VM itself.
    """

    backend: CloudTpuBackend
    client: tpu_v2.TpuClient
    zone: str
    accelerator_type: str
    runtime_version: str
    network: Mapping[str, Any]
    admin: AdminClient | None
    patience: float
    container_image: str | None = None
    owner: str = field(default_factory=lambda: f"contract-{uuid.uuid4().hex[:8]}")
    started: datetime = field(default_factory=lambda: datetime.now(UTC))
    is_over: threading.Event = field(default_factory=threading.Event)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def project_id(self) -> str:
        return self.backend.project_id

    @property
    def is_real(self) -> bool:
        return self.admin is None

    @property
    def expires_at(self) -> datetime:
        return self.started + timedelta(seconds=SUITE_SECONDS)

    @property
    def labels(self) -> dict[str, str]:
        return labels.owner_label(self.owner)

    def parent(self) -> str:
        return f"projects/{self.project_id}/locations/{self.zone}"

    def queued_resource(self, name: TpuName) -> str:
        return f"{self.parent()}/queuedResources/{name.resource_id}"

    def node(self, name: TpuName) -> str:
        return f"{self.parent()}/nodes/{name.resource_id}"

    def new_name(self) -> TpuName:
        return TpuName(self.zone, f"{self.owner}-{next(self._numbers)}")

    def request(self, name: TpuName | None = None, **changes: Any) -> TpuRequest:
        """Return a request that carries the labels by which finalizer and reaper find its TPU."""
        name = name or self.new_name()
        expires = str(int(self.expires_at.timestamp()))
        own = {
            labels.INSTALLATION: installation_label(NO_STORE, self.owner),
            labels.RUN_KEY: "0" * 12,
            labels.GENERATION: "1",
            labels.ATTEMPT: "1",
            labels.EXPIRES_AT: expires,
        }
        arguments: dict[str, Any] = {
            "name": name,
            "accelerator_type": self.accelerator_type,
            "runtime_version": self.runtime_version,
            "provisioning_model": "on-demand",
            "queue_timeout_seconds": int(self.patience),
            "labels": self.labels | own,
            "metadata": {},
            "token": name.resource_id,
            **self.network,
        }
        return TpuRequest(**arguments | changes)

    def until(self, look: Callable[[], Result], *, patience: float | None = None) -> Result:
        """Look until there is something, and return it.

        :raises TimeoutError: nothing came in time, or the suite's time is over.
        """
        end = time.monotonic() + (patience or self.patience)
        while not (result := look()):
            if self.is_over.is_set():
                raise TimeoutError("the suite's deadline has passed: everything is deleted")
            if time.monotonic() > end:
                raise TimeoutError(f"not in time; last look: {result!r}")
            time.sleep(5.0 if self.is_real else 0.05)
        return result

    def until_ready(self, name: TpuName) -> TpuState:
        def look() -> TpuState | None:
            state = self.backend.describe(name)
            assert state.gone_reason is None, state.describe()
            return state if state.is_ready else None

        return self.until(look)

    def until_gone(self, name: TpuName) -> None:
        self.until(lambda: not self.backend.describe(name).exists)

    @property
    def sweeper(self) -> Sweeper:
        return Sweeper(self.backend, timeout=self.patience)

    def delete_everything(self) -> list[TpuName]:
        """Delete all that carries this suite's owner label, and confirm; return what there was."""
        found, problems = self.sweeper.find([self.zone], self.labels)
        names = sorted(state.name for state in found)
        self.sweeper.delete(names)
        if problems:
            raise next(iter(problems.values()))
        return names

    @contextmanager
    def limited(self, seconds: float = SUITE_SECONDS) -> Iterator[None]:
        """End it all after so long, even while a test hangs; and in any case when it is over."""
        timer = threading.Timer(seconds, self._stop)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            self.delete_everything()

    def _stop(self) -> None:
        self.is_over.set()
        self.delete_everything()

    @contextmanager
    def starving(self) -> Iterator[None]:
        """Let what is asked for inside wait; the real service does as it likes."""
        if self.admin is not None:
            self.admin.stockout(self.zone, shape="wait", count=100)
        try:
            yield
        finally:
            if self.admin is not None:
                self.admin.clear_faults()

    def write_run(self, store: StoreLayout, preset: str = "smoke", **overrides: Any) -> RunLayout:
        """Write a new pipeline run, as the validate task does; ``section__name=value``."""
        run_id = f"contract__{uuid.uuid4()}"
        key = run_key(DAG_ID, run_id)
        run = store.run(key)
        settings: dict[str, Any] = {
            "tpu.zones": [self.zone],
            "tpu.accelerator_type": self.accelerator_type,
            "tpu.runtime_version": self.runtime_version,
            "tpu.container_image": self.container_image,
            "tpu.queue_timeout_seconds": max(60, int(self.patience)),
            "tpu.boot_timeout_seconds": 1500 if self.is_real else 120,
            "tpu.delete_grace_seconds": 60.0 if self.is_real else 0.2,
            "tpu.heartbeat_interval_seconds": 5.0 if self.is_real else 0.5,
            "budget.max_hours": SUITE_SECONDS / 3600,
        }
        if self.is_real:
            # Presets for the emulator train on a CPU, which no image for TPUs can.
            settings["training.distribution_strategy"] = "tpu"
        settings |= {f"tpu.{name}": value for name, value in self.network.items()}
        settings |= {name.replace("__", "."): value for name, value in overrides.items()}
        config = with_overrides(load_preset(preset), settings)
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
