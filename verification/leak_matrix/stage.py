"""The stage that a scenario's function works with: one run in its own zones, and faults for it."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import psutil

from local.stack.airflow_api import AirflowApi, AirflowApiError, BackfillRequest, TaskInstance
from local.stack.paths import REPOSITORY, RuntimePaths
from local.stack.stack import Stack
from pipeline_store.layout import RunLayout
from tpu_emulator.admin import AdminClient
from tpu_lifecycle.records.ledger import timeline
from tpu_lifecycle.records.reservation import earlier_reservations, open_reservation
from verification.leak_matrix.accidents import Accidents
from verification.leak_matrix.cloud import CREATIONS, DELETIONS, LOOKS, Cloud
from verification.leak_matrix.layers import Layer, user_agent
from verification.leak_matrix.scenario import Scenario, Subject, run_folder, run_uri

T = TypeVar("T")
WAIT_SECONDS = 150.0
LOOK_SECONDS = 0.8
PAUSE_SECONDS = 10.0
PASS_SECONDS = 60.0


class StageError(RuntimeError):
    """A condition that a scenario awaits before its disturbance does not occur."""


class Stage:
    """One run of a scenario.

    :param layers: the working layers, of those that can be turned off.
    :param is_control: whether the run is of the control DAG.
    """

    def __init__(
        self,
        scenario: Scenario,
        *,
        zones: tuple[str, ...],
        stack: Stack,
        api: AirflowApi,
        cloud: Cloud,
        accidents: Accidents,
        layers: frozenset[Layer],
        seed: int,
        is_control: bool,
    ) -> None:
        self.scenario = scenario
        self.zones = zones
        self.api = api
        self.cloud = cloud
        self.stack = stack
        self.layers = layers
        self.is_control = is_control
        self.random = random.Random(f"{seed}/{scenario.id}")  # noqa: S311 - no secret
        self.dag_id = scenario.control_dag_id if is_control else scenario.dag_id
        self.run_ids: list[str] = []
        self._accidents = accidents
        self._cron: Cron | None = None
        self._queue_gave_up = False
        self._first_call = cloud.last_call()
        if Layer.VM not in layers:
            self.deny(Layer.VM)

    def close(self) -> None:
        """Stop the reaper's command, if the scenario has started it."""
        if self._cron is not None:
            self._cron.stop()

    # What there is

    @property
    def admin(self) -> AdminClient:
        """Return the emulator's admin client."""
        return self.cloud.admin

    @property
    def zone(self) -> str:
        """Return the first zone that the run tries."""
        return self.zones[0]

    @property
    def run_id(self) -> str:
        """Return the id of the first run."""
        return self.run_ids[0]

    @property
    def store_uri(self) -> str:
        """Return the root of the store."""
        return str(self.stack.paths.store)

    def run_uri(self, run_id: str | None = None, tpu: int = 0) -> str:
        """Return the store's folder for a run's TPU."""
        return run_uri(self.store_uri, self.dag_id, run_id or self.run_id, tpu)

    def folder(self, run_id: str | None = None, tpu: int = 0) -> Path:
        """Return the folder in which to signal the job on a run's TPU."""
        return run_folder(self.store_uri, self.dag_id, run_id or self.run_id, tpu)

    def task(self, name: str, run_id: str | None = None, tpu: int = 0) -> TaskInstance | None:
        """Return a task of a run, or None while there is none."""
        wanted = self._task_id(name), self._map_index(tpu)
        tasks = self.api.task_instances(self.dag_id, run_id or self.run_id)
        return next((task for task in tasks if (task.task_id, task.map_index) == wanted), None)

    def _task_id(self, name: str) -> str:
        return name if self.is_control else self.scenario.subject.task_id(name)

    def _map_index(self, tpu: int) -> int:
        is_mapped = self.scenario.subject is Subject.FINETUNING and not self.is_control
        return tpu if is_mapped else -1

    def nodes(self) -> list[dict[str, Any]]:
        """Return the rows of the nodes in the zones, without bystanders."""
        return self.cloud.nodes(self.zones)

    def creations(self) -> list[str]:
        """Return the names of the TPUs whose creation the service accepted for this scenario."""
        calls = self.cloud.calls(self.zones, CREATIONS, self._first_call)
        # A repeated request is for the same TPU.
        return sorted({call["name"] for call in calls if call["code"] == "OK"})

    def history(self) -> list[str]:
        """Return the timeline of the attempts for the first run's TPU, by generation."""
        newest = open_reservation(self.run_uri())
        return [
            f"g{reservation.record.generation} {line}"
            for reservation in (*earlier_reservations(newest), newest)
            for line in timeline(reservation.attempts())
        ]

    def lost_tries(self) -> list[str]:
        """Return Airflow's messages about tries that it failed although they ran.

        Its scheduler may read that the process which deferred has ended only when the task runs
        again, and then fails the new process: https://github.com/apache/airflow/issues/72716.
        """
        return [
            text
            for run_id in self.run_ids
            for text in self.api.logged_events(self.dag_id, run_id, "state mismatch")
        ]

    def is_in_flight(self, *methods: str) -> bool:
        """Return whether a call of one of the methods has no answer yet."""
        calls = self.cloud.calls(self.zones, methods, self._first_call)
        return any(not call["code"] for call in calls)

    def is_asking(self) -> bool:
        """Return whether a create call is in flight, whose TPU may still appear."""
        return self.is_in_flight(*CREATIONS)

    def deletions(self) -> tuple[Layer | None, list[str]]:
        """Return the layer that deleted last, and all callers of deletions in order.

        A request that the queue ended has no TPU any more; the caller that frees its name does not
        count.
        """
        layer, callers = self.cloud.cleaned_by(self.zones, self._first_call)
        return (Layer.QUEUE if self._queue_gave_up else layer), callers

    def is_released(self) -> bool:
        """Return whether the run's first generation has its tombstone."""
        return Path(RunLayout(self.run_uri()).reservation(1).released).exists()

    # How it begins

    def start(self, **conf: Any) -> str:
        """Start a run and return its id."""
        run_id = self.api.trigger(self.dag_id, {"zones": list(self.zones)} | conf)
        self.run_ids.append(run_id)
        return run_id

    def backfill(self, request: BackfillRequest) -> int:
        """Start a backfill and return its id; its first run is the scenario's run."""
        backfill = self.api.create_backfill(request)
        runs = self.until(lambda: self.api.runs(self.dag_id), "runs of the backfill")
        self.run_ids += [run.run_id for run in sorted(runs, key=lambda run: run.run_id)]
        return backfill.backfill_id

    # What to wait for

    def until(
        self,
        what: Callable[[], T],
        name: str,
        seconds: float = WAIT_SECONDS,
        pause: float = LOOK_SECONDS,
    ) -> T:
        """Poll until a value is true, and return it.

        :raises StageError: there is none in time.
        """
        deadline = time.monotonic() + seconds
        while True:
            try:
                value = what()
            except AirflowApiError as error:
                if error.status is not None:
                    raise
                value = None
            if value:
                return value
            if time.monotonic() > deadline:
                raise StageError(f"waited {seconds:.0f} s for {name}; {self.describe()}")
            time.sleep(pause)

    def until_task(
        self, task_id: str, *states: str, run_id: str | None = None, tpu: int = 0
    ) -> TaskInstance:
        """Wait until a task is in one of the states; the control's tasks run where ours defer."""
        wanted = {"running" if s == "deferred" and self.is_control else s for s in states}

        def look() -> TaskInstance | None:
            task = self.task(task_id, run_id, tpu)
            return task if task and task.state in wanted else None

        found = self.until(look, f"task {task_id} {' or '.join(sorted(wanted))}")
        assert found is not None  # noqa: S101 - `until` returns true values only
        return found

    def until_call(self, *methods: str, count: int = 1) -> None:
        """Wait until the service has received calls of these methods from this scenario."""
        self.until(
            lambda: len(self.cloud.calls(self.zones, methods, self._first_call)) >= count,
            f"{count} call(s) of {', '.join(methods)}",
        )

    def until_asked(self) -> None:
        """Wait until the service has received a create call."""
        self.until_call(*CREATIONS)

    def until_queued(self, *states: str) -> None:
        """Wait until there is a queued resource in one of the states; by default any."""

        def look() -> bool:
            rows = self.cloud.queued_resources(self.zones)
            return any(not states or row["state"] in states for row in rows)

        self.until(look, f"a queued resource {' or '.join(states)}")

    def until_queue_gave_up(self) -> None:
        """Wait until the request has failed, and record whether the queueing policy ended it."""
        self.until_queued("FAILED")
        self._queue_gave_up = not self.deletions()[1]

    def until_node(self, state: str = "READY") -> dict[str, Any]:
        """Wait until there is a node in a state, and return its row."""
        return self.until(
            lambda: next((n for n in self.nodes() if n["state"] == state), {}), f"a node {state}"
        )

    def until_any_node(self) -> dict[str, Any]:
        """Wait for a node in any state, usually CREATING, and return its row."""
        return self.until(lambda: next(iter(self.nodes()), {}), "a node", pause=0.02)

    def until_works(self, run_id: str | None = None, tpu: int = 0) -> None:
        """Wait until the job runs and the task's trigger waits for it."""
        run_id = run_id or self.run_id
        self.until((self.folder(run_id, tpu) / "started").exists, "the job's start")
        self.until_watched("run", run_id=run_id, tpu=tpu)

    def until_watched(self, task_id: str, run_id: str | None = None, tpu: int = 0) -> None:
        """Wait until a task is deferred and its trigger polls the TPU.

        A task can be deferred a second before the triggerer starts its trigger. If a person marks
        the task in that second, the trigger is not notified, and only the teardown releases the
        TPU.
        """
        self.until_task(task_id, "deferred", run_id=run_id, tpu=tpu)
        if self.is_control:
            return
        deferred = self.cloud.last_call()
        self.until(lambda: self.cloud.calls(self.zones, LOOKS, deferred), f"{task_id}'s trigger")

    def until_ended(self, run_id: str | None = None) -> str:
        """Wait until a run has ended, and return its state."""
        run_id = run_id or self.run_id
        self.until(lambda: self.api.run(self.dag_id, run_id).finished, f"the end of {run_id}")
        return self.api.run(self.dag_id, run_id).state

    def until_nothing_left(self) -> None:
        """Wait until nothing is left in the zones."""
        self.until(lambda: not self.cloud.left(self.zones).count, "the end of the TPUs")

    # What to do

    def finish(self, run_id: str | None = None, tpu: int = 0) -> None:
        """Signal the job to finish."""
        folder = self.folder(run_id, tpu)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "finish").touch()

    def work_again(self, run_id: str | None = None, tpu: int = 0) -> None:
        """Reset the job's signals ``finish`` and ``started``, so that another job may follow."""
        for name in ("finish", "started"):
            (self.folder(run_id, tpu) / name).unlink(missing_ok=True)

    def fail_beside(self) -> None:
        """Let the additional task fail."""
        folder = self.folder()
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "fail").touch()

    def mark(self, name: str, state: str, run_id: str | None = None, tpu: int = 0) -> None:
        """Mark a task, as a person does."""
        self.api.mark_task(
            self.dag_id,
            run_id or self.run_id,
            self._task_id(name),
            state,
            map_index=self._map_index(tpu),
        )

    def mark_run(self, state: str = "failed", run_id: str | None = None) -> None:
        """Mark the whole run, as a person does."""
        self.api.mark_run(self.dag_id, run_id or self.run_id, state)

    def clear_task(self, *names: str) -> None:
        """Clear tasks of the run, as a person does, and only these."""
        self.api.clear_tasks(self.dag_id, self.run_id, [self._task_id(name) for name in names])

    def kill_task(self, task_id: str, *, supervisor: bool = False) -> None:
        """Send SIGKILL to the process of a running task, or only to its supervisor."""
        instance = self.until_task(task_id, "running").instance_id
        # The supervisor's title may also name the task.
        title = f"airflow worker -- {instance}"
        process = self.until(lambda: _process_titled(title), f"the process of {task_id}")
        assert process is not None  # noqa: S101 - `until` returns true values only
        psutil.Process(process.ppid() if supervisor else process.pid).kill()

    def pids(self) -> list[int]:
        """Return the process ids of the zones' VMs."""
        return [pid for _, pid in self.cloud.vm_processes(self.zones)]

    def vm_processes(self, word: str) -> list[psutil.Process]:
        """Return the processes of the zones' VMs with a given argument in their command line."""
        return [
            process
            for process in map(_existing, self.pids())
            if process is not None and word in _words(process)
        ]

    def deny(self, layer: Layer) -> None:
        """Let the service refuse all deletions of a layer in the zones."""
        for zone in self.zones:
            for method in DELETIONS:
                self.admin.deny(method, zone, caller=user_agent(layer))

    def allow(self, layer: Layer) -> None:
        """Revoke :meth:`deny` for a layer."""
        for zone in self.zones:
            for method in DELETIONS:
                self.admin.allow(method, zone)
        # That revoked the denials of all layers.
        if layer is not Layer.VM and Layer.VM not in self.layers:
            self.deny(Layer.VM)

    def start_cron(self) -> None:
        """Run the reaper's command periodically, as cron would, if that layer is on."""
        if Layer.CRON in self.layers:
            self._cron = Cron(self.stack, self.scenario.owner)

    def accident(self) -> None:
        """Wait until all scenarios with the same accident are ready and it has happened."""
        self._accidents.arrive(str(self.scenario.accident), self.dag_id)

    def pause_somewhere(self, longest: float = 2.0) -> None:
        """Sleep for a random time drawn by the seed."""
        time.sleep(self.random.uniform(0, longest))

    def describe(self) -> str:
        """Return a description of the runs and their zones."""
        parts = []
        for run_id in self.run_ids:
            try:
                state = self.api.run(self.dag_id, run_id).state
                tasks = self.api.task_instances(self.dag_id, run_id)
                states = ", ".join(f"{task.task_id} {task.state}" for task in tasks)
                parts.append(f"{run_id} {state}: {states}")
            except AirflowApiError as error:
                parts.append(str(error))
        return f"{'; '.join(parts) or 'no run'}; left: {self.cloud.left(self.zones)}"


def _process_titled(title: str) -> psutil.Process | None:
    for process in psutil.process_iter():
        if " ".join(_words(process)).startswith(title):
            return process
    return None


def _existing(pid: int) -> psutil.Process | None:
    try:
        return psutil.Process(pid)
    except psutil.NoSuchProcess:
        return None


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


class Cron:
    """Runs reaper passes for one owner, in a thread, until stopped.

    :param stack: the stack with the emulator and the store.
    :param owner: value of the owner label.
    """

    def __init__(self, stack: Stack, owner: str) -> None:
        socket = RuntimePaths.of(stack.paths.root).emulator_socket
        self._command = [
            *(sys.executable, "-m", "tpu_lifecycle", "reap", "--once"),
            *("--store", str(stack.paths.store), "--owner", owner, "--project", "local-project"),
            *("--endpoint", f"unix:{socket}", "--insecure"),
        ]
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cron", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Start no further pass, and wait for the current one."""
        self._stopped.set()
        self._thread.join(PASS_SECONDS)

    def _run(self) -> None:
        while not self._stopped.is_set():
            # Its output is ignored: only whether the TPU is gone counts.
            subprocess.run(
                self._command,
                cwd=REPOSITORY,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                timeout=PASS_SECONDS,
            )
            self._stopped.wait(PAUSE_SECONDS)
