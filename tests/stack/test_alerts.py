"""Alerts of a real Airflow, to a real mail server and web endpoint: also when nobody is called."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import psutil
import pytest

from local_stack.airflow_api import AirflowApi
from local_stack.stack import Stack
from pipeline_store import identity, uris
from pipeline_store.formats import OutcomeKind, RunOutcome, WatchPass
from pipeline_store.layout import RunLayout, StoreLayout
from tests.pipeline_alerts.servers import Endpoint, Mailbox, mail_server, web_endpoint
from tests.stack.driver import until

pytestmark = pytest.mark.stack

DAG_ID = "alert_probe"
WATCH = "pipeline_watch"
OVERDUE_SECONDS = 20
SECONDS = 300.0
AIRFLOW = {
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

    def working_run(self) -> str:
        """Start a run and return its id when its work is under way."""
        run_id = self.api.trigger(DAG_ID)
        until(lambda: self.state(run_id, "work") == "running", name="the work")
        until(lambda: uris.exists(self.run(run_id).record), name="the run's record")
        return run_id

    def state(self, run_id: str, task_id: str) -> str | None:
        tasks = self.api.task_instances(DAG_ID, run_id)
        return next(task.state for task in tasks if task.task_id == task_id)

    def run(self, run_id: str) -> RunLayout:
        return self.store.run(identity.run_key(DAG_ID, run_id))

    def watch(self) -> None:
        """Let the watch make a pass of its own."""
        run_id = self.api.trigger(WATCH)
        assert self.api.wait_for_run(WATCH, run_id, seconds=SECONDS).state == "success"

    def told(self, run_id: str) -> list[str]:
        """Return the causes that were told of a run, by mail and web alike."""
        scope = identity.run_key(DAG_ID, run_id)
        posted = [r.body["cause"] for r in self.endpoint.requests if r.body["scope"] == scope]
        folder, cause = f"runs/{scope} of the store", re.compile(r"^Cause: ([a-z-]+)", re.MULTILINE)
        texts = [self.mailbox.part("plain", n) for n in range(len(self.mailbox.letters))]
        mailed = [cause.findall(text)[0] for text in texts if folder in text]
        if sorted(mailed) != sorted(posted):
            return [f"mailed: {mailed}", f"posted: {posted}"]
        return sorted(posted)


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


def test_the_watch_looks_by_itself(alarmed: Alarmed) -> None:
    until(lambda: uris.exists(alarmed.store.watch_pass), seconds=SECONDS + 120, name="a pass")
    assert WatchPass.load(alarmed.store.watch_pass).problems == []


def test_a_lost_heartbeat_is_told_once(alarmed: Alarmed) -> None:
    run_id = alarmed.working_run()
    lose_heartbeat(alarmed, run_id, "work")
    assert alarmed.api.wait_for_run(DAG_ID, run_id, seconds=SECONDS).state == "failed"
    until(lambda: "task-failed" in alarmed.told(run_id), name="the alert")
    # Airflow may call twice, and says that the run failed besides.
    alarmed.watch()
    alarmed.watch()
    causes = alarmed.told(run_id)
    assert [cause for cause in causes if cause != "overdue"] == ["task-failed"]
    assert RunOutcome.load(alarmed.run(run_id).outcome).outcome is OutcomeKind.FAILED


def test_a_run_that_a_person_fails_is_told_once(alarmed: Alarmed) -> None:
    run_id = alarmed.working_run()
    alarmed.api.mark_run(DAG_ID, run_id, "failed")
    alarmed.api.wait_for_run(DAG_ID, run_id, seconds=SECONDS)
    alarmed.watch()
    alarmed.watch()
    causes = alarmed.told(run_id)
    assert [cause for cause in causes if cause != "overdue"] == ["ended-without-outcome"]
    assert RunOutcome.load(alarmed.run(run_id).outcome).outcome is OutcomeKind.CANCELLED


def test_a_task_that_a_person_fails_is_told_once(alarmed: Alarmed) -> None:
    run_id = alarmed.working_run()
    alarmed.api.mark_task(DAG_ID, run_id, "work", "failed")
    assert alarmed.api.wait_for_run(DAG_ID, run_id, seconds=SECONDS).state == "failed"
    until(lambda: alarmed.told(run_id), name="the alert")
    alarmed.watch()
    causes = alarmed.told(run_id)
    # Airflow calls the DAG's callback, or the watch is first.
    assert [c for c in causes if c != "overdue"] in (["run-failed"], ["ended-without-outcome"])


def test_a_run_that_was_deleted_is_told_once(alarmed: Alarmed) -> None:
    run_id = alarmed.working_run()
    alarmed.api.mark_run(DAG_ID, run_id, "failed")
    alarmed.api.wait_for_run(DAG_ID, run_id, seconds=SECONDS)
    path = f"/dags/{DAG_ID}/dagRuns/{quote(run_id, safe='')}"
    alarmed.api.request("DELETE", path)
    alarmed.watch()
    causes = alarmed.told(run_id)
    assert [cause for cause in causes if cause != "overdue"] == ["ended-without-outcome"]


def test_an_overdue_run_is_told_once_while_it_goes_on(alarmed: Alarmed) -> None:
    run_id = alarmed.working_run()
    place = alarmed.store.alert(identity.run_key(DAG_ID, run_id), "overdue")
    # Airflow's deadline raises it, without the watch.
    until(lambda: uris.exists(place), name="the deadline")
    alarmed.watch()
    alarmed.watch()
    assert alarmed.told(run_id) == ["overdue"]
    assert alarmed.state(run_id, "work") == "running"
    alarmed.api.mark_run(DAG_ID, run_id, "failed")
