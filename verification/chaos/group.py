"""Runs the TPU task group with retries, deferrals and teardown, in place of Airflow's scheduler."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from verification.chaos.audit import PERSON
from verification.chaos.calls import CONN_ID, RETRY_SECONDS, TaskCall, TriggerCall, Wire
from verification.chaos.processes import Forked
from verification.chaos.world import DAG_ID, OWNER, World

SETUPS = ("reserve", "create")
WORK = ("train", "evaluate")
RETRIES = 8
TEARDOWN_RETRIES = 12
MAX_RETRY_SECONDS = 4.0
KILL_SECONDS = 2.0
"""Seconds between SIGTERM and SIGKILL of a task that a person ended; 5 s in Airflow."""
TICK_SECONDS = 0.05


class Cleared(Exception):  # noqa: N818 - no error: what a person did
    """A person cleared the task, or with ``from_start`` the whole group."""

    def __init__(self, *, from_start: bool) -> None:
        super().__init__()
        self.from_start = from_start


class Abandoned(Exception):  # noqa: N818 - the same
    """The task's supervisor is dead: its process continues, but nothing receives its result."""


class MarkedFailed(Exception):  # noqa: N818 - the same
    """A person marked the task as failed."""


@dataclass
class Group:
    """Runs the group once. Faults act through the methods below ``run``.

    :param jobs: entry point and arguments of the work tasks, by task.
    :param tick: called every few milliseconds; it may raise the exceptions declared above.
    """

    world: World
    jobs: dict[str, tuple[str, list[str]]]
    tick: Callable[[Group], None]
    phase: str = "reserve"
    phase_began: float = field(default_factory=time.monotonic)
    running: Forked | None = None
    is_trigger: bool = False
    orphans: list[Forked] = field(default_factory=list)
    later: list[tuple[float, Callable[[], object]]] = field(default_factory=list)
    failure: dict[str, Any] | None = None
    teardown_failed: bool = False
    tries: dict[str, int] = field(default_factory=dict)
    history: list[str] = field(default_factory=list)

    def run(self) -> None:
        """Run all tasks, the teardown last; ``failure`` then has the reason if one failed."""
        try:
            self._run_tasks()
        except MarkedFailed:
            self.failure = {"kind": PERSON, "class": "MarkedFailed", "task": self.phase}
        self._run_teardown()

    def _run_tasks(self) -> None:
        remaining = [*SETUPS, *WORK]
        while remaining:
            try:
                outcome = self._run_task(remaining[0], RETRIES)
            except Cleared:
                remaining = [*SETUPS, *WORK]
                continue
            if outcome["state"] == "failed":
                self.failure = outcome | {"task": remaining[0]}
                return
            remaining.pop(0)

    def _run_teardown(self) -> None:
        outcome = self._run_task("delete", TEARDOWN_RETRIES)
        if outcome["state"] == "failed":
            self.failure = outcome | {"task": "delete"}
            self.teardown_failed = True

    def _run_task(self, task: str, retries: int) -> dict[str, Any]:
        """Run a task to its end, with retries."""
        self._enter(task)
        failed: dict[str, Any] = {}
        for count in range(retries + 1):
            try:
                outcome = self._run_try(task)
            except Cleared as cleared:
                if cleared.from_start:
                    raise
                continue
            except Abandoned:
                outcome = None
            if outcome is None:
                failed = {"state": "failed", "class": "Killed", "kind": ""}
            elif outcome["state"] == "success":
                return outcome
            else:
                failed = outcome
                if not outcome["retryable"]:
                    return failed
            self._sleep(min(RETRY_SECONDS * 2**count, MAX_RETRY_SECONDS))
        return failed

    def _enter(self, task: str) -> None:
        self.phase, self.phase_began = task, time.monotonic()

    def _run_try(self, task: str) -> dict[str, Any] | None:
        """Execute one try of a task; return its outcome, or None if its process was killed."""
        number = self.tries[task] = self.tries.get(task, 0) + 1
        resume: tuple[Wire, dict[str, Any]] | None = None
        while True:
            call = TaskCall(
                task,
                self._arguments(task),
                (DAG_ID, self.world.run_id),
                number,
                self._environment,
                self._log(task),
                resume,
            )
            reply = self._wait(Forked("run_task", call), is_trigger=False)
            self.history.append(f"{task} try {number}: {_summary(reply)}")
            if reply is None or reply["state"] != "deferred":
                return reply
            resume = reply["wire"], self._run_trigger(reply["wire"])

    def _run_trigger(self, wire: Wire) -> dict[str, Any]:
        """Run a trigger to its event; it is restarted if the triggerer is killed."""
        while True:
            call = TriggerCall(wire, self._environment, self._log("trigger"))
            reply = self._wait(Forked("run_trigger", call), is_trigger=True)
            if reply is not None:
                event: dict[str, Any] = reply["event"]
                self.history.append(f"event {event['outcome']}: {event['reason'][:120]}")
                return event
            self.history.append("triggerer killed")

    def _wait(self, process: Forked, *, is_trigger: bool) -> dict[str, Any] | None:
        self.running, self.is_trigger = process, is_trigger
        while not process.poll(TICK_SECONDS):
            self._tick()
        self.running = None
        return process.reply

    def _sleep(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._tick()
            time.sleep(TICK_SECONDS)

    def _tick(self) -> None:
        now = time.monotonic()
        due = [action for moment, action in self.later if moment <= now]
        self.later = [(moment, action) for moment, action in self.later if moment > now]
        for action in due:
            action()
        self.tick(self)

    def settle(self, seconds: float) -> None:
        """Wait until all scheduled actions and orphaned processes are done."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and (self.later or self._has_orphans()):
            self._tick()
            time.sleep(TICK_SECONDS)
        for orphan in self.orphans:
            orphan.kill()

    def _has_orphans(self) -> bool:
        return any(not orphan.poll(0) for orphan in self.orphans)

    # What faults do

    def after(self, seconds: float, action: Callable[[], object]) -> None:
        """Schedule an action."""
        self.later.append((time.monotonic() + seconds, action))

    def kill_process(self) -> bool:
        """Send SIGKILL to the running worker or triggerer; return False if there is none."""
        if self.running is None:
            return False
        self.running.kill()
        return True

    def orphan_process(self) -> bool:
        """Stop receiving the result of the running worker process.

        :raises Abandoned: always, if there is one.
        """
        if self.running is None or self.is_trigger:
            return False
        self.orphans.append(self.running)
        raise Abandoned

    def clear(self, *, late: float, kills: int, from_start: bool) -> bool:
        """Clear the task, or the group, as a person does.

        :raises Cleared: always, if there is something to clear.
        """
        if self.running is None:
            return False
        self._end_running(late, kills, overlap=False)
        raise Cleared(from_start=from_start)

    def mark_failed(self, *, late: float, kills: int) -> bool:
        """Mark the task as failed, as a person does: the teardown starts before the task is dead.

        :raises MarkedFailed: always, if there is something to mark.
        """
        if self.running is None:
            return False
        self._end_running(late, kills, overlap=True)
        raise MarkedFailed

    def _end_running(self, late: float, kills: int, *, overlap: bool) -> None:
        """End the running process as Airflow does.

        A trigger's ``on_kill`` is called late, when the next try is already running, or twice, or
        never.
        """
        process, self.running = self.running, None
        if process is None:
            return
        self.orphans.append(process)
        if self.is_trigger:
            self.after(late, lambda: _kill_trigger(process, kills))
            return
        process.signal(signal.SIGTERM)
        self.after(KILL_SECONDS, process.kill)
        end = time.monotonic() + KILL_SECONDS
        while not overlap and time.monotonic() < end and not process.poll(TICK_SECONDS):
            pass
        if not overlap:
            process.kill()

    def _arguments(self, task: str) -> dict[str, Any]:
        common = {"store_uri": self.world.store.root}
        if task == "reserve":
            return common | {"tpu_owner": OWNER}
        if task not in self.jobs:
            return common
        entry_point, arguments = self.jobs[task]
        number = (WORK.index(task) + 1) * 10
        job = {"job_id": f"{number:03d}-{task}", "entry_point": entry_point}
        return common | job | {"arguments": arguments}

    @property
    def _environment(self) -> dict[str, str]:
        return self.world.environment(CONN_ID)

    def _log(self, name: str) -> str:
        folder: Path = self.world.folder / "tasks"
        folder.mkdir(exist_ok=True)
        return str(folder / f"{name}.log")


def _kill_trigger(process: Forked, kills: int) -> None:
    if kills == 0:
        process.kill()
    else:
        process.signal(signal.SIGUSR2 if kills > 1 else signal.SIGUSR1)


def _summary(reply: dict[str, Any] | None) -> str:
    if reply is None:
        return "killed"
    if reply["state"] == "failed":
        return f"failed: {reply['class']} ({reply['cause']}): {reply['message'][:200]}"
    return str(reply["state"])
