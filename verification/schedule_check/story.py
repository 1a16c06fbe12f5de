"""Runs the check's story chapter by chapter, and records the expected state of the registry."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from local.stack.airflow_api import Backfill, BackfillRequest
from local.stack.breaking import Breaker
from pipeline_store import uris
from verification.schedule_check.world import (
    ARRIVALS,
    DAG_ID,
    DAY,
    CheckError,
    World,
    now,
    partition_of,
)

ASSET = "corpus_partition"


@dataclass
class Expected:
    """The expected state of the registry at the end."""

    learned: set[str] = field(default_factory=set)
    left_out: set[str] = field(default_factory=set)
    """Partitions whose runs were canceled before they began."""
    versions_of: dict[str, int] = field(default_factory=dict)
    """Number of versions of partitions that were learned more than once, as their text changed."""


class Story:
    """Runs the chapters, one after the other.

    :param world: a stack that has just been started.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._seeds = iter(range(1, 1000))
        self._begin = now()
        self.expected = Expected()

    def tell(self) -> Expected:
        """Run all chapters; return the expected state of the registry."""
        for chapter in (
            self._by_schedule,
            self._by_asset_event,
            self._backfill_with_a_dead_scheduler,
            self._cancelled_backfill,
            self._again,
            self._all_at_once,
        ):
            began = time.monotonic()
            title = (chapter.__doc__ or "").splitlines()[0]
            self._world.say(title)
            chapter()
            self._world.say(f"  done after {time.monotonic() - began:.0f} s")
        self._world.until_quiet()
        return self.expected

    def _by_schedule(self) -> None:
        """Four days arrive, one after the other; the schedule finds them."""
        self._world.api.unpause(DAG_ID)
        days = []
        for _ in range(4):
            # The run in the next minute is for the current one.
            day = now()
            days.append(self._arrive(day))
            self._world.until(partial(_is_over, day), "the next day")
        self._learned(days)

    def _by_asset_event(self) -> None:
        """Three days arrive, and an asset event tells of each."""
        api = self._world.api
        api.unpause(ARRIVALS)
        # An hour ago, so that no scheduled run is for them.
        days = [self._arrive(self._begin - number * DAY) for number in range(60, 63)]
        for day in days:
            api.asset_event(ASSET, partition_key=day)
        self._learned(days)

    def _backfill_with_a_dead_scheduler(self) -> None:
        """A backfill of five older days; the scheduler is killed in the middle."""
        first, last, days = self._older(120, 5)
        request = BackfillRequest(DAG_ID, first, last, max_active_runs=5)
        planned = self._world.api.backfill_dry_run(request)
        if planned != days:
            raise CheckError(f"the dry run of a backfill of {days} has {planned}")
        self._world.api.create_backfill(request)
        self._until_one_trains(days)
        self._world.say("  killing the scheduler and all that it started")
        Breaker(self._world.stack).kill("scheduler", children=True)
        self._learned(days)

    def _cancelled_backfill(self) -> None:
        """A backfill of three days, cancelled when the first one trains."""
        first, last, days = self._older(180, 3)
        backfill = self._backfill(BackfillRequest(DAG_ID, first, last, max_active_runs=1))
        self._until_one_trains(days)
        self._world.api.cancel_backfill(backfill.backfill_id)
        begun = {run.record.partition for run in self._world.runs()} & set(days)
        self._learned(sorted(begun))
        self.expected.left_out |= set(days) - begun

    def _again(self) -> None:
        """One day is run again: as it is, which changes nothing, and with new text."""
        day = min(self.expected.learned)
        run_id = self._world.trigger(day)
        self._world.until(
            lambda: any(
                run.record.run_id == run_id and run.outcome and run.outcome.outcome == "skipped"
                for run in self._world.runs()
            ),
            f"the run that finds nothing new in {day}",
        )
        self._world.write(day, seed=next(self._seeds), documents=500)
        run_id = self._world.trigger(day)
        self._world.until(
            lambda: any(
                run.record.run_id == run_id and run.outcome and run.outcome.outcome == "promoted"
                for run in self._world.runs()
            ),
            f"a model of the new text of {day}",
        )
        self.expected.versions_of[day] = 2

    def _all_at_once(self) -> None:
        """A scheduled run, a backfill and a run by hand of one lineage at the same time."""
        first, last, days = self._older(240, 2)
        by_hand = self._arrive(self._begin - 300 * DAY)
        self._backfill(BackfillRequest(DAG_ID, first, last, max_active_runs=2))
        scheduled = self._arrive(now())
        self._world.trigger(by_hand)
        self._learned([*days, by_hand, scheduled])

    def _arrive(self, day: datetime) -> str:
        partition = partition_of(day)
        self._world.write(partition, seed=next(self._seeds))
        return partition

    def _older(self, ago: int, count: int) -> tuple[datetime, datetime, list[str]]:
        """Write older days; return the first, the last, and their partitions."""
        first = self._begin - ago * DAY
        days = [first + number * DAY for number in range(count)]
        return first, days[-1], [self._arrive(day) for day in days]

    def _backfill(self, request: BackfillRequest) -> Backfill:
        """Start a backfill as soon as Airflow has completed the previous one."""
        self._world.until(
            lambda: all(backfill.completed for backfill in self._world.api.backfills(DAG_ID)),
            "the end of the backfill before",
        )
        return self._world.api.create_backfill(request)

    def _until_one_trains(self, days: list[str]) -> None:
        def trains() -> bool:
            return any(self._checkpoints(day) for day in days)

        self._world.until(trains, f"a training on one of {', '.join(days)}")

    def _checkpoints(self, day: str) -> list[str]:
        world = self._world
        return [
            uri
            for run in world.runs()
            if run.record.partition == day
            for uri in uris.list_files(world.store.run(run.record.run_key).training.checkpoints)
        ]

    def _learned(self, days: list[str]) -> None:
        self._world.until_promoted(*days)
        self.expected.learned |= set(days)


def _is_over(day: datetime) -> bool:
    return now() > day
