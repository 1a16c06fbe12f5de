"""Words to drive runs of the main DAG on a local stack."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psutil

from local.demo import tiny
from local.stack.airflow_api import AirflowApi, TaskInstance
from local.stack.stack import Stack
from pipeline_store import identity, uris
from pipeline_store.layout import RunLayout, StoreLayout
from tpu_emulator.admin import AdminClient
from triggers.firing import EARLIEST_SECONDS

DAG_ID = "bert_repretraining"
# Far more than a run takes, so that only one that hangs fails a test on a busy machine.
RUN_SECONDS = 1500.0

TINY = tiny.SETTINGS


def until(
    what: Callable[[], Any], *, seconds: float = RUN_SECONDS, poll: float = 0.2, name: str = ""
) -> Any:
    """Return the first true value of ``what``; fail when there is none in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := what():
            return value
        time.sleep(poll)
    raise AssertionError(f"waited {seconds:.0f} s in vain for {name or what}")


def processes_of(*words: str) -> list[psutil.Process]:
    """Return the processes that have all these words on their command line."""
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if set(words) <= set(process.info["cmdline"] or [])
    ]


@dataclass
class Pipeline:
    """The main DAG on a running stack."""

    stack: Stack
    api: AirflowApi
    admin: AdminClient
    store: StoreLayout

    def write_corpus(self, partition: str, *, seed: int, documents: int = 400) -> None:
        """Write a partition of two files, in a language that a tiny model learns in seconds."""
        tiny.write_partition(self.store, partition, seed=seed, documents=documents)

    def trigger(self, partition: str, lineage: str, **conf: Any) -> str:
        """Start a run and return its id; conf names have ``__`` for the dot."""
        settings = {name.replace("__", "."): value for name, value in conf.items()}
        chosen = {"corpus.partition": partition, "model.lineage_id": lineage}
        return self.api.trigger(DAG_ID, TINY | chosen | settings)

    def run(self, run_id: str) -> RunLayout:
        """Return the folder of a run."""
        return self.store.run(identity.run_key(DAG_ID, run_id))

    def finish(self, run_id: str) -> tuple[str, dict[str, str | None]]:
        """Wait for the end; return the run's state and that of each task."""
        ended = self.api.wait_for_run(DAG_ID, run_id, seconds=RUN_SECONDS)
        tasks = self.api.task_instances(DAG_ID, run_id)
        return ended.state, {task.task_id: task.state for task in tasks}

    def task(self, run_id: str, task_id: str) -> TaskInstance:
        """Return one task of a run."""
        tasks = self.api.task_instances(DAG_ID, run_id)
        return next(task for task in tasks if task.task_id == task_id)

    def log(self, run_id: str, task_id: str, try_number: int = 1) -> str:
        """Return a task's log."""
        return self.api.task_log(DAG_ID, run_id, task_id, try_number=try_number)

    def links(self, run_id: str, task_id: str) -> dict[str, str | None]:
        """Return the buttons of a task's page."""
        path = f"/dags/{DAG_ID}/dagRuns/{run_id}/taskInstances/{task_id}/links"
        found: dict[str, str | None] = self.api.request("GET", path)["extra_links"]
        return found

    def wait_for_checkpoint(self, run_id: str, *, more: bool = False) -> None:
        """Wait until the training has committed a checkpoint, or one more than there are now."""
        folder = self.run(run_id).training.checkpoints
        known = set(uris.list_files(folder)) if more else set()
        until(lambda: set(uris.list_files(folder)) - known, name=f"a checkpoint of {run_id}")

    def wait_for_question(self, run_id: str) -> None:
        """Wait until a person is asked, and the scheduler has heard of it.

        An answer that comes sooner lets it take the task's first half for a failed second one: then
        the question is asked anew (apache/airflow issue 72716).
        """
        until(
            lambda: self.task(run_id, "promotion.approve").state == "awaiting_input",
            name="the question",
        )
        time.sleep(EARLIEST_SECONDS)

    def vm_processes(self, module: str) -> list[psutil.Process]:
        """Return the processes on TPU VMs that run ``python -m <module>``."""
        state = str(self.stack.paths.emulator)
        found = []
        for process in psutil.process_iter():
            try:
                words = process.cmdline()
                if module in words and process.environ().get("HOME", "").startswith(state):
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def kill(self, module: str) -> int:
        """Kill -9 a program on a TPU VM; return how many processes it had."""
        processes = until(lambda: self.vm_processes(module), name=module)
        for process in processes:
            os.kill(process.pid, signal.SIGKILL)
        return len(processes)

    def calls(self, method: str) -> int:
        """Return how many calls of an API method the emulator has received."""
        return len(self.admin.calls(method))

    def assert_nothing_left(self) -> None:
        """Check the emulator's own table and the process list."""
        table = self.admin.table()
        assert table["nodes"] == []
        assert table["queued_resources"] == []
        assert table["orphan_pids"] == []
        for module in ("tpu_agent", "training.train", "training.evaluate"):
            assert self.vm_processes(module) == []
