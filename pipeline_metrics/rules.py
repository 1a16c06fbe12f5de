"""Defines the alerting rules for Prometheus and Alertmanager.

They also work when our own alerts cannot: ``pipeline_watch`` needs Airflow, while these need only
the store and the exporter.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pipeline_alerts.causes import Severity, page_address, runbook
from pipeline_config.settings import Settings
from pipeline_metrics.catalogue import PREFIX

JOB = "repretraining"
"""Job name of the exporter in Prometheus' configuration."""

DOCUMENT = "docs/operate/metrics.md"
COMPOSE = "docker compose -f docker/compose/compose.yaml"

_LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")
"""Matches a Markdown link."""


@dataclass(frozen=True)
class Rule:
    """One alerting rule.

    :ivar value: the compared value in PromQL; ``~`` stands for the prefix of our metrics.
    :ivar condition: the rest of the expression.
    :ivar hold: how long the expression has to be true.
    :ivar severity: the severity; None: that of the metric's label ``severity``.
    :ivar summary: one sentence, as a Prometheus template.
    :ivar action: what to do, for the page.
    """

    name: str
    value: str
    condition: str
    hold: timedelta
    severity: Severity | None
    summary: str
    action: str

    @property
    def query(self) -> str:
        """Return the expression in PromQL."""
        return promql(f"{self.value} {self.condition}")

    @property
    def anchor(self) -> str:
        """Return the anchor of its section on the page."""
        return self.name.lower()


def promql(expression: str) -> str:
    """Return an expression with each ``~`` replaced by the prefix of our metrics."""
    return re.sub(r"~(?=[a-z])", PREFIX, expression)


def _minutes(minutes: float) -> timedelta:
    return timedelta(minutes=minutes)


NOW = timedelta(0)
EXPORTER_DOWN = timedelta(minutes=10)
"""How long the exporter may be down; critical alerts keep firing meanwhile, instead of ending."""


def rules(settings: Settings) -> tuple[Rule, ...]:
    """Return all rules.

    :param settings: the installation's settings, with the time limits.
    """
    overdue, idle = settings.overdue_hours * 3600, settings.idle_tpu_minutes * 60
    everything = (
        Rule(
            "RepretrainExporterDown",
            f'up{{job="{JOB}"}}',
            f'== 0 or absent(up{{job="{JOB}"}})',
            EXPORTER_DOWN,
            Severity.CRITICAL,
            "The exporter does not answer, or Prometheus has no job of this name: all other rules "
            "are blind",
            "Start it and look at its log: on the team server by "
            f"`{COMPOSE} --profile observe up -d metrics`, on a laptop by `make up OBSERVE=1`, "
            "elsewhere by `python -m pipeline_metrics serve`.",
        ),
        Rule(
            "RepretrainStoreUnreadable",
            '~store_unreadable{source!="tpus"}',
            "> 0",
            _minutes(10),
            Severity.WARNING,
            "{{ $value }} file(s) for metrics of {{ $labels.source }} cannot be read",
            "The exporter's log names each file and what is wrong with it. Restore it from a "
            "backup or an older generation of the object; if all sources fail, the store is not "
            "reached.",
        ),
        Rule(
            "RepretrainTpusUnreadable",
            '~store_unreadable{source="tpus"}',
            "> 0",
            _minutes(10),
            Severity.CRITICAL,
            "TPUs of {{ $value }} run(s) cannot be read: one may be billed and not be seen here",
            "`python -m tpu_lifecycle list` asks the cloud. The exporter's log names the files; "
            "restore them as for [RepretrainStoreUnreadable](#repretrainstoreunreadable).",
        ),
        Rule(
            "RepretrainReaperNeverSeen",
            '~store_unreadable{source="reaper"}',
            "== 0 unless on (instance) ~reaper_pass_timestamp_seconds",
            _minutes(30),
            Severity.CRITICAL,
            "No TPU reaper has ever made a pass in this store",
            "As for [RepretrainReaperSilent](#repretrainreapersilent).",
        ),
        Rule(
            "RepretrainReaperSilent",
            "time() - max by (instance, owner) (~reaper_pass_timestamp_seconds)",
            "> 3600",
            _minutes(5),
            Severity.CRITICAL,
            "The TPU reaper of {{ $labels.owner }} made no pass for "
            "{{ $value | humanizeDuration }}",
            "Unpause the DAG `tpu_reaper`, or run `python -m tpu_lifecycle reap --once`.",
        ),
        Rule(
            "RepretrainReaperProblems",
            "~reaper_problems",
            "> 0",
            _minutes(30),
            Severity.WARNING,
            "The TPU reaper of {{ $labels.owner }} in {{ $labels.project }} has problems",
            "`python -m tpu_lifecycle reaper-status` says which.",
        ),
        Rule(
            "RepretrainWatchNeverSeen",
            '~store_unreadable{source="watch"}',
            "== 0 unless on (instance) ~watch_pass_timestamp_seconds",
            _minutes(30),
            Severity.CRITICAL,
            "pipeline_watch has never made a pass in this store: nobody is told",
            "As for [RepretrainWatchSilent](#repretrainwatchsilent).",
        ),
        Rule(
            "RepretrainWatchSilent",
            "time() - ~watch_pass_timestamp_seconds",
            "> 1800",
            _minutes(5),
            Severity.CRITICAL,
            "pipeline_watch made no pass for {{ $value | humanizeDuration }}: nobody is told",
            f"Start Airflow's scheduler, by `{COMPOSE} up -d scheduler` on the team server, "
            "`make up` on a laptop, and unpause the DAG `pipeline_watch`.",
        ),
        Rule(
            "RepretrainTpuLeftOver",
            'time() - ~tpu_state_oldest_timestamp_seconds{state="left_over"}',
            "> 1800",
            _minutes(5),
            Severity.CRITICAL,
            "A TPU of lineage {{ $labels.lineage }} is not given back for "
            "{{ $value | humanizeDuration }}",
            "`python -m tpu_lifecycle list` shows it, `python -m tpu_lifecycle reap --once` "
            "deletes what nobody looks after.",
        ),
        Rule(
            "RepretrainTpuIdle",
            'time() - ~tpu_state_oldest_timestamp_seconds{state="idle"}',
            f"> {idle:g}",
            _minutes(5),
            Severity.CRITICAL,
            "A TPU of lineage {{ $labels.lineage }} has no job for {{ $value | humanizeDuration }}",
            "As for [tpu-without-job](alerts.md#tpu-without-job): look whether Airflow's scheduler "
            "works and the DAG is not paused.",
        ),
        Rule(
            "RepretrainTpuQueueLong",
            'time() - ~tpu_state_oldest_timestamp_seconds{state="queued"}',
            "> 6 * 3600",
            _minutes(5),
            Severity.WARNING,
            "Lineage {{ $labels.lineage }} waits for a TPU for {{ $value | humanizeDuration }}, "
            "over all attempts",
            "Nothing is billed meanwhile. More `tpu.zones`, or another `tpu.accelerator_type` or "
            "`tpu.provisioning_model`, get one sooner.",
        ),
        Rule(
            "RepretrainJobSilent",
            "time() - ~job_heartbeat_timestamp_seconds",
            "> 600",
            _minutes(5),
            Severity.CRITICAL,
            "A TPU with a job of lineage {{ $labels.lineage }} is silent for "
            "{{ $value | humanizeDuration }}",
            "The run replaces a silent TPU by itself: look whether Airflow's triggerer works, by "
            f"`{COMPOSE} ps` on the team server, `make status` on a laptop.",
        ),
        Rule(
            "RepretrainRunFailed",
            "~runs_failed_in_a_row",
            "> 0",
            NOW,
            Severity.WARNING,
            "The newest {{ $value }} run(s) of {{ $labels.dag }} on lineage {{ $labels.lineage }} "
            "failed",
            "The page *Models* lists them with their reasons; the run's alert says what to do.",
        ),
        Rule(
            "RepretrainRejectedRepeatedly",
            "~runs_rejected_in_a_row",
            ">= 3",
            NOW,
            Severity.WARNING,
            "The newest {{ $value }} candidates of lineage {{ $labels.lineage }} were rejected",
            "As for [rejected](alerts.md#rejected): look at the text that arrives, and at the "
            "losses by set.",
        ),
        Rule(
            "RepretrainRunOverdue",
            "time() - ~run_oldest_start_timestamp_seconds",
            f"> {overdue:g}",
            _minutes(5),
            Severity.WARNING,
            "A run of {{ $labels.dag }} on lineage {{ $labels.lineage }} takes "
            "{{ $value | humanizeDuration }}",
            "As for [overdue](alerts.md#overdue).",
        ),
        Rule(
            "RepretrainLineageQueueLong",
            "time() - ~lineage_waiting_oldest_timestamp_seconds",
            "> 24 * 3600",
            _minutes(5),
            Severity.WARNING,
            "A run waits for lineage {{ $labels.lineage }} for {{ $value | humanizeDuration }}",
            "The page *Models* says who holds it: an approval that nobody gives, or updates that "
            "take longer than partitions come.",
        ),
        Rule(
            "RepretrainLeaseExpired",
            "time() - ~lineage_lease_expiry_timestamp_seconds",
            "> 0",
            _minutes(5),
            Severity.WARNING,
            "A run holds lineage {{ $labels.lineage }} beyond the time that it may take",
            "Look at that run in Airflow: it is paused, or waits for something that does not come.",
        ),
        Rule(
            "RepretrainPartitionWaiting",
            "time() - ~corpus_waiting_oldest_timestamp_seconds",
            "> 6 * 3600",
            _minutes(5),
            Severity.WARNING,
            "A partition waits for a run for {{ $value | humanizeDuration }}",
            "`corpus_watch` says in its log why a partition is not complete; look also whether "
            "that DAG and `corpus_arrivals` are unpaused.",
        ),
        Rule(
            "RepretrainModelOld",
            "time() - ~model_promotion_timestamp_seconds",
            "> 14 * 86400",
            _minutes(5),
            Severity.WARNING,
            "The model of lineage {{ $labels.lineage }} is in use for "
            "{{ $value | humanizeDuration }}",
            "Look whether text arrives, runs start, and why the last ones were not promoted.",
        ),
        Rule(
            "RepretrainDataMostlyDropped",
            "~data_newest_dropped_ratio",
            "> 0.5",
            NOW,
            Severity.WARNING,
            "{{ $value | humanizePercentage }} of the newest partition of lineage "
            "{{ $labels.lineage }} is not used",
            "The [data report](data-report.md) says why, reason by reason.",
        ),
        Rule(
            "RepretrainGoodputLow",
            "~tpu_goodput_ratio",
            "< 0.5 and on (lineage) sum by (lineage) (~tpu_chip_seconds) > 10 * 3600",
            _minutes(5),
            Severity.WARNING,
            "Only {{ $value | humanizePercentage }} of the TPU time of lineage "
            "{{ $labels.lineage }} went into steps that were kept",
            "The page *Spending* says what the rest went to.",
        ),
        Rule(
            "RepretrainAlertOpen",
            '~alerts_open{severity!="info"}',
            "> 0",
            NOW,
            None,
            "{{ $value }} alert(s) {{ $labels.cause }} of the pipeline itself"
            "{{ if $labels.lineage }}, lineage {{ $labels.lineage }}{{ end }}"
            "{{ if $labels.dag }}, DAG {{ $labels.dag }}{{ end }}",
            "`python -m pipeline_alerts list`; the runbook has a [section](alerts.md) for each "
            "cause.",
        ),
    )
    # Zero minutes mean never, as in the alerts of the watch.
    return tuple(one for one in everything if idle or one.name != "RepretrainTpuIdle")


def rule_file(settings: Settings) -> dict[str, Any]:
    """Return the content of Prometheus' rule file."""
    return {"groups": [{"name": JOB, "rules": [_rule(one, settings) for one in rules(settings)]}]}


def _rule(rule: Rule, settings: Settings) -> Mapping[str, Any]:
    address = f"{page_address(DOCUMENT, settings.docs_url)}#{rule.anchor}"
    if rule.severity is None:
        # One rule for all causes, each of which has a severity and a section of its own.
        address = runbook("test", settings.docs_url).replace("#test", "#{{ $labels.cause }}")
    is_critical = rule.severity is Severity.CRITICAL and rule.name != "RepretrainExporterDown"
    kept = {"keep_firing_for": f"{EXPORTER_DOWN.total_seconds():.0f}s"} if is_critical else {}
    return {
        "alert": rule.name,
        "expr": rule.query,
        "for": f"{rule.hold.total_seconds():.0f}s",
        **kept,
        "labels": {"severity": str(rule.severity or "{{ $labels.severity }}")},
        "annotations": {
            "summary": rule.summary,
            "description": _LINK.sub(r"\1", rule.action),
            # Without an address of the documentation site it would be a dead link.
            **({"runbook_url": address} if settings.docs_url else {}),
        },
    }
