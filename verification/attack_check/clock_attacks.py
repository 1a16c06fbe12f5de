"""Attacks by wrong clocks: on the lease of a live run, and on objects too young to prune."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

from model_registry import lease
from model_registry.errors import UnconfirmedError
from model_registry.retention import pruning
from model_registry.retention.policy import RetentionPolicy
from pipeline_store import uris
from pipeline_store.formats import LineageLease, RunRecord
from pipeline_store.layout import StoreLayout
from tests.model_registry.retained import finished, line_of_models, objects
from verification.attack_check.rows import Row, Tally

_HOURS_AHEAD = (26.0, -26.0, 480.0, 100_000.0, 1.0)
_DAYS_AHEAD = (15.0, 20.0, 400.0)


class Clock(datetime):
    """A wrong clock of a machine."""

    ahead = timedelta()

    @classmethod
    def now(cls, tz: Any = None) -> Any:
        """Return the wrong time."""
        return datetime.now(tz) + cls.ahead


def leases(folder: Path, times: int) -> Tally:
    """Claim the lineage of a live run from machines whose clocks are wrong."""
    tally = Tally()
    for number in range(times):
        path = str(folder / str(number))
        runs = line_of_models(path, 2)
        first, second = (finished(path, name, runs[-1].version_id) for name in ("a", "b"))
        until = datetime.now(UTC) + timedelta(hours=25)
        claim = {"poll_seconds": 1.0, "has_ended": has_ended}
        lease.acquire(first.lineage, RunRecord.load(first.run.record), expires=until, **claim)  # type: ignore[arg-type]
        ahead = timedelta(hours=_HOURS_AHEAD[number % len(_HOURS_AHEAD)])
        with (
            mock.patch.object(Clock, "ahead", ahead),
            mock.patch.object(lease, "datetime", Clock),
        ):
            standing = lease.acquire(
                second.lineage,
                RunRecord.load(second.run.record),
                expires=until + ahead,
                **claim,  # type: ignore[arg-type]
            )
        held = lease.read(first.lineage)
        is_kept = held is not None and held.run_key == first.key
        tally.add(*([] if is_kept and not standing.is_held else [f"{ahead} ahead takes the lease"]))
        shutil.rmtree(path)
    return tally


def has_ended(held: LineageLease) -> bool:
    """Return Airflow's answer about the holder: it has not ended."""
    return False


@contextmanager
def lease_by_the_clock() -> Iterator[None]:
    """Treat an expired lease as free, even if its holder is live."""

    def ended(held: LineageLease) -> bool:
        return held.expires <= lease.datetime.now(UTC)

    with mock.patch(f"{__name__}.has_ended", ended):
        yield


def prunes(folder: Path, times: int) -> Tally:
    """Prune a store that is minutes old from a machine whose clock is days ahead.

    Every other time that machine has written some of the store's objects.
    """
    tally = Tally()
    for number in range(times):
        path = str(folder / str(number))
        line_of_models(path, 4)
        before = objects(path)
        time = datetime.now(UTC) + timedelta(days=_DAYS_AHEAD[number % len(_DAYS_AHEAD)])
        if number % 2:
            for written in Path(path, "lineages", "default").glob("*.json"):
                os.utime(written, (time.timestamp(), time.timestamp()))
        with mock.patch.object(uris, "now", return_value=time), suppress(UnconfirmedError):
            pruning.prune(StoreLayout(path), RetentionPolicy(keep_versions=1))
        gone = before - objects(path)
        harm = [f"{len(gone)} young objects are gone, such as {min(gone)}"] if gone else []
        tally.add(*harm, lost=bool(gone))
        shutil.rmtree(path)
    return tally


ROWS = (
    Row("lease of a live run, wrong clocks", leases, 10, lease_by_the_clock, 3),
    Row(
        "retention with a clock days ahead",
        prunes,
        12,
        lambda: mock.patch.object(pruning, "_silences", return_value=[]),
        2,
    ),
)
