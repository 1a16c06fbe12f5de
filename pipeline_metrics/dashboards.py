"""Defines the Grafana dashboards: their panels and queries, as the JSON that Grafana imports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pipeline_metrics.rules import promql

SCHEMA = 39
"""Version of Grafana's dashboard format: that of Grafana 10.4, which later versions migrate."""

SOURCE = {"type": "prometheus", "uid": "${source}"}
LINEAGE = '{lineage=~"$lineage"}'
WIDTH, HEIGHT, COLUMNS = 8, 8, 3


@dataclass(frozen=True)
class Panel:
    """One panel of a dashboard.

    :ivar queries: legend by expression; in expressions ``~`` stands for the prefix of our metrics.
    :ivar unit: Grafana's name of the unit.
    """

    title: str
    queries: dict[str, str]
    unit: str = "short"
    kind: str = "timeseries"

    @property
    def expressions(self) -> list[str]:
        """Return its queries in PromQL, except for Grafana's ``$lineage``."""
        return [promql(expression) for expression in self.queries]


@dataclass(frozen=True)
class Dashboard:
    """One page of panels.

    :ivar uid: part of its address, and the name of its file.
    """

    uid: str
    title: str
    panels: tuple[Panel, ...]


DASHBOARDS = (
    Dashboard(
        "repretraining-operation",
        "Re-pretraining: operation",
        (
            Panel(
                "Runs by outcome",
                {f"sum by (outcome) (~runs{LINEAGE})": "{{outcome}}"},
            ),
            Panel(
                "Failed and rejected in a row",
                {
                    f"~runs_failed_in_a_row{LINEAGE}": "failed, {{dag}}",
                    f"~runs_rejected_in_a_row{LINEAGE}": "rejected, {{dag}}",
                },
            ),
            Panel(
                "Age of the oldest open run",
                {f"time() - ~run_oldest_start_timestamp_seconds{LINEAGE}": "{{lineage}}, {{dag}}"},
                "s",
            ),
            Panel(
                "Partitions without a run",
                {"~corpus_waiting_partitions": "partitions"},
                kind="stat",
            ),
            Panel(
                "The one that waits longest",
                {"time() - ~corpus_waiting_oldest_timestamp_seconds": "waits"},
                "s",
                "stat",
            ),
            Panel(
                "Since the corpus grew",
                {"time() - ~corpus_grown_timestamp_seconds": "age"},
                "s",
                "stat",
            ),
            Panel(
                "Who holds a lineage, and who waits",
                {
                    f"~lineage_lease_held{LINEAGE}": "held: {{lineage}}",
                    f"~lineage_waiting_runs{LINEAGE}": "waiting: {{lineage}}",
                },
            ),
            Panel(
                "Age of the lease, and of the longest wait",
                {
                    f"time() - ~lineage_lease_acquired_timestamp_seconds{LINEAGE}": "held: "
                    "{{lineage}}",
                    f"time() - ~lineage_waiting_oldest_timestamp_seconds{LINEAGE}": "waiting: "
                    "{{lineage}}",
                },
                "s",
            ),
            Panel(
                "Time that the lease has left",
                {f"~lineage_lease_expiry_timestamp_seconds{LINEAGE} - time()": "{{lineage}}"},
                "s",
            ),
            Panel(
                "Since the last pass",
                {
                    "time() - ~reaper_pass_timestamp_seconds": "reaper of {{owner}}, {{project}}",
                    "time() - ~watch_pass_timestamp_seconds": "watch",
                },
                "s",
            ),
            Panel(
                "Problems of the last pass",
                {
                    "~reaper_problems": "reaper of {{owner}}, {{project}}",
                    "~watch_problems": "watch",
                },
            ),
            Panel("Open alerts by cause", {"~alerts_open": "{{cause}}"}),
            Panel(
                "Unreadable files",
                {
                    "~store_unreadable": "now: {{source}}",
                    "rate(~store_read_errors_total[15m])": "errors a second: {{source}}",
                },
            ),
            Panel("Time to read the store", {"~store_read_duration_seconds": "seconds"}, "s"),
            Panel(
                "Age of the last reading",
                {"time() - ~store_read_timestamp_seconds": "age"},
                "s",
                "stat",
            ),
        ),
    ),
    Dashboard(
        "repretraining-tpus",
        "Re-pretraining: TPUs and money",
        (
            Panel("Chips by state", {f"sum by (state) (~tpu_chips{LINEAGE})": "{{state}}"}),
            Panel(
                "Longest in a state",
                {
                    f"time() - min by (state) (~tpu_state_oldest_timestamp_seconds{LINEAGE})": (
                        "{{state}}"
                    )
                },
                "s",
            ),
            Panel(
                "Age of the oldest heartbeat",
                {f"time() - ~job_heartbeat_timestamp_seconds{LINEAGE}": "{{lineage}}, {{dag}}"},
                "s",
            ),
            Panel("Goodput", {f"~tpu_goodput_ratio{LINEAGE}": "{{lineage}}"}, "percentunit"),
            Panel(
                "What chip-seconds went to",
                {
                    f"sum by (spent_on) (~tpu_chip_seconds{LINEAGE}) / scalar(sum("
                    f"~tpu_chip_seconds{LINEAGE}))": "{{spent_on}}"
                },
                "percentunit",
            ),
            Panel(
                "Chip-hours",
                {f"sum by (lineage) (~tpu_chip_seconds{LINEAGE}) / 3600": "{{lineage}}"},
            ),
            Panel(
                "Cost at most",
                {
                    f"~tpu_cost{LINEAGE}": "{{lineage}}, {{currency}}",
                    f"~tpu_rejected_cost{LINEAGE}": "rejected candidates: {{lineage}}",
                },
            ),
            Panel(
                "Cost of losses",
                {f"~tpu_lost_cost{LINEAGE}": "to {{to}}: {{lineage}}, {{currency}}"},
            ),
            Panel("Saved by spot", {f"~tpu_saved_cost{LINEAGE}": "{{lineage}}, {{currency}}"}),
        ),
    ),
    Dashboard(
        "repretraining-models",
        "Re-pretraining: models and data",
        (
            Panel(
                "Losses of the run at work",
                {f"~job_loss_nats{LINEAGE}": "{{rows}}: {{lineage}}, {{dag}}"},
            ),
            Panel(
                "Progress", {f"~job_progress_ratio{LINEAGE}": "{{lineage}}, {{dag}}"}, "percentunit"
            ),
            Panel("Time left", {f"~job_remaining_seconds{LINEAGE}": "{{lineage}}, {{dag}}"}, "s"),
            Panel("Time of a step", {f"~job_step_duration_seconds{LINEAGE}": "{{lineage}}"}, "s"),
            Panel("Tokens a second", {f"~job_tokens_per_second{LINEAGE}": "{{lineage}}, {{dag}}"}),
            Panel(
                "Losses around the model in use",
                {f"~model_loss_nats{LINEAGE}": "{{of}}: {{lineage}}"},
            ),
            Panel(
                "Age of the model in use",
                {f"time() - ~model_promotion_timestamp_seconds{LINEAGE}": "{{lineage}}"},
                "s",
            ),
            Panel("Partitions that it has seen", {f"~model_partitions{LINEAGE}": "{{lineage}}"}),
            Panel(
                "Version in use",
                {f"~model_info{LINEAGE}": "{{lineage}}: {{version}}"},
                kind="stat",
            ),
            Panel(
                "Documents by what became of them",
                {f"sum by (fate) (~data_documents{LINEAGE})": "{{fate}}"},
            ),
            Panel("Tokens", {f"~data_tokens{LINEAGE}": "{{split}}: {{lineage}}"}),
            Panel(
                "The newest partition",
                {
                    f"~data_newest_dropped_ratio{LINEAGE}": "not used: {{lineage}}",
                    f"~data_newest_unknown_ratio{LINEAGE}": "unknown tokens: {{lineage}}",
                },
                "percentunit",
            ),
        ),
    ),
)


def dashboard_file(dashboard: Dashboard) -> dict[str, Any]:
    """Return the content of a dashboard's file."""
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "tags": ["repretraining"],
        "schemaVersion": SCHEMA,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-24h", "to": "now"},
        "templating": {"list": [_source_variable(), _lineage_variable()]},
        "panels": [_panel(number, panel) for number, panel in enumerate(dashboard.panels)],
    }


def _source_variable() -> dict[str, Any]:
    return {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}


def _lineage_variable() -> dict[str, Any]:
    query = f"label_values({promql('~lineage_lease_held')}, lineage)"
    return {
        "name": "lineage",
        "label": "Lineage",
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": "lineage"},
        "definition": query,
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    row, column = divmod(number, COLUMNS)
    targets = [
        {"refId": chr(ord("A") + n), "datasource": SOURCE, "expr": expression, "legendFormat": name}
        for n, (expression, name) in enumerate(
            zip(panel.expressions, panel.queries.values(), strict=True)
        )
    ]
    return {
        "id": number + 1,
        "title": panel.title,
        "type": panel.kind,
        "datasource": SOURCE,
        "gridPos": {"x": column * WIDTH, "y": row * HEIGHT, "w": WIDTH, "h": HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "targets": targets,
    }
