"""With a real Prometheus and Alertmanager: each panel has rows, each fault fires its rule."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from pipeline_config.settings import load_settings
from pipeline_metrics import files
from pipeline_metrics.dashboards import DASHBOARDS
from pipeline_metrics.rules import EXPORTER_DOWN, promql, rules
from tests.pipeline_metrics import servers
from tests.pipeline_metrics.faults import AT_ONCE, FAULTS, wrong
from tests.pipeline_metrics.servers import EXPORTER, Servers
from tests.pipeline_metrics.stores import World

pytestmark = [
    pytest.mark.observe,
    pytest.mark.skipif(bool(servers.why_not()), reason=servers.why_not()),
]
RULES = {rule.name: rule for rule in rules(load_settings({}))}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World.healthy(str(tmp_path_factory.mktemp("world") / "store"))


@pytest.fixture(scope="module")
def watched(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with servers.serving(tmp_path_factory.mktemp("servers"), world.store.root) as running:
        yield running


def test_promtool_finds_nothing_in_rules_and_configurations() -> None:
    assert f"{len(RULES)} rules found" in servers.run(
        "promtool", "check", "rules", files.FOLDER / files.RULES
    )
    servers.run("promtool", "check", "config", files.FOLDER / "prometheus.yaml")
    servers.run("amtool", "check-config", files.FOLDER / "alertmanager.yaml")


def test_promtool_finds_nothing_in_the_metrics(world: World) -> None:
    servers.run("promtool", "check", "metrics", stdin=servers.metrics_of(world.store.root))


def test_promtool_fires_rules_after_their_time(tmp_path: Path) -> None:
    """By a clock of its own: not a minute before, and no longer than the fault."""
    place = tmp_path / "tests.yaml"
    tests = [timed(name, series) for name, series in SERIES.items()]
    content = {"rule_files": [str(files.FOLDER / files.RULES)], "tests": tests}
    place.write_text(yaml.safe_dump(content))
    servers.run("promtool", "test", "rules", place)


SERIES = {
    "RepretrainExporterDown": 'up{job="repretraining"}',
    "RepretrainStoreUnreadable": 'repretrain_store_unreadable{source="runs"}',
    "RepretrainTpusUnreadable": 'repretrain_store_unreadable{source="tpus"}',
    "RepretrainReaperNeverSeen": 'repretrain_store_unreadable{source="reaper"}',
    "RepretrainReaperProblems": 'repretrain_reaper_problems{owner="o", project="p"}',
    "RepretrainRunFailed": 'repretrain_runs_failed_in_a_row{lineage="l", dag="d"}',
    "RepretrainAlertOpen": 'repretrain_alerts_open{cause="overdue", severity="warning", '
    'lineage="l", dag="d"}',
    "RepretrainDataMostlyDropped": 'repretrain_data_newest_dropped_ratio{lineage="l"}',
}
"""Of rules that look at a number; those that look at an age have the clock in their expression."""

CRITICAL = {"RepretrainTpusUnreadable", "RepretrainReaperNeverSeen"}
"""Those of them that go on for some time, as they would end when the exporter stops."""


def timed(name: str, series: str) -> dict[str, object]:
    """Return promtool's test of a rule: 40 minutes of a fault, and 15 without."""
    at_zero = ("RepretrainExporterDown", "RepretrainReaperNeverSeen")
    bad, good = ("0", "1") if name in at_zero else ("1", "0")
    hold = RULES[name].hold.total_seconds() / 60
    moments = [(hold - 1, False)] if hold else []
    kept = EXPORTER_DOWN.total_seconds() / 60 if name in CRITICAL else 0
    moments += [(hold, True), (40, True), (40 + kept, True), (42 + kept, False)]
    labels = dict(part.split("=") for part in series.partition("{")[2].rstrip("}").split(", "))
    labels = {key: value.strip('"') for key, value in labels.items()}
    return {
        "interval": "1m",
        "input_series": [{"series": series, "values": f"{bad}x40 {good}x15"}],
        "alert_rule_test": [
            {
                "eval_time": f"{minute:g}m",
                "alertname": name,
                "exp_alerts": [expected(name, labels, bad)] if fires else [],
            }
            for minute, fires in moments
        ],
    }


def test_promtool_fires_rules_at_an_age(tmp_path: Path) -> None:
    """The clock of its tests begins at 0, as the time in this series: it is as old as the test."""
    rule = RULES["RepretrainTpuLeftOver"]
    assert (rule.condition, rule.hold.total_seconds()) == ("> 1800", 300)
    series = 'repretrain_tpu_state_oldest_timestamp_seconds{lineage="l", state="left_over"}'
    labels = {"lineage": "l", "state": "left_over"}
    alert = expected(rule.name, labels, "36m 0s")
    # The exporter is away then, and nobody knows better. Prometheus looks five minutes back.
    kept = expected(rule.name, labels, "41m 0s")
    content = {
        "rule_files": [str(files.FOLDER / files.RULES)],
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": series, "values": "0x36 _x20"}],
                "alert_rule_test": [
                    {"eval_time": "35m", "alertname": rule.name, "exp_alerts": []},
                    {"eval_time": "36m", "alertname": rule.name, "exp_alerts": [alert]},
                    {"eval_time": "45m", "alertname": rule.name, "exp_alerts": [kept]},
                    {"eval_time": "53m", "alertname": rule.name, "exp_alerts": []},
                ],
            }
        ],
    }
    place = tmp_path / "tests.yaml"
    place.write_text(yaml.safe_dump(content))
    servers.run("promtool", "test", "rules", place)


def expected(name: str, labels: dict[str, str], value: str) -> dict[str, object]:
    """Return what an alert of a rule has to say."""
    [rule] = [
        one
        for one in yaml.safe_load((files.FOLDER / files.RULES).read_text())["groups"][0]["rules"]
        if one["alert"] == name
    ]

    def filled(template: str) -> str:
        template = re.sub(
            r"{{ if \$labels\.(\w+) }}(.*?){{ end }}",
            lambda match: match[2] if labels.get(match[1]) else "",
            template,
        )
        for key, text in labels.items():
            template = template.replace("{{ $labels." + key + " }}", text)
        for how in ("", " | humanizeDuration"):
            template = template.replace("{{ $value" + how + " }}", value)
        share = "{{ $value | humanizePercentage }}"
        return template.replace(share, f"{float(value):.0%}") if share in template else template

    return {
        "exp_labels": labels | {key: filled(text) for key, text in rule["labels"].items()},
        "exp_annotations": {key: filled(text) for key, text in rule["annotations"].items()},
    }


def test_a_healthy_store_fires_nothing_and_each_fault_its_rule(
    world: World, watched: Servers
) -> None:
    for rule in FAULTS:
        watched.until(watched.firing, lambda found: found == set())
        with wrong(world, rule):
            expected = {rule} | AT_ONCE.get(rule, set())
            watched.until(watched.firing, lambda found, expected=expected: found == expected)
    watched.until(watched.firing, lambda found: found == set())


def test_a_dead_exporter_fires(watched: Servers) -> None:
    watched.stop(EXPORTER)
    watched.until(watched.firing, lambda found: "RepretrainExporterDown" in found)
    watched.start(EXPORTER)
    watched.until(watched.firing, lambda found: "RepretrainExporterDown" not in found)


def test_each_query_of_each_panel_and_rule_has_rows(world: World, watched: Servers) -> None:
    for rule in FAULTS:
        next(FAULTS[rule](world))
    queries = [e for board in DASHBOARDS for panel in board.panels for e in panel.expressions]
    queries += [promql(rule.value) for rule in RULES.values()]
    for query in queries:
        asked = query.replace("$lineage", ".*")
        watched.until(
            lambda asked=asked: (asked, watched.query(asked)), lambda found: bool(found[1])
        )
