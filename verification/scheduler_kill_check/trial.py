"""One run whose scheduler is killed, alone, at a moment; what follows must happen by itself."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from local.demo import tiny
from local.stack import parts, processes
from local.stack.airflow_api import AirflowApi, AirflowApiError, DagRun, TaskInstance
from local.stack.breaking import Breaker
from local.stack.paths import RuntimePaths, StackError
from local.stack.settings import UNMENDED
from local.stack.stack import Stack
from pipeline_store import identity
from pipeline_store.formats import RunOutcome
from pipeline_store.layout import StoreLayout
from tpu_emulator.admin import AdminClient
from verification.scheduler_kill_check.killing import kill_scheduler
from verification.scheduler_kill_check.moments import Moment, Tasks, uses_tpu
from verification.scheduler_kill_check.results import FROZEN, LIMIT_SECONDS, Result, problems

DAG_ID = "bert_repretraining"
PARTITION = "2026-01-01"
MOMENT_SECONDS, END_SECONDS = 600.0, 900.0
POLL_SECONDS = 0.3
# States of tasks that run in a worker of the scheduler, or are about to.
IN_WORKER = frozenset({"queued", "running"})
# Airflow's own default, with the safeguards off.
DEFAULTS = {"AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "300", UNMENDED: "1"}


@dataclass(frozen=True)
class World:
    """A running stack."""

    stack: Stack
    api: AirflowApi
    admin: AdminClient
    mended: bool

    @property
    def store(self) -> StoreLayout:
        """Return the store."""
        return StoreLayout(str(self.stack.paths.store))

    def nodes(self) -> list[str]:
        """Return the states of all TPUs, including queued ones."""
        table = self.admin.table()
        return [row["state"] for kind in ("nodes", "queued_resources") for row in table[kind]]

    def tasks(self, run_id: str) -> dict[str, TaskInstance]:
        """Return the tasks of a run by id."""
        return {task.task_id: task for task in self.api.task_instances(DAG_ID, run_id)}


@contextmanager
def world(state_dir: Path, *, mended: bool, say: Callable[[str], None]) -> Iterator[World]:
    """Run a stack with a partition of text while the block runs.

    :raises StackError: it does not start.
    """
    stack = Stack(state_dir, extra_environment={} if mended else DEFAULTS, say=say)
    with stack:
        socket = RuntimePaths.of(stack.paths.root).emulator_socket
        with stack.api() as api, AdminClient(socket) as admin:
            opened = World(stack, api, admin, mended)
            tiny.write_partition(opened.store, PARTITION, seed=0)
            api.wait_for_dag(DAG_ID)
            api.unpause(DAG_ID)
            yield opened


@dataclass(frozen=True)
class _Drawn:
    """The drawn kill; see :class:`Result`."""

    moment: str
    seed: int
    delay: float
    held_runs: bool


@dataclass
class _Seen:
    """Observations of a run after the kill. Times are seconds since the epoch."""

    killed: float
    interrupted: Tasks
    decided: float | None = None
    resumed: float | None = None
    idle_since: float | None = None
    idle_seconds: float = 0.0
    state: str = "running"
    missing: list[str] = field(default_factory=list)

    def look(self, run: DagRun, tasks: Tasks, nodes: list[str]) -> None:
        now = time.time()
        self.state = run.state
        if self.decided is None and run.decided and run.decided.timestamp() > self.killed:
            self.decided = now
        self.missing = [name for name, was in self.interrupted.items() if not _moved(was, tasks)]
        if self.resumed is None and self.decided is not None and not self.missing:
            self.resumed = now
        # A killed task is shown as running until a scheduler has checked it.
        at_work = {name: task for name, task in tasks.items() if name not in self.missing}
        if "READY" not in nodes or uses_tpu(at_work):
            self.idle_since = None
            return
        self.idle_since = self.idle_since or now
        self.idle_seconds = max(self.idle_seconds, now - self.idle_since)

    def after(self, moment: float | None) -> float | None:
        return None if moment is None else round(moment - self.killed, 1)


def run_trial(world: World, moment: Moment, seed: int) -> Result:
    """Start a run, kill the scheduler's main process at the moment, and judge what follows.

    A run that does not end by itself is left for :func:`clean_up`.

    :raises StackError: the moment does not come.
    """
    Breaker(world.stack).wait_ready()
    # A new lineage: the run is its first, waits for no other, and must promote.
    lineage = f"kill-{moment.name}-{seed}"
    settings = tiny.SETTINGS | {"corpus.partition": PARTITION, "model.lineage_id": lineage}
    run_id = world.api.trigger(DAG_ID, settings)
    _await(world, run_id, moment)
    delay = moment.delay(seed)
    time.sleep(delay)
    interrupted: dict[str, TaskInstance] = {}

    def look() -> None:
        interrupted.update(_in_workers(world.tasks(run_id)))

    if world.api.run(DAG_ID, run_id).finished:
        raise StackError(f"The run {run_id} ended before the moment {moment.name!r} was over.")
    # Halting it takes up to 15 s, in which tasks begin and end.
    held_runs = kill_scheduler(world.stack, moment.draw(seed), look)
    seen = _Seen(time.time(), interrupted)
    _watch(world, run_id, seen)
    drawn = _Drawn(moment.name, seed, round(delay, 2), held_runs)
    return _result(world, run_id, seen, drawn)


def _await(world: World, run_id: str, moment: Moment) -> None:
    deadline = time.monotonic() + MOMENT_SECONDS
    while not moment.has_begun(world.tasks(run_id)):
        if time.monotonic() > deadline:
            states = {name: task.state for name, task in world.tasks(run_id).items()}
            raise StackError(
                f"The moment {moment.name!r} ({moment.title}) did not come within "
                f"{MOMENT_SECONDS:.0f} s; the run {run_id} has {states}. Look at its logs."
            )
        time.sleep(POLL_SECONDS)


def _watch(world: World, run_id: str, seen: _Seen) -> None:
    """Poll until the run has ended and no TPU is left, or no progress is to be expected."""
    while time.time() < seen.killed + END_SECONDS:
        with contextlib.suppress(AirflowApiError):
            run, tasks, nodes = world.api.run(DAG_ID, run_id), world.tasks(run_id), world.nodes()
            seen.look(run, tasks, nodes)
            if run.finished and not nodes:
                return
        if seen.decided is None and time.time() > seen.killed + 2 * LIMIT_SECONDS:
            break
        time.sleep(POLL_SECONDS)
    # A leftover process may lock rows after this run was last processed.
    if seen.state == "running":
        seen.state = FROZEN


def clean_up(world: World, result: Result) -> None:
    """End a freeze as a person would, so that the next kill finds a healthy stack.

    Does nothing after a run that has ended by itself and left no TPU.

    :raises StackError: the stack does not recover.
    """
    if result.run_id is None or (result.state != FROZEN and not result.nodes_left):
        return
    for process in processes.find(world.stack.paths, parts.SCHEDULER):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    Breaker(world.stack).wait_ready()
    world.api.mark_run(DAG_ID, result.run_id, "failed")
    deadline = time.monotonic() + END_SECONDS
    while world.nodes() and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)


def _in_workers(tasks: Tasks) -> dict[str, TaskInstance]:
    return {name: task for name, task in tasks.items() if task.state in IN_WORKER}


def _moved(was: TaskInstance, tasks: Tasks) -> bool:
    """Return whether a task has ended, was deferred, or was restarted since its interruption."""
    now = tasks.get(was.task_id)
    if now is None or now.state is None or now.state in {"scheduled", "up_for_retry"}:
        return False
    return now.state not in IN_WORKER or (now.state == "running" and now.start != was.start)


def _result(world: World, run_id: str, seen: _Seen, drawn: _Drawn) -> Result:
    layout = world.store.run(identity.run_key(DAG_ID, run_id))
    outcome = RunOutcome.load_or_none(layout.outcome)
    said = str(outcome.outcome) if outcome else None
    resumed, nodes_left = seen.after(seen.resumed), len(world.nodes())
    return Result(
        run_id=run_id,
        moment=drawn.moment,
        seed=drawn.seed,
        mended=world.mended,
        delay=drawn.delay,
        held_runs=drawn.held_runs,
        interrupted=sorted(seen.interrupted),
        decided_seconds=seen.after(seen.decided),
        resumed_seconds=resumed,
        idle_seconds=round(seen.idle_seconds, 1),
        state=seen.state,
        outcome=said,
        nodes_left=nodes_left,
        problems=problems(
            resumed=resumed,
            idle=seen.idle_seconds,
            state=seen.state,
            outcome=said,
            nodes_left=nodes_left,
        ),
    )
