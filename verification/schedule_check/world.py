"""Runs the check's stack: real Airflow, PostgreSQL, Beam, emulator, trainer; fast calendar."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self, TypeVar

import psutil

from local.demo import tiny
from local.stack.airflow_api import AirflowApi
from local.stack.paths import RuntimePaths
from local.stack.stack import Stack
from pipeline_store.formats import RunOutcome, RunRecord
from pipeline_store.layout import LineageLayout, StoreLayout
from tpu_emulator.admin import AdminClient

T = TypeVar("T")
DAG_ID, ARRIVALS = "bert_repretraining", "corpus_arrivals"
LINEAGE = "daily"
DAY = timedelta(minutes=1)
"""A day of the check's calendar, so that a week passes in minutes."""
PARTITION_FORMAT = "%Y-%m-%dt%H-%M"
WAIT_SECONDS = 1200.0
SETTINGS = tiny.SETTINGS | {
    "model.lineage_id": LINEAGE,
    # Each partition has its own dialect, so that every candidate is better on it; forgetting of the
    # others is not checked here.
    "promotion.max_forgetting": 100.0,
    "promotion.min_improvement": 0.0,
    "promotion.export_formats": [],
    "training.replay_fraction": 0.2,
}


class CheckError(RuntimeError):
    """The story cannot continue; the message says what was awaited."""


def partition_of(day: datetime) -> str:
    """Return the partition of a day of the check's calendar."""
    return day.strftime(PARTITION_FORMAT)


@dataclass(frozen=True)
class Run:
    """A run that passed validation, and how it ended, if it has."""

    record: RunRecord
    outcome: RunOutcome | None


@dataclass
class Watcher:
    """Counts, while the block runs, how many different trainings of a stack run at once.

    :param state: only trainings whose run folder is below this folder count.
    """

    state: str
    most: int = 0
    _end: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._end.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self) -> None:
        while not self._end.wait(0.5):
            self.most = max(self.most, len(self._trainings()))

    def _trainings(self) -> set[str]:
        runs = set()
        for process in psutil.process_iter(["cmdline"]):
            words = process.info["cmdline"] or []
            if "training.train" in words and "--run" in words:
                run = words[words.index("--run") + 1]
                if run.startswith(self.state):
                    runs.add(run)
        return runs


@dataclass(frozen=True)
class World:
    """A running stack and the operations of the story."""

    stack: Stack
    api: AirflowApi
    admin: AdminClient
    store: StoreLayout
    say: Callable[[str], None]

    @property
    def lineage(self) -> LineageLayout:
        """Return the check's only lineage."""
        return self.store.lineage(LINEAGE)

    def write(self, partition: str, *, seed: int, documents: int = 400) -> None:
        """Write a partition, which has its own dialect by seed."""
        tiny.write_partition(
            self.store, partition, seed=seed, documents=documents, dialect=seed % 1000
        )

    def runs(self) -> list[Run]:
        """Return all runs that passed validation, oldest first."""
        found = []
        for folder in sorted(Path(self.store.runs).glob("*/run.json")):
            layout = self.store.run(folder.parent.name)
            record = RunRecord.load(layout.record)
            found.append(Run(record, RunOutcome.load_or_none(layout.outcome)))
        return sorted(found, key=lambda run: run.record.created)

    def trigger(self, partition: str, **conf: Any) -> str:
        """Start a manual run and return its id; names in ``conf`` have ``__`` for the dot."""
        settings = {name.replace("__", "."): value for name, value in conf.items()}
        return self.api.trigger(DAG_ID, {"corpus.partition": partition} | settings)

    def until(self, what: Callable[[], T], name: str, seconds: float = WAIT_SECONDS) -> T:
        """Poll until a value is true, and return it.

        :raises CheckError: there is none in time.
        """
        deadline = time.monotonic() + seconds
        while not (value := what()):
            if time.monotonic() > deadline:
                raise CheckError(f"waited {seconds:.0f} s in vain for {name}\n{self.describe()}")
            time.sleep(1.0)
        return value

    def until_promoted(self, *partitions: str) -> None:
        """Wait until a model was promoted after each of the partitions."""

        def promoted() -> bool:
            done = {
                run.record.partition
                for run in self.runs()
                if run.outcome is not None and run.outcome.outcome == "promoted"
            }
            return done >= set(partitions)

        self.until(promoted, f"a promotion after {', '.join(partitions)}")

    def until_quiet(self) -> None:
        """Wait until no run of the DAG is queued or running."""
        self.until(
            lambda: all(run.finished for run in self.api.runs(DAG_ID)), "the end of all runs"
        )

    def describe(self) -> str:
        """Return a line for each run that passed validation."""
        lines = []
        for run in self.runs():
            outcome = run.outcome
            end = f"{outcome.outcome}: {outcome.reason}" if outcome else "not ended"
            lines.append(f"  {run.record.partition}  {run.record.run_id}  {end}")
        return "\n".join(lines)


@contextmanager
def world(state_dir: Path, say: Callable[[str], None]) -> Iterator[World]:
    """Run a stack whose days last a minute while the block runs.

    :raises StackError: it does not start.
    """
    state_dir.mkdir(parents=True, exist_ok=True)
    preset = state_dir / "preset.toml"
    preset.write_text(_toml(SETTINGS))
    stack = Stack(
        state_dir / "stack",
        extra_environment={
            "REPRETRAIN_PRESET": str(preset),
            "REPRETRAIN_SCHEDULE": "* * * * *",
            "REPRETRAIN_PARTITION_FORMAT": PARTITION_FORMAT,
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "60",
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "5",
        },
        say=say,
    )
    with stack:
        socket = RuntimePaths.of(stack.paths.root).emulator_socket
        with stack.api() as api, AdminClient(socket) as admin:
            for dag_id in (DAG_ID, ARRIVALS):
                api.wait_for_dag(dag_id)
            yield World(stack, api, admin, StoreLayout(str(stack.paths.store)), say)


def now() -> datetime:
    """Return the time, in UTC, to the minute."""
    return datetime.now(UTC).replace(second=0, microsecond=0)


def _toml(settings: dict[str, Any]) -> str:
    sections: dict[str, list[str]] = {}
    for name, value in settings.items():
        section, _, key = name.partition(".")
        # JSON's numbers, strings and lists are also valid TOML.
        sections.setdefault(section, []).append(f"{key} = {json.dumps(value)}")
    parts = ['extends = "smoke"\n']
    parts += [f"[{section}]\n" + "\n".join(lines) + "\n" for section, lines in sections.items()]
    return "\n".join(parts)
