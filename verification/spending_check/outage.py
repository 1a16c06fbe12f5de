"""Runs an outage: all of Airflow dies during a training, and returns when its TPU is long gone."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from tpu_lifecycle.control.reaper import Reaper
from tpu_lifecycle.service.cloud_tpu import connect
from verification.chaos.group import Group
from verification.chaos.one import FakeTraining
from verification.chaos.schedule import ZONES
from verification.chaos.world import OWNER, World
from verification.spending_check.evidence import collect, entries, totals

OUTAGE_STEP = 15
SETTINGS = {"budget.max_hours": 0.035}
"""Settings with which the outage lasts longer than a TPU may live."""
PATIENCE_SECONDS = 300.0


class Outage(Exception):  # noqa: N818 - no error: what happens
    """All of Airflow has died."""


def run_outage(folder: Path) -> dict[str, Any]:
    """Run the outage in an empty folder; the reaper still runs by cron, as in an installation."""
    training = FakeTraining(SETTINGS)
    with World.create(folder, training.settings) as world:

        def die(_: Group) -> None:
            if training.step(world) >= OUTAGE_STEP:
                raise Outage

        group = Group(world, training.jobs(world), die)
        try:
            group._run_tasks()
        except Outage:
            if group.running is not None:
                group.running.kill()
        _reap(world)
        before = {"totals": totals(world.store), "entries": entries(world.run)}
        Group(world, training.jobs(world), lambda _: None)._run_teardown()
        service = world.emulator.admin.bill()["chip_seconds"]
        left = world.left()
    evidence = collect(folder, service)
    problems = [f"left: {left}"] if left["nodes"] else []
    return {"problems": problems, "before": before, "evidence": evidence}


def _reap(world: World) -> None:
    """Run reaper passes until the service has no node.

    :raises TimeoutError: it still has one.
    """
    backend = connect(
        project_id=world.emulator.project, endpoint=world.emulator.endpoint, insecure=True
    )
    reaper = Reaper(backend, world.store, world.emulator.project, OWNER, ZONES)
    end = time.monotonic() + PATIENCE_SECONDS
    while world.nodes():
        if time.monotonic() > end:
            raise TimeoutError(f"The reaper has left {world.nodes()}.")
        reaper.reap()
        time.sleep(1.0)
