"""Takes snapshots of a store, from which the metrics are read."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from pipeline_metrics.installation import SeenInstallation, read_installation
from pipeline_metrics.lineages import SeenLineage, read_lineages
from pipeline_metrics.reading import Reader, Source
from pipeline_metrics.runs import SeenRuns, read_runs
from pipeline_store.layout import StoreLayout
from tpu_lifecycle.records.billed import WEEKS

WINDOW_DAYS = 7 * WEEKS
"""Age above which ended runs are left out: the same window as on the page *Spending*."""


@dataclass
class Snapshot:
    """A store at one moment.

    :ivar seconds: how long reading it took.
    :ivar errors: files that could not be read since the exporter began, by source.
    :ivar failures: files that could not be read this time, by source.
    """

    now: datetime
    runs: SeenRuns = field(default_factory=SeenRuns)
    lineages: list[SeenLineage] = field(default_factory=list)
    installation: SeenInstallation = field(default_factory=SeenInstallation)
    seconds: float = 0.0
    errors: dict[Source, int] = field(default_factory=dict)
    failures: dict[Source, int] = field(default_factory=dict)


class SnapshotSource:
    """Takes snapshots of one store.

    :param window: age above which ended runs are left out.
    """

    def __init__(self, store: StoreLayout, window: timedelta) -> None:
        self._store = store
        self._window = window
        self._reader = Reader()

    def take(self) -> Snapshot:
        """Read the store: at first all runs of the window, later only what has changed."""
        begin, now = time.monotonic(), datetime.now(UTC)
        self._reader.begin()
        snapshot = Snapshot(
            now=now,
            runs=read_runs(self._store, self._reader, now - self._window),
            lineages=read_lineages(self._store, self._reader),
            installation=read_installation(self._store, self._reader, now),
        )
        snapshot.errors = dict(self._reader.errors)
        snapshot.failures = dict(self._reader.failures)
        snapshot.seconds = time.monotonic() - begin
        return snapshot
