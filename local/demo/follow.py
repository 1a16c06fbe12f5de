"""Follows a DAG run and prints one line whenever something happened."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from local.stack.airflow_api import AirflowApi, DagRun, TaskInstance
from pipeline_store import uris
from pipeline_store.formats import FormatError, Heartbeat
from pipeline_store.layout import RunLayout

FINISHED_TASK = {"success", "failed", "skipped", "upstream_failed", "removed"}
PROGRESS_SECONDS = 10.0


class RunReport:
    """Says once what became of each task, and now and then how far the training is.

    :param run: the run's folder, from whose heartbeats the progress is read.
    :param say: called with each line.
    """

    def __init__(self, run: RunLayout, say: Callable[[str], None]) -> None:
        self._run = run
        self._say = say
        self._reported: set[tuple[str, int]] = set()
        self._progress_due = monotonic() + PROGRESS_SECONDS

    def look(self, tasks: list[TaskInstance]) -> None:
        """Print what is new since the last look."""
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

    :param seconds: how long to wait at most.
    :raises AirflowApiError: it has not ended by then, or Airflow does not answer.
    """
    report = RunReport(run, say)
    return api.wait_for_run(dag_id, run_id, seconds=seconds, on_poll=report.look)


def _progress(run: RunLayout) -> str | None:
    """Return a line on the job that a TPU worker is running now."""
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
