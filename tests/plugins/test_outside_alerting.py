"""The command for cron, in a process of its own, with no Airflow that runs and no database."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from alerting.outside import main
from pipeline_store.layout import StoreLayout
from tests.pipeline_alerts import situations
from tests.pipeline_alerts.cron import call
from tests.pipeline_alerts.phases import TRAIN, Phase
from tests.pipeline_alerts.servers import Endpoint, web_endpoint
from tests.pipeline_alerts.situations import record_of

AT_ONCE = {"REPRETRAIN_STALLED_MINUTES": "0.00001", "REPRETRAIN_IDLE_TPU_MINUTES": "0.00001"}


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with web_endpoint() as endpoint:
        yield endpoint


@pytest.fixture
def store(tmp_path: Path) -> StoreLayout:
    store = StoreLayout(str(tmp_path / "store"))
    situations.watched_for(store, hours=1)
    return store


def test_what_stands_still_is_delivered_without_airflow(
    store: StoreLayout, endpoint: Endpoint, tmp_path: Path
) -> None:
    phase = Phase.of(store)
    record = phase.ready()
    phase.give_job(record)
    phase.beat(record, TRAIN)
    told = {"REPRETRAIN_ALERT_CONN_IDS": "web", "AIRFLOW_CONN_WEB": endpoint.connection()}
    first = call(store, tmp_path, **told, **AT_ONCE)
    assert (first.code, first.causes) == (1, ["run-stalled", "tpu-without-job"]), first.said
    assert [one.body["cause"] for one in endpoint.requests] == first.causes
    body = endpoint.requests[0].body
    assert body["scope"] == record_of(phase.run).run_key
    assert body["link"].startswith("http://airflow.example.com/dags/Test.DAG/runs/")
    # No connection leads to the TPU service: the store alone is believed.
    assert "was not asked or does not answer" in first.report["findings"][1]["reason"]


def test_nothing_is_told_of_what_goes_on(
    store: StoreLayout, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPRETRAIN_ALERT_CONN_IDS", "web")
    monkeypatch.setenv("AIRFLOW_CONN_WEB", endpoint.connection())
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    phase = Phase.of(store)
    phase.reserve()
    assert main(["--store", store.root]) == 0
    with phase.after(60):
        assert main(["--store", store.root]) == 1
    assert len(endpoint.requests) == 1
    assert main(["--store", store.root]) == 0
    assert len(endpoint.requests) == 1


def test_nobody_to_tell_is_a_problem(
    store: StoreLayout, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("REPRETRAIN_ALERT_CONN_IDS", raising=False)
    assert main(["--store", store.root]) == 1
    [problem] = json.loads(capsys.readouterr().out)["problems"]
    assert "REPRETRAIN_ALERT_CONN_IDS" in problem
    assert "nobody is told" in problem


def test_a_connection_that_only_the_database_has_is_a_problem_and_the_rest_is_done(
    store: StoreLayout, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REPRETRAIN_ALERT_CONN_IDS", "in_the_database")
    phase = Phase.of(store)
    phase.reserve()
    with phase.after(60):
        assert main(["--store", store.root]) == 1
    report = json.loads(capsys.readouterr().out)
    assert [one["cause"] for one in report["findings"]] == ["run-stalled"]
    [problem] = report["problems"]
    assert "was not delivered through in_the_database" in problem
    assert "isn't defined" in problem
