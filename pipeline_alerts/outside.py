"""Runs the part of the watch that needs no Airflow, for cron: it works with a dead scheduler.

It raises alerts for stalled runs, for TPUs without a job, and for silence of the watch itself.
Other findings wait until the watch is back.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pipeline_alerts.causes import Cause
from pipeline_alerts.findings import Finding, Findings
from pipeline_alerts.listing import list_runs
from pipeline_alerts.raising import AlertedRun, raise_about_installation
from pipeline_alerts.standstill import OpenRun, Patience, TpuOf, no_service
from pipeline_alerts.watch import LinkOf
from pipeline_store.formats import RunRecord, WatchPass
from pipeline_store.layout import StoreLayout

RUN_CAUSES = (Cause.RUN_STALLED, Cause.TPU_WITHOUT_JOB)
"""Causes that are checked for a run; only Airflow knows whether its DAG is paused."""

ADVICE = "start Airflow's scheduler, unpause the pipeline_watch DAG, and look at its newest run"


@dataclass
class OutsideReport(Findings):
    """The findings of a pass from outside.

    :ivar watch: the last pass of the watch in Airflow.
    """

    watch: WatchPass | None = None

    def to_json(self) -> str:
        """Return the report as one JSON object."""
        told = {(alert.scope, alert.cause) for alert in self.raised}
        content: dict[str, Any] = {
            "watch": self.watch.model_dump(mode="json") if self.watch else None,
            "findings": [
                {
                    "id": f"{scope}/{name}",
                    "cause": str(finding.cause),
                    "summary": finding.summary,
                    "reason": finding.reason,
                    "is_new": (scope, name) in told,
                }
                for (scope, name), finding in self.found.items()
            ],
            "cleared": [f"{alert.scope}/{alert.cause}" for alert in self.cleared],
            "problems": self.problems,
        }
        return json.dumps(content)

    def conclude(self) -> int:
        """Print the report, JSON to stdout and sentences to stderr; return the exit code."""
        print(self.to_json())
        for (scope, _), finding in self.found.items():
            print(f"{scope}: {finding.summary}. {finding.reason}", file=sys.stderr)
        for alert in self.cleared:
            print(f"{alert.scope}: has cleared: {alert.title}", file=sys.stderr)
        for problem in self.problems:
            print(problem, file=sys.stderr)
        return 1 if self.found or self.problems else 0


@dataclass(frozen=True)
class Outside:
    """A watch of a store from outside of Airflow.

    :param max_age: highest age of the last pass of the watch in Airflow.
    :param link_of: returns the page of a run.
    :param tpu_of: asks the TPU service.
    :param with_text: whether alerts may quote log lines.
    """

    store: StoreLayout
    patience: Patience
    max_age: timedelta
    link_of: LinkOf = lambda _dag_id, _run_id: None
    tpu_of: TpuOf = no_service
    with_text: bool = False

    def look(self) -> OutsideReport:
        """Make a pass. A check that fails is reported and does not stop the others."""
        report = OutsideReport()
        judged: list[Cause] = []
        unseen: set[str] = set()
        with report.collected("the watch's sign of life"):
            self._look_at_watch(report)
            judged.append(Cause.WATCH_SILENT)
        with report.collected("the runs"):
            listed = list_runs(self.store)
            unseen |= set(listed.all)
            judged += RUN_CAUSES
            for key in listed.all:
                with report.collected(f"run {key}"):
                    self._look_at(key, report, goes_on=key in listed.going_on)
                    unseen.remove(key)
        with report.collected("alerts that have cleared"):
            report.clear(self.store, judged, unseen)
        return report

    def _look_at_watch(self, report: OutsideReport) -> None:
        last = report.watch = WatchPass.load_or_none(self.store.watch_pass)
        if last is None:
            report.problems.append(f"The watch never made a pass: {ADVICE}.")
            return
        age = datetime.now(UTC) - last.finished
        if age <= self.max_age:
            report.problems += [f"The watch's last pass: {problem}" for problem in last.problems]
            return
        finished = last.finished.astimezone(UTC)
        silence = Finding(
            Cause.WATCH_SILENT,
            "silent",
            f"The watch made its last pass at {finished:%F %T} UTC on {last.host}; when somebody "
            f"looked, it was {age.total_seconds() / 60:.0f} minutes old: {ADVICE}.",
        )
        scope = f"watch-{finished:%Y%m%dT%H%M%S}"
        report.found[scope, silence.name] = silence
        alert = raise_about_installation(
            self.store,
            scope,
            silence.cause,
            about="pipeline_watch",
            summary=silence.summary,
            reason=silence.reason,
        )
        report.add(alert)

    def _look_at(self, key: str, report: OutsideReport, *, goes_on: bool) -> None:
        run = self.store.run(key)
        record = RunRecord.load(run.record)
        if record.rental_of is not None:
            return  # it is checked with the run that it belongs to
        told = AlertedRun(record.dag_id, record.run_id, self.link_of(record.dag_id, record.run_id))
        found = OpenRun.read(self.store, run, record)
        look = found.findings if goes_on else found.unused
        for finding in look(self.patience, self.tpu_of):
            report.tell(self.store, told, finding, with_text=self.with_text)
