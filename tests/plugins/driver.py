"""Runs operators and their triggers in this process, as worker and triggerer would."""

from __future__ import annotations

import asyncio
import functools
import importlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import TaskDeferred
from airflow.triggers.base import BaseTrigger

import operators.tpu
from pipeline_store.formats import RunRecord
from pipeline_store.layout import RunLayout
from tests.plugins.contexts import context_of
from tests.tpu_lifecycle.world import World, write_run
from tpu_lifecycle.boot.bundle import PACKAGES, build_bundle
from tpu_lifecycle.records.reservation import OpenReservation, open_reservation

CONN_ID = "tpu_emulator"
REPOSITORY = Path(__file__).parents[2]


JOBS = {
    "quick": "print('hello from the job')",
    "endless": "import time\ntime.sleep(600)",
    "broken": "raise ValueError('the last words')",
}


def write_jobs(folder: Path) -> Path:
    """Write the source of a code bundle: the real agent, and jobs of its training package."""
    for package in set(PACKAGES) - {"training"}:
        shutil.copytree(REPOSITORY / package, folder / package)
    (folder / "training").mkdir()
    for name, code in ({"__init__": ""} | JOBS).items():
        (folder / "training" / f"{name}.py").write_text(code + "\n")
    return folder


def source_of(world: World) -> Path:
    """Return the folder that the code bundle of a world is made of."""
    return Path(world.store.root).parent / "source"


def from_wire(trigger: BaseTrigger) -> Any:
    """Return the trigger as the triggerer makes it: from a path and plain JSON."""
    path, arguments = trigger.serialize()
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)(**json.loads(json.dumps(arguments)))


async def first_event(trigger: BaseTrigger) -> dict[str, Any]:
    """Run a trigger to its event."""
    async for event in trigger.run():
        payload: dict[str, Any] = event.payload
        return payload
    raise AssertionError("the trigger ended without an event")


def connect(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the connection to the emulated cloud known to Airflow."""
    connection = {
        "conn_type": "google_cloud_platform",
        "extra": {
            "is_anonymous": True,
            "project": world.emulator.project,
            "tpu_api_endpoint": world.emulator.endpoint,
            "tpu_insecure": True,
        },
    }
    monkeypatch.setenv(f"AIRFLOW_CONN_{CONN_ID.upper()}", json.dumps(connection))


@dataclass
class Driver:
    """One pipeline run, whose operators are executed by hand."""

    world: World
    run: RunLayout
    record: RunRecord
    events: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def create(cls, world: World, monkeypatch: pytest.MonkeyPatch) -> Driver:
        connect(world, monkeypatch)
        source = write_jobs(source_of(world))
        bundle = functools.partial(build_bundle, source=source)
        monkeypatch.setattr(operators.tpu, "build_bundle", bundle)
        run = write_run(world.store)
        return cls(world, run, RunRecord.load(run.record))

    def configure(self, overrides: Mapping[str, Any]) -> None:
        """Go on with a new pipeline run that has other settings."""
        self.run = write_run(self.world.store, overrides)
        self.record = RunRecord.load(self.run.record)

    @property
    def source(self) -> Path:
        """Folder that the code bundle is made of."""
        return source_of(self.world)

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments that all operators of the run take."""
        return {
            "store_uri": self.world.store.root,
            "gcp_conn_id": CONN_ID,
        }

    @property
    def reservation(self) -> OpenReservation:
        return open_reservation(self.run.root)

    def context(self, try_number: int = 1) -> Any:
        context = context_of(self.record.dag_id, self.record.run_id)
        context["ti"].try_number = try_number
        return context

    def start(self, operator: Any, try_number: int = 1) -> TaskDeferred:
        """Execute until the task defers."""
        with pytest.raises(TaskDeferred) as deferred:
            operator.execute(self.context(try_number))
        return deferred.value

    def resume(self, operator: Any, deferred: TaskDeferred, event: dict[str, Any]) -> Any:
        """Execute what follows the event of a trigger."""
        assert deferred.kwargs is None, "dag.test() would not pass them on"
        return operator.resume_execution(deferred.method_name, {"event": event}, self.context())

    def finish(self, operator: Any, deferred: TaskDeferred | None = None) -> Any:
        """Execute to the end, running the triggers in between."""
        while True:
            try:
                if deferred is None:
                    return operator.execute(self.context())
                assert deferred.timeout is not None
                event = asyncio.run(first_event(from_wire(deferred.trigger)))
                self.events.append(event)
                return self.resume(operator, deferred, event)
            except TaskDeferred as again:
                deferred = again
