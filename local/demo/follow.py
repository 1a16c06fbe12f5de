"""Triggers a DAG run and prints one line for each event."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any

from local.demo.summary import Day
from local.stack.airflow_api import AirflowApi, DagRun, TaskInstance
from local.stack.paths import RuntimePaths
from local.stack.stack import Stack
from pipeline_store import identity, uris
from pipeline_store.formats import FormatError, Heartbeat
from pipeline_store.layout import RunLayout, StoreLayout
from tpu_emulator.admin import AdminClient

DAG_ID = "bert_repretraining"
RUN_SECONDS = 1800.0
FINISHED_TASK = {"success", "failed", "skipped", "upstream_failed", "removed"}
PROGRESS_SECONDS = 10.0


class DemoError(Exception):
    """A demo cannot continue; the message says why."""


class RunReport:
    """Reports the outcome of each task once, and the training's progress at intervals.

    :param run: the run's folder, from whose heartbeats the progress is read.
    :param say: called with each line.
    """

    def __init__(self, run: RunLayout, say: Callable[[str], None]) -> None:
        self._run = run
        self._say = say
        self._reported: set[tuple[str, int]] = set()
        self._progress_due = monotonic() + PROGRESS_SECONDS

    def look(self, tasks: list[TaskInstance]) -> None:
        """Report what is new since the last call."""
        for task in sorted(tasks, key=lambda task: str(task.end)):
            key = (task.task_id, task.try_number)
            if task.state in FINISHED_TASK and key not in self._reported:
                self._reported.add(key)
                self._say(f"  {task.task_id:<18} {task.state:<16} {task.seconds or 0:6.1f} s")
        if monotonic() >= self._progress_due:
            self._progress_due += PROGRESS_SECONDS
            if line := _progress(self._run):
                self._say(f"  {line}")


def follow(
    api: AirflowApi,
    *,
    dag_id: str,
    run_id: str,
    run: RunLayout,
    say: Callable[[str], None],
    seconds: float,
) -> DagRun:
    """Print the run's tasks as they end, and the training's progress, until the run has ended.

    :param seconds: maximum time to wait.
    :raises AirflowApiError: it has not ended by then, or Airflow does not answer.
    """
    report = RunReport(run, say)
    return api.wait_for_run(dag_id, run_id, seconds=seconds, on_poll=report.look)


def unused_lineage(store: StoreLayout, name: str) -> str:
    """Return the id of an unused lineage, so that each demo starts from scratch."""
    number = 1
    while (
        Path(store.lineage(f"{name}-{number}").root).exists()
        or (Path(store.root) / "corpora" / f"{name}-{number}").exists()
    ):
        number += 1
    return f"{name}-{number}"


def run_day(
    api: AirflowApi,
    store: StoreLayout,
    partition: str,
    conf: dict[str, Any],
    say: Callable[[str], None],
) -> Day:
    """Trigger a run on a partition and follow it to its end.

    :param conf: settings of the request.
    :raises DemoError: it did not end in success.
    """
    began = monotonic()
    run_id = api.trigger(DAG_ID, conf | {"corpus.partition": partition})
    run = store.run(identity.run_key(DAG_ID, run_id))
    say(f"day {partition}: DAG run {run_id}")
    ended = follow(api, dag_id=DAG_ID, run_id=run_id, run=run, say=say, seconds=RUN_SECONDS)
    tasks = api.task_instances(DAG_ID, run_id)
    if ended.state != "success":
        failed = [task.task_id for task in tasks if task.state == "failed"]
        raise DemoError(_failure(api, run_id, ended.state, failed))
    seconds = {task.task_id: round(task.seconds or 0.0, 1) for task in tasks}
    return Day(partition, run, ended.state, seconds, monotonic() - began)


def _failure(api: AirflowApi, run_id: str, state: str, failed: list[str]) -> str:
    text = f"DAG run {run_id} ended {state}; failed: {', '.join(failed) or 'no task'}."
    for task_id in failed[:1]:
        tail = api.task_log(DAG_ID, run_id, task_id).splitlines()[-15:]
        text += f"\nLast lines of {task_id}:\n" + "\n".join(tail)
    return text


def tpus_left(stack: Stack) -> list[str]:
    """Return the names of all nodes and queued resources that still exist in the emulator."""
    socket = RuntimePaths.of(stack.paths.root).emulator_socket
    with AdminClient(socket) as admin:
        table = admin.table()
    return [entry["name"] for kind in ("nodes", "queued_resources") for entry in table[kind]]


def _progress(run: RunLayout) -> str | None:
    """Return a line on the progress of the job that a TPU worker is running, if there is one."""
    beats = [uri for uri in uris.list_files(run.reservations) if uri.endswith("/heartbeat.json")]
    if not beats:
        return None
    try:
        beat = Heartbeat.load(beats[-1])
    except (FileNotFoundError, FormatError):
        return None
    if beat.job_id is None or beat.progress is None:
        return None
    progress = beat.progress
    words = [f"{beat.job_id}: step {progress.step}/{progress.train_steps}"]
    if progress.loss is not None:
        words.append(f"loss {progress.loss:.3f}")
    if progress.held_out_loss is not None:
        words.append(f"held-out loss {progress.held_out_loss:.3f}")
    if progress.tokens_per_second is not None:
        words.append(f"{progress.tokens_per_second:,.0f} tokens/s")
    if progress.eta_seconds is not None:
        words.append(f"{progress.eta_seconds:.0f} s to go")
    return ", ".join(words)
