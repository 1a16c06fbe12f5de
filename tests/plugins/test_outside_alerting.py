"""The command for cron, in a process of its own, with no Airflow that runs and no database."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from alerting.__main__ import main
from pipeline_store.layout import StoreLayout
from tests.pipeline_alerts import situations
from tests.pipeline_alerts.phases import TRAIN, Phase
from tests.pipeline_alerts.servers import Endpoint, web_endpoint
from tests.pipeline_alerts.situations import record_of

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with web_endpoint() as endpoint:
        yield endpoint


@pytest.fixture
def store(tmp_path: Path) -> StoreLayout:
    store = StoreLayout(str(tmp_path / "store"))
    situations.watched_for(store, hours=1)
    return store


@dataclass(frozen=True)
class Called:
    """What came of the command."""

    code: int
    report: dict[str, Any]
    said: str

    @property
    def causes(self) -> list[str]:
        return [one["cause"] for one in self.report["findings"]]


def call(store: StoreLayout, **variables: str) -> Called:
    """Run the command as cron does: with nothing but what is named in the environment."""
    home = Path(store.root).parent
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "AIRFLOW_HOME": str(home / "airflow"),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": "postgresql+psycopg2://nobody@127.0.0.1:1/none",
        "AIRFLOW__API__BASE_URL": "http://airflow.example.com",
        "NO_PROXY": "127.0.0.1",
        "PYTHONPATH": "plugins",
        "REPRETRAIN_STORE_URI": store.root,
        "REPRETRAIN_STALLED_MINUTES": "0.00001",
        "REPRETRAIN_IDLE_TPU_MINUTES": "0.00001",
        **variables,
    }
    done = subprocess.run(
        [sys.executable, "-m", "alerting"],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr
    return Called(done.returncode, json.loads(done.stdout.splitlines()[-1]), done.stderr)


def test_what_stands_still_is_delivered_without_airflow_and_clears(
    store: StoreLayout, endpoint: Endpoint
) -> None:
    phase = Phase.of(store)
    record = phase.ready()
    phase.give_job(record)
    phase.beat(record, TRAIN)
    told = {"REPRETRAIN_ALERT_CONN_IDS": "web", "AIRFLOW_CONN_WEB": endpoint.connection()}
    first = call(store, **told)
    assert (first.code, first.causes) == (1, ["run-stalled", "tpu-without-job"]), first.said
    assert [one.body["cause"] for one in endpoint.requests] == first.causes
    body = endpoint.requests[0].body
    assert body["scope"] == record_of(phase.run).run_key
    assert body["link"].startswith("http://airflow.example.com/dags/Test.DAG/runs/")
    # No connection leads to the TPU service: the store alone is believed.
    assert "was not asked or does not answer" in first.report["findings"][1]["reason"]
    well = call(store, **told, REPRETRAIN_STALLED_MINUTES="30", REPRETRAIN_IDLE_TPU_MINUTES="20")
    assert (well.code, well.causes, len(well.report["cleared"])) == (0, [], 2), well.said
    assert len(endpoint.requests) == 2


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
