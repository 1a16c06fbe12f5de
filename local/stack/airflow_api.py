"""A small client of Airflow's REST API with the operations that the demo and the tests need.

Source: https://airflow.apache.org/docs/apache-airflow/stable/stable-rest-api-ref.html
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import quote

from local.stack.airflow_session import AirflowApiError, AirflowSession

T = TypeVar("T")
FINISHED = frozenset({"success", "failed"})
"""States of a DAG run that will not change by themselves."""


@dataclass(frozen=True)
class DagRun:
    """One run of a DAG."""

    run_id: str
    state: str
    """queued, running, success or failed."""
    run_type: str
    """manual, scheduled, backfill or asset_triggered."""
    logical_date: datetime | None
    conf: dict[str, Any]
    decided: datetime | None = None
    """When the scheduler last processed it."""

    @property
    def finished(self) -> bool:
        """Whether the state is final."""
        return self.state in FINISHED


@dataclass(frozen=True)
class TaskInstance:
    """One task of a run, in its latest try."""

    task_id: str
    map_index: int
    """-1 when the task is not mapped."""
    state: str | None
    """None until the scheduler processes it."""
    try_number: int
    start: datetime | None
    end: datetime | None
    instance_id: str = ""
    """Airflow's id of the latest try; the task's process has it in its title."""

    @property
    def seconds(self) -> float | None:
        """Duration of a finished try."""
        if self.start is None or self.end is None:
            return None
        return (self.end - self.start).total_seconds()


@dataclass(frozen=True)
class Backfill:
    """Runs over past dates, created together."""

    backfill_id: int
    completed: bool


@dataclass(frozen=True)
class BackfillRequest:
    """The parameters of a backfill.

    Dates are logical dates, both ends included. ``reprocess`` selects the existing runs that are
    run again: none, failed or completed.
    """

    dag_id: str
    first: datetime
    last: datetime
    conf: Mapping[str, Any] | None = None
    max_active_runs: int = 1
    reprocess: str = "none"

    def body(self) -> dict[str, Any]:
        """Return the body of Airflow's request."""
        return {
            "dag_id": self.dag_id,
            "from_date": self.first.isoformat(),
            "to_date": self.last.isoformat(),
            "dag_run_conf": dict(self.conf or {}),
            "max_active_runs": self.max_active_runs,
            "reprocess_behavior": self.reprocess,
        }


class AirflowApi(AirflowSession):
    """A session with one Airflow, with a method per operation.

    Every method raises :class:`AirflowApiError` if Airflow refuses or does not answer.
    """

    def import_errors(self) -> dict[str, str]:
        """Return the stack trace of every DAG file that does not load, by file name."""
        found = self.request("GET", "/importErrors")["import_errors"]
        return {error["filename"]: error["stack_trace"] for error in found}

    def wait_for_dag(self, dag_id: str, seconds: float = 90.0) -> None:
        """Wait until the DAG processor has read a DAG.

        :raises AirflowApiError: it does not appear; import errors are in the message.
        """
        if self._wait(lambda: self._dag_or_none(dag_id), seconds, 0.5) is None:
            traces = self.import_errors().items()
            errors = "\n".join(f"{file}:\n{trace}" for file, trace in traces)
            raise AirflowApiError(
                f"DAG {dag_id!r} did not appear within {seconds:.0f} s. "
                f"Import errors: {errors or 'none; is its file in the dags folder?'}"
            )

    def unpause(self, dag_id: str) -> None:
        """Unpause a DAG, so that its runs start; runs of a paused DAG silently stay queued."""
        self.request("PATCH", f"/dags/{dag_id}", json={"is_paused": False})

    def pause(self, dag_id: str) -> None:
        """Pause a DAG, so that none of its runs and tasks start."""
        self.request("PATCH", f"/dags/{dag_id}", json={"is_paused": True})

    def trigger(
        self,
        dag_id: str,
        conf: Mapping[str, Any] | None = None,
        logical_date: datetime | None = None,
    ) -> str:
        """Create a manual run and return its id."""
        body = {
            "conf": dict(conf or {}),
            "logical_date": logical_date.isoformat() if logical_date else None,
        }
        return str(self.request("POST", f"/dags/{dag_id}/dagRuns", json=body)["dag_run_id"])

    def run(self, dag_id: str, run_id: str) -> DagRun:
        """Return one run."""
        return _dag_run(self.request("GET", _run_path(dag_id, run_id)))

    def runs(self, dag_id: str) -> list[DagRun]:
        """Return the latest hundred runs of a DAG, newest first."""
        params = {"order_by": "-run_after", "limit": 100}
        found = self.request("GET", f"/dags/{dag_id}/dagRuns", params=params)["dag_runs"]
        return [_dag_run(run) for run in found]

    def wait_for_run(
        self,
        dag_id: str,
        run_id: str,
        *,
        seconds: float,
        poll_seconds: float = 1.0,
        on_poll: Callable[[list[TaskInstance]], None] | None = None,
    ) -> DagRun:
        """Wait until a run is finished and return it.

        :param seconds: how long to wait.
        :param poll_seconds: pause between two polls.
        :param on_poll: receives the run's tasks at every poll.
        :raises AirflowApiError: it is not finished in time; the tasks' states are in the message.
        """
        run = self._wait(
            lambda: self._finished_or_none(dag_id, run_id, on_poll), seconds, poll_seconds
        )
        if run is None:
            states = ", ".join(
                f"{task.task_id} {task.state}" for task in self.task_instances(dag_id, run_id)
            )
            state = self.run(dag_id, run_id).state
            raise AirflowApiError(
                f"Run {run_id!r} of {dag_id!r} is {state} after {seconds:.0f} s: {states}"
            )
        return run

    def mark_run(self, dag_id: str, run_id: str, state: str) -> None:
        """Mark a run as success or failed, as a person does in the UI."""
        self.request("PATCH", _run_path(dag_id, run_id), json={"state": state})

    def task_instances(self, dag_id: str, run_id: str) -> list[TaskInstance]:
        """Return the tasks of a run."""
        path = f"{_run_path(dag_id, run_id)}/taskInstances"
        found = self.request("GET", path, params={"limit": 100})["task_instances"]
        return [_task_instance(task) for task in found]

    def task_log(
        self, dag_id: str, run_id: str, task_id: str, *, try_number: int = 1, map_index: int = -1
    ) -> str:
        """Return the log of a task so far, one line per entry."""
        path = f"{_run_path(dag_id, run_id)}/taskInstances/{task_id}/logs/{try_number}"
        params = {"map_index": map_index, "full_content": True}
        answer = self.request("GET", path, params=params, headers={"Accept": "application/json"})
        return "\n".join(_log_line(entry) for entry in answer["content"])

    def logged_events(self, dag_id: str, run_id: str, event: str) -> list[str]:
        """Return the details of a run's events of one kind in Airflow's audit log, oldest first."""
        params = {
            "dag_id": dag_id,
            "run_id": run_id,
            "event": event,
            "order_by": "id",
            "limit": 100,
        }
        found = self.request("GET", "/eventLogs", params=params)["event_logs"]
        return [entry["extra"] or "" for entry in found]

    def mark_task(
        self, dag_id: str, run_id: str, task_id: str, state: str, *, map_index: int = -1
    ) -> None:
        """Mark a task as success, failed or skipped, as a person does in the UI.

        :param map_index: -1 if the task is not mapped.
        """
        path = f"{_run_path(dag_id, run_id)}/taskInstances/{task_id}"
        path += "" if map_index < 0 else f"/{map_index}"
        self.request("PATCH", path, json={"new_state": state})

    def clear_tasks(
        self, dag_id: str, run_id: str, task_ids: Sequence[str | tuple[str, int]]
    ) -> None:
        """Clear only the given tasks of a run, so that they run again, as a person does in the UI.

        :param task_ids: task ids; with a map index, to clear only that instance.
        """
        body = {
            "dag_run_id": run_id,
            "task_ids": list(task_ids),
            "dry_run": False,
            "only_failed": False,
            "reset_dag_runs": True,
        }
        self.request("POST", f"/dags/{dag_id}/clearTaskInstances", json=body)

    def backfill_dry_run(self, request: BackfillRequest) -> list[str]:
        """Return the runs that a backfill would make: partition keys, or else logical dates."""
        answer = self.request("POST", "/backfills/dry_run", json=request.body())
        return [run["partition_key"] or run["logical_date"] for run in answer["backfills"]]

    def create_backfill(self, request: BackfillRequest) -> Backfill:
        """Start a backfill; Airflow allows one per DAG at a time (409)."""
        return _backfill(self.request("POST", "/backfills", json=request.body()))

    def backfill(self, backfill_id: int) -> Backfill:
        """Return one backfill."""
        return _backfill(self.request("GET", f"/backfills/{backfill_id}"))

    def backfills(self, dag_id: str) -> list[Backfill]:
        """Return the backfills of a DAG."""
        found = self.request("GET", "/backfills", params={"dag_id": dag_id, "limit": 100})
        return [_backfill(backfill) for backfill in found["backfills"]]

    def asset_event(self, name: str, *, partition_key: str) -> None:
        """Send Airflow an event for a new partition of an asset, as an external program would.

        :param name: name of the asset, which an active DAG must use.
        """
        found = self.request("GET", "/assets", params={"name_pattern": name})["assets"]
        ids = [asset["id"] for asset in found if asset["name"] == name]
        if len(ids) != 1:
            raise AirflowApiError(f"{len(ids)} assets are called {name!r} instead of one.")
        body = {"asset_id": ids[0], "partition_key": partition_key}
        self.request("POST", "/assets/events", json=body)

    def cancel_backfill(self, backfill_id: int) -> None:
        """Cancel a backfill: runs that have not started will not start; started ones continue."""
        self.request("PUT", f"/backfills/{backfill_id}/cancel")

    def delete_dag(self, dag_id: str) -> None:
        """Delete a DAG with all its runs from the database; its file brings it back, empty."""
        self.request("DELETE", f"/dags/{dag_id}")

    def _dag_or_none(self, dag_id: str) -> Any:
        try:
            return self.request("GET", f"/dags/{dag_id}")
        except AirflowApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            raise

    def _finished_or_none(
        self, dag_id: str, run_id: str, on_poll: Callable[[list[TaskInstance]], None] | None
    ) -> DagRun | None:
        run = self.run(dag_id, run_id)
        if on_poll is not None:
            on_poll(self.task_instances(dag_id, run_id))
        return run if run.finished else None

    @staticmethod
    def _wait(look: Callable[[], T | None], seconds: float, poll_seconds: float) -> T | None:
        """Poll until there is a result or time is up; waits for an API server that restarts."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                found = look()
            except AirflowApiError as error:
                if error.status is not None:
                    raise
                found = None
            if found is not None or time.monotonic() > deadline:
                return found
            time.sleep(poll_seconds)


def _run_path(dag_id: str, run_id: str) -> str:
    # Run ids contain ":" and "+", and "+" would be read as a space.
    return f"/dags/{dag_id}/dagRuns/{quote(run_id, safe='')}"


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def _dag_run(found: Mapping[str, Any]) -> DagRun:
    return DagRun(
        run_id=found["dag_run_id"],
        state=found["state"],
        run_type=found["run_type"],
        logical_date=_time(found["logical_date"]),
        conf=found["conf"] or {},
        decided=_time(found.get("last_scheduling_decision")),
    )


def _task_instance(found: Mapping[str, Any]) -> TaskInstance:
    return TaskInstance(
        task_id=found["task_id"],
        map_index=found["map_index"],
        state=found["state"],
        try_number=found["try_number"],
        start=_time(found["start_date"]),
        end=_time(found["end_date"]),
        instance_id=found["id"],
    )


def _backfill(found: Mapping[str, Any]) -> Backfill:
    return Backfill(backfill_id=found["id"], completed=found["completed_at"] is not None)


def _log_line(entry: Mapping[str, Any] | str) -> str:
    if isinstance(entry, str):
        return entry
    words = [entry.get("timestamp"), str(entry.get("level", "")).upper(), entry["event"]]
    causes = [
        f"({cause['exc_type']}: {cause['exc_value']})" for cause in entry.get("error_detail") or ()
    ]
    return " ".join(str(word) for word in words + causes if word)
