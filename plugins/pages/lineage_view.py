"""Collects what the page *Models* shows for one lineage."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from itertools import islice

from model_registry import attempts, lease, registry
from model_registry.production import production
from pages.charts import LineChart, Series, line_chart
from pages.progress import JobProgress, running_jobs
from pages.reading import Reader
from pages.spending import Spending, spending
from pipeline_alerts.causes import advice, severity
from pipeline_alerts.delivery import clearance, list_alerts
from pipeline_store import uris
from pipeline_store.formats import (
    Alert,
    BackfillRuns,
    LineageLease,
    ModelVersion,
    ProductionPointer,
    RunRecord,
    RunRefusal,
    Verdict,
    WaitingTicket,
)
from pipeline_store.layout import LineageLayout, StoreLayout, VersionLayout

MOST_VERSIONS = 100
MOST_ALERTS = 10
MOST_READ_ALERTS = 200
"""Newest alerts of all lineages that are read; a limit, so that old ones do not slow the page."""
MOST_ATTEMPTS = 100
MOST_READ_REFUSALS = 40
"""Newest refusals of all lineages that are read."""
MOST_BACKFILLS = 5
"""Newest backfills of the lineage whose untried partitions are shown."""


@dataclass(frozen=True)
class VersionRow:
    """One published version."""

    model: ModelVersion
    verdict: Verdict | None
    in_use: bool
    rolled_back: bool
    record: RunRecord | None
    """Record of the run that made it, if it still exists."""

    @property
    def learned(self) -> str:
        """The partition that the model has seen last."""
        return self.model.partitions_seen[-1] if self.model.partitions_seen else ""

    @property
    def rollback_conf(self) -> str:
        """Values that prefill the form of the rollback DAG, as JSON."""
        wanted = {"lineage": self.model.lineage_id, "version": self.model.version_id, "reason": ""}
        return json.dumps(wanted)


@dataclass(frozen=True)
class AlertRow:
    """An alert, and when a pass of the watch saw that its cause was gone."""

    alert: Alert
    cleared: datetime | None

    @property
    def severity(self) -> str:
        """The severity; empty: a newer program named the cause."""
        try:
            return str(severity(self.alert.cause))
        except ValueError:
            return ""

    @property
    def advice(self) -> str:
        """What to do; empty: a newer program named the cause."""
        try:
            return advice(self.alert.cause, self.alert.remedy)
        except ValueError:
            return ""


@dataclass(frozen=True)
class NotLearned:
    """A partition that the model in use has not seen, with the reason and its run."""

    partition: str
    reason: str
    dag_id: str
    run_id: str
    is_quarantined: bool = False


@dataclass(frozen=True)
class Unsuccessful:
    """A run that put no model into use, and why."""

    time: datetime
    outcome: str
    reason: str
    partition: str
    dag_id: str
    run_id: str


@dataclass
class LineageView:
    """A lineage: its versions, the one in use, and the runs that work on it."""

    lineage_id: str
    known: list[str]
    pointer: ProductionPointer | None = None
    rows: list[VersionRow] = field(default_factory=list)
    """Newest first."""
    more: int = 0
    """Older versions that are not shown."""
    losses: LineChart | None = None
    lease: LineageLease | None = None
    spending: Spending | None = None
    """Spending of the run that holds the lineage."""
    jobs: list[JobProgress] = field(default_factory=list)
    """Jobs of that run on its TPUs now."""
    waiting: list[WaitingTicket] = field(default_factory=list)
    not_learned: list[NotLearned] = field(default_factory=list)
    """Partitions that were tried, or asked for by a backfill, sorted."""
    unsuccessful: list[Unsuccessful] = field(default_factory=list)
    """Newest runs that were refused, rejected, failed or cancelled; newest first."""
    more_unsuccessful: int = 0
    """Number of older ones that are not shown, without those that were refused long ago."""
    alerts: list[AlertRow] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def in_use(self) -> VersionRow | None:
        """The version in use, if it is among those shown."""
        return next((row for row in self.rows if row.in_use), None)


@dataclass(frozen=True)
class LineageRow:
    """One of several lineages, in a row of a table."""

    lineage_id: str
    pointer: ProductionPointer | None
    lease: LineageLease | None
    waiting: int
    """Number of runs that wait for it."""


def lineage_rows(store: StoreLayout, known: list[str], reader: Reader) -> list[LineageRow]:
    """Return a row for each lineage."""
    rows = []
    for lineage_id in known:
        lineage = store.lineage(lineage_id)
        rows.append(
            LineageRow(
                lineage_id,
                reader.load(ProductionPointer, lineage.production),
                reader.attempt(partial(lease.holder, lineage)),
                len(reader.attempt(partial(lease.waiting, lineage)) or []),
            )
        )
    return rows


def lineage_view(store: StoreLayout, lineage_id: str, known: list[str]) -> LineageView:
    """Return the view of a lineage; it is empty for a lineage without a model.

    :param known: all lineages of the store.
    """
    reader, lineage = Reader(), store.lineage(lineage_id)
    view = LineageView(lineage_id, known, problems=reader.problems)
    view.pointer = reader.load(ProductionPointer, lineage.production)
    models = reader.attempt(lambda: registry.list_versions(lineage)) or []
    view.more = max(0, len(models) - MOST_VERSIONS)
    shown = models[-MOST_VERSIONS:]
    rows = [_row(store, lineage, model, view.pointer, reader) for model in shown]
    view.rows = rows[::-1]
    view.losses = _losses(rows)
    view.lease = reader.attempt(lambda: lease.holder(lineage))
    holder = view.lease.run_key if view.lease is not None else None
    if holder is not None:
        view.spending = reader.attempt(lambda: spending([store.run(holder)]))
        view.jobs = running_jobs(store.run(holder), reader)
    view.waiting = reader.attempt(lambda: lease.waiting(lineage)) or []
    view.not_learned = _not_learned(store, lineage_id, reader)
    unsuccessful = _unsuccessful(store, lineage_id, reader)
    view.unsuccessful = unsuccessful[:MOST_ATTEMPTS]
    view.more_unsuccessful = len(unsuccessful) - len(view.unsuccessful)
    view.alerts = newest_alerts(store, lineage_id, reader)
    return view


def _unsuccessful(store: StoreLayout, lineage_id: str, reader: Reader) -> list[Unsuccessful]:
    tried = reader.attempt(lambda: attempts.attempts(store.lineage(lineage_id))) or []
    found = [
        Unsuccessful(
            time=one.time,
            outcome=str(one.outcome),
            reason=one.reason.removeprefix(f"{one.outcome}: "),
            partition=one.partition,
            dag_id=one.dag_id,
            run_id=one.run_id,
        )
        for one in tried
    ]
    listed = reader.attempt(lambda: uris.list_named(store.runs, "refusal.json")) or []
    newest = sorted(listed, key=lambda details: details.modified)[-MOST_READ_REFUSALS:]
    for details in newest:
        one = reader.load(RunRefusal, details.uri)
        if one is not None and one.lineage_id == lineage_id:
            reasons = " ".join(one.reasons)
            row = Unsuccessful(
                one.time, "refused", reasons, one.partition or one.run_id, one.dag_id, one.run_id
            )
            found.append(row)
    return sorted(found, key=lambda row: row.time, reverse=True)


def _not_learned(store: StoreLayout, lineage_id: str, reader: Reader) -> list[NotLearned]:
    lineage = store.lineage(lineage_id)
    in_use = reader.attempt(lambda: production(lineage))
    seen = set(in_use.partitions_seen) if in_use else set()
    found = {}
    listed = (reader.load(BackfillRuns, uri) for uri in uris.list_files(store.backfills))
    own = [one for one in listed if one is not None and one.lineage_id == lineage_id]
    for backfill in sorted(own, key=lambda one: one.created)[-MOST_BACKFILLS:]:
        runs = {partition: run_id for run_id, partition in backfill.runs.items()}
        for partition, reason in backfill.not_learned.items():
            found[partition] = NotLearned(partition, reason, backfill.dag_id, runs[partition])
    for name, left in (reader.attempt(lambda: attempts.left_out(lineage)) or {}).items():
        by = left.attempt
        found[name] = NotLearned(name, left.reason, by.dag_id, by.run_id, left.is_quarantined)
    return [found[name] for name in sorted(found) if name not in seen]


def newest_alerts(store: StoreLayout, lineage_id: str, reader: Reader) -> list[AlertRow]:
    """Return the newest alerts about a lineage or about no lineage, newest first."""
    known = set(list_alerts(store))
    found = [details for details in uris.list_details(store.alerts) if details.uri in known]
    newest = sorted(found, key=lambda details: details.modified, reverse=True)[:MOST_READ_ALERTS]
    alerts = (reader.load(Alert, details.uri) for details in newest)
    own = (a for a in alerts if a is not None and a.lineage_id in (None, lineage_id))
    return [_alert_row(store, alert) for alert in islice(own, MOST_ALERTS)]


def _alert_row(store: StoreLayout, alert: Alert) -> AlertRow:
    over = clearance(store, alert)
    return AlertRow(alert, over.time if over is not None else None)


def _row(
    store: StoreLayout,
    lineage: LineageLayout,
    model: ModelVersion,
    pointer: ProductionPointer | None,
    reader: Reader,
) -> VersionRow:
    return VersionRow(
        model=model,
        verdict=reader.load(Verdict, VersionLayout(lineage.version(model.version_id)).verdict),
        in_use=pointer is not None and pointer.version_id == model.version_id,
        rolled_back=pointer is not None and model.version_id in pointer.rolled_back,
        record=reader.load(RunRecord, store.run(model.run_key).record),
    )


def _losses(rows: list[VersionRow]) -> LineChart | None:
    judged = [(row, row.verdict) for row in rows if row.verdict is not None]
    return line_chart(
        "Loss when promoted, each on the held-out documents of its own partition",
        "partition",
        "nats per token",
        [
            Series(
                "compared with",
                "b",
                [(float(n), verdict.reference_loss) for n, (_, verdict) in enumerate(judged)],
                dots=True,
            ),
            Series(
                "version",
                "a",
                [(float(n), verdict.candidate_loss) for n, (_, verdict) in enumerate(judged)],
                dots=True,
            ),
        ],
        x_names=[row.learned for row, _ in judged],
    )
