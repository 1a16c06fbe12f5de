"""Alerts of a real Airflow, to a real mail server and web endpoint: also when nobody is called."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil
import pytest

from local.stack.airflow_api import AirflowApi
from local.stack.stack import Stack
from pipeline_store import identity, uris
from pipeline_store.formats import OutcomeKind, RunOutcome, WatchPass
from pipeline_store.layout import RunLayout, StoreLayout
from tests.pipeline_alerts import situations
from tests.pipeline_alerts.servers import Endpoint, Mailbox, mail_server, web_endpoint
from tests.stack.driver import until

pytestmark = [pytest.mark.stack, pytest.mark.thorough]

DAG_ID = "alert_probe"
WATCH = "pipeline_watch"
OVERDUE_SECONDS = 20
SECONDS = 300.0
AIRFLOW = {
    # All runs work at once, and the watch beside them.
    "AIRFLOW__CORE__PARALLELISM": "8",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_SEC": "5",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "20",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "5",
    "REPRETRAIN_ALERT_CONN_IDS": "alerts_mail,alerts_web",
    "REPRETRAIN_OVERDUE_HOURS": str(OVERDUE_SECONDS / 3600),
    "NO_PROXY": "127.0.0.1",
}


@dataclass(frozen=True)
class Alarmed:
    """A stack that tells a mail server and a web endpoint."""

    api: AirflowApi
    store: StoreLayout
    mailbox: Mailbox
    endpoint: Endpoint

    def working_runs(self, count: int) -> list[str]:
        """Start runs and return their ids when the work of all is under way.

        Work that is under way has recorded its run.
        """
        run_ids = [self.api.trigger(DAG_ID) for _ in range(count)]
        for run_id in run_ids:
            record = self.run(run_id).record
            until(partial(uris.exists, record), seconds=SECONDS, name=f"the work of {run_id}")
        return run_ids

    def state(self, run_id: str, task_id: str) -> str | None:
        tasks = self.api.task_instances(DAG_ID, run_id)
        return next(task.state for task in tasks if task.task_id == task_id)

    def run(self, run_id: str) -> RunLayout:
        return self.store.run(identity.run_key(DAG_ID, run_id))

    def watch(self) -> None:
        """Let the watch make a pass of its own."""
        run_id = self.api.trigger(WATCH)
        assert self.api.wait_for_run(WATCH, run_id, seconds=SECONDS).state == "success"

    def posted(self, run_id: str) -> list[dict[str, Any]]:
        """Return what the web endpoint was told of a run."""
        scope = identity.run_key(DAG_ID, run_id)
        return [r.body for r in self.endpoint.requests if r.body["scope"] == scope]

    def links(self, run_id: str) -> dict[str, str]:
        """Return the links that were told of a run, by cause, without the run's own page."""
        page = f"{self.api.base_url}/dags/{DAG_ID}/runs/{quote(run_id, safe='')}"
        return {body["cause"]: body["link"].removeprefix(page) for body in self.posted(run_id)}

    def told(self, run_id: str) -> list[str]:
        """Return the causes that were told of a run, by mail and web alike."""
        scope = identity.run_key(DAG_ID, run_id)
        posted = [body["cause"] for body in self.posted(run_id)]
        folder, cause = f"runs/{scope} of the store", re.compile(r"^Cause: ([a-z-]+)", re.MULTILINE)
        texts = [self.mailbox.part("plain", n) for n in range(len(self.mailbox.letters))]
        mailed = [cause.findall(text)[0] for text in texts if folder in text]
        if sorted(mailed) != sorted(posted):
            return [f"mailed: {mailed}", f"posted: {posted}"]
        return sorted(posted)

    def told_failures(self, run_id: str) -> list[str]:
        """Return the same without that the run is late, which a slow machine makes any run."""
        return [cause for cause in self.told(run_id) if cause != "overdue"]

    def outcome(self, run_id: str) -> OutcomeKind:
        return RunOutcome.load(self.run(run_id).outcome).outcome


@pytest.fixture(scope="module")
def alarmed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alarmed]:
    folder = tmp_path_factory.mktemp("alarmed")
    dags = folder / "dags"
    dags.mkdir()
    repository = Path(__file__).parents[2]
    shutil.copy(repository / "dags" / f"{WATCH}.py", dags)
    shutil.copy(Path(__file__).with_name(f"{DAG_ID}.py"), dags)
    with mail_server() as mailbox, web_endpoint() as endpoint:
        environment = {
            "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
            "AIRFLOW_CONN_ALERTS_MAIL": mailbox.connection(),
            "AIRFLOW_CONN_ALERTS_WEB": endpoint.connection(),
        }
        stack = Stack(folder / "state", extra_environment=AIRFLOW | environment)
        with stack, stack.api() as api:
            for dag_id in (DAG_ID, WATCH):
                api.wait_for_dag(dag_id)
            api.unpause(DAG_ID)
            yield Alarmed(api, StoreLayout(str(stack.paths.store)), mailbox, endpoint)


def titled(process: psutil.Process, title: str) -> bool:
    """Return whether a process calls itself so; the title of a supervisor may name the task too."""
    try:
        return " ".join(process.cmdline()).startswith(title)
    except psutil.Error:
        return False


def lose_heartbeat(alarmed: Alarmed, run_id: str, task_id: str) -> None:
    """Kill a task's supervisor, then its process: nobody sends its heartbeat any more."""
    tasks = alarmed.api.task_instances(DAG_ID, run_id)
    instance = next(task.instance_id for task in tasks if task.task_id == task_id)
    [process] = [p for p in psutil.process_iter() if titled(p, f"airflow worker -- {instance}")]
    for victim in (psutil.Process(process.ppid()), process):
        victim.kill()


@dataclass(frozen=True)
class Runs:
    """Runs that end in ways of which Airflow says little or nothing, and one that goes on."""

    lost_heartbeat: str
    failed_by_person: str
    failed_task_by_person: str
    deleted: str
    going_on: str


@pytest.fixture(scope="module")
def runs(alarmed: Alarmed) -> Runs:
    """Start all runs at once: each waits for processes that Airflow starts."""
    # Until Airflow has made its calls of those that end: a pass of the watch could be first.
    alarmed.api.pause(WATCH)
    return Runs(*alarmed.working_runs(5))


@pytest.fixture(scope="module")
def ended(alarmed: Alarmed, runs: Runs) -> Runs:
    """End four runs at once, and let the watch look twice: what is told again would be seen."""
    api, ended = alarmed.api, runs
    lose_heartbeat(alarmed, ended.lost_heartbeat, "work")
    api.mark_run(DAG_ID, ended.failed_by_person, "failed")
    api.mark_task(DAG_ID, ended.failed_task_by_person, "work", "failed")
    api.mark_run(DAG_ID, ended.deleted, "failed")
    api.request("DELETE", f"/dags/{DAG_ID}/dagRuns/{quote(ended.deleted, safe='')}")
    for run_id in (ended.lost_heartbeat, ended.failed_task_by_person):
        assert api.wait_for_run(DAG_ID, run_id, seconds=SECONDS).state == "failed"
        # Airflow's callbacks tell it, without the watch.
        until(partial(alarmed.told_failures, run_id), name=f"the alert of {run_id}")
    api.unpause(WATCH)
    alarmed.watch()
    alarmed.watch()
    return ended


def test_a_lost_heartbeat_is_told_once(alarmed: Alarmed, ended: Runs) -> None:
    # Airflow may call twice, and says that the run failed besides.
    assert alarmed.told_failures(ended.lost_heartbeat) == ["task-failed"]
    assert alarmed.links(ended.lost_heartbeat)["task-failed"] == "/tasks/work"
    assert alarmed.outcome(ended.lost_heartbeat) is OutcomeKind.FAILED


def test_a_run_that_a_person_fails_is_told_once(alarmed: Alarmed, ended: Runs) -> None:
    assert alarmed.told_failures(ended.failed_by_person) == ["ended-without-outcome"]
    assert alarmed.outcome(ended.failed_by_person) is OutcomeKind.CANCELLED


def test_a_task_that_a_person_fails_is_told_once(alarmed: Alarmed, ended: Runs) -> None:
    assert alarmed.told_failures(ended.failed_task_by_person) == ["run-failed"]
    assert alarmed.outcome(ended.failed_task_by_person) is OutcomeKind.FAILED


def test_a_run_that_was_deleted_is_told_once(alarmed: Alarmed, ended: Runs) -> None:
    assert alarmed.told_failures(ended.deleted) == ["ended-without-outcome"]
    assert alarmed.outcome(ended.deleted) is OutcomeKind.CANCELLED


def test_a_run_that_goes_on_is_told_to_be_late_and_to_wait_for_a_person(
    alarmed: Alarmed, ended: Runs
) -> None:
    run_id = ended.going_on
    situations.asked(alarmed.run(run_id))
    place = alarmed.store.alert(identity.run_key(DAG_ID, run_id), "overdue")

    def is_told() -> bool:
        alarmed.watch()
        return uris.exists(place)

    until(is_told, name="a pass that finds the run overdue")
    alarmed.watch()
    assert alarmed.told(run_id) == ["approval-waiting", "overdue"]
    links = alarmed.links(run_id)
    assert links == {"approval-waiting": "/required_actions", "overdue": ""}
    assert alarmed.state(run_id, "work") == "running"
    alarmed.api.mark_run(DAG_ID, run_id, "failed")


def test_the_watch_looks_by_itself(alarmed: Alarmed) -> None:
    def has_looked() -> bool:
        runs = alarmed.api.runs(WATCH)
        return any(run.run_id.startswith("scheduled__") and run.state == "success" for run in runs)

    until(has_looked, seconds=SECONDS + 120, name="a scheduled pass")
    assert WatchPass.load(alarmed.store.watch_pass).problems == []
