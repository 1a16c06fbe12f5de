"""The stack with metrics: beside Airflow, and without it."""

from __future__ import annotations

import time
from pathlib import Path

import httpx
import pytest

from local.stack import observation, processes, settings
from local.stack.__main__ import main
from local.stack.paths import RuntimePaths, StackError, StatePaths
from local.stack.settings import ALERTMANAGER, METRICS, PROMETHEUS
from local.stack.stack import Stack
from pipeline_config.settings import load_settings
from pipeline_metrics import files
from tests.pipeline_metrics import servers

OF_ALL = {name: 11 + at for at, name in enumerate(settings.PORT_NAMES)}
PORTS = OF_ALL | {METRICS: 4, PROMETHEUS: 5}
PROMISED = (METRICS, PROMETHEUS, ALERTMANAGER)
OBSERVED = PORTS | {ALERTMANAGER: 6}


def test_without_the_programs_the_exporter_runs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert observation.missing_programs() == ["prometheus", "prometheus-alertmanager"]
    assert observation.observers() == (METRICS,)


def test_only_what_has_a_port_is_a_part(tmp_path: Path) -> None:
    paths = StatePaths(tmp_path)
    found = [
        [p.name for p in observation.observer_parts(paths, some)] for some in (PORTS, OBSERVED)
    ]
    assert found == [[METRICS, PROMETHEUS], [METRICS, PROMETHEUS, ALERTMANAGER]]
    assert observation.observer_parts(paths, {"api-server": 1}) == ()


def test_prometheus_gets_these_ports_and_rules_by_the_stacks_settings(tmp_path: Path) -> None:
    chosen = load_settings({"REPRETRAIN_OVERDUE_HOURS": "50"})
    observation.configure(StatePaths(tmp_path), OBSERVED, chosen)
    folder = StatePaths(tmp_path).observation
    written = (folder / "prometheus.yaml").read_text()
    assert "127.0.0.1:4" in written
    assert "127.0.0.1:6" in written
    assert "metrics:9977" not in written
    assert "> 180000" in (folder / files.RULES).read_text()


def test_pages_link_to_prometheus_only_where_it_runs(tmp_path: Path) -> None:
    paths, runtime = StatePaths(tmp_path), RuntimePaths(Path("/tmp/r"))
    name, alone = "REPRETRAIN_METRICS_URL", {k: v for k, v in PORTS.items() if k != PROMETHEUS}
    assert settings.environment(paths, runtime, PORTS, {})[name] == "http://127.0.0.1:5"
    assert name not in settings.environment(paths, runtime, alone, {})


@pytest.mark.observe
@pytest.mark.skipif(bool(servers.why_not()), reason=servers.why_not())
def test_a_stack_that_is_observed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = str(tmp_path / "state")
    try:
        assert main(["up", "--observe", "--state-dir", place]) == 0
        told = capsys.readouterr().out
        stack = Stack(place)
        status = stack.status()
        watching = {part.name: part.problem for part in status.parts if part.name in PROMISED}
        assert watching == dict.fromkeys(PROMISED)
        assert list(status.observers) == list(PROMISED)
        assert all(address in told for address in status.observers.values())
        listeners = processes.listeners(processes.find(stack.paths))
        assert {listener.address for listener in listeners} == {"127.0.0.1"}
        query = f"{status.observers[PROMETHEUS]}/api/v1/query"
        assert rows(query, 'up{job="repretraining"} == 1')
        assert rows(query, "repretrain_corpus_waiting_partitions")
        managers = f"{status.observers[PROMETHEUS]}/api/v1/alertmanagers"
        found = httpx.get(managers, trust_env=False).json()["data"]["activeAlertmanagers"]
        assert [one["url"] for one in found] == [f"{status.observers[ALERTMANAGER]}/api/v2/alerts"]
    finally:
        assert main(["down", "--state-dir", place]) == 0
    assert processes.find(stack.paths) == []


def rows(query: str, expression: str) -> list[object]:
    """Ask until a query has rows: Prometheus looks every half a minute."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        answer = httpx.get(query, params={"query": expression}, trust_env=False).json()
        if found := answer["data"]["result"]:
            return list(found)
        time.sleep(1)
    raise AssertionError(f"no rows of {expression}")


def test_a_running_stack_is_not_observed_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Running(Stack):
        def _running(self):  # type: ignore[no-untyped-def]
            return self._summary(self._record(), ())

    stack = Running(tmp_path, observe=True, say=lambda _: None)
    stack.paths.create()
    Stack(tmp_path, say=lambda _: None)._prepare()
    with pytest.raises(StackError, match="without metrics"):
        stack.up()
