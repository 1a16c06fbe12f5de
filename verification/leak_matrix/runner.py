"""Runs scenarios: independent ones in parallel, accidents to the stack one after another.

Parallel scenarios get exclusive zones.
"""

from __future__ import annotations

import random
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from local.stack.airflow_api import AirflowApiError
from tpu_lifecycle.records.reservation import write_tombstones
from verification.leak_matrix.cloud import Cloud
from verification.leak_matrix.judge import judge
from verification.leak_matrix.layers import Layer
from verification.leak_matrix.results import CONTROL, MATRIX, Journal, Result
from verification.leak_matrix.scenario import Scenario
from verification.leak_matrix.session import Session
from verification.leak_matrix.stage import Stage

END_SECONDS = 60.0
ZONES = (
    "us-central1-a",
    "us-east5-a",
    "us-east5-b",
    "us-south1-a",
    "us-west1-c",
    "us-west4-a",
    "europe-west4-b",
)
"""All zones of the emulator's catalog that offer the smallest TPU."""


@dataclass(frozen=True)
class Case:
    """A scenario and the kind of DAG to test with it."""

    scenario: Scenario
    is_control: bool = False

    @property
    def dag_id(self) -> str:
        """Return the id of the DAG."""
        return self.scenario.control_dag_id if self.is_control else self.scenario.dag_id

    @property
    def kind(self) -> str:
        """Return the kind of the result."""
        return CONTROL if self.is_control else MATRIX


class Runner:
    """Runs cases on a stack.

    :param seed: seed of the order and of random moments.
    :param jobs: number of parallel cases.
    :param say: receives a line about each result.
    """

    def __init__(
        self,
        session: Session,
        journal: Journal,
        *,
        seed: int,
        jobs: int,
        say: Callable[[str], None] = print,
    ) -> None:
        self._session = session
        self._journal = journal
        self._seed = seed
        self._jobs = jobs
        self._say = say
        self._lanes = Lanes(session.cloud)
        self._lock = threading.Lock()

    def run(self, cases: Sequence[Case]) -> list[Result]:
        """Run all cases and return their results."""
        shuffled = list(cases)
        random.Random(self._seed).shuffle(shuffled)  # noqa: S311 - no secret
        results = self._side_by_side([c for c in shuffled if not c.scenario.accident], self._jobs)
        for name in dict.fromkeys(str(c.scenario.accident) for c in cases if c.scenario.accident):
            group = [case for case in cases if case.scenario.accident == name]
            for first in range(0, len(group), len(ZONES)):
                results += self._accident(name, group[first : first + len(ZONES)])
        return results

    def _accident(self, name: str, cases: list[Case]) -> list[Result]:
        self._say(f"accident: {name}")
        self._session.accidents.expect(name, [case.dag_id for case in cases])
        stages: list[Stage] = []
        try:
            return self._side_by_side(cases, len(cases), stages)
        finally:
            # Restarted parts must not continue runs that are already judged.
            for stage in stages:
                for run_id in stage.run_ids:
                    self._release(stage, run_id)
            self._session.accidents.repair(name)
            for stage in stages:
                self._end_runs(stage)

    def _side_by_side(
        self, cases: list[Case], jobs: int, stages: list[Stage] | None = None
    ) -> list[Result]:
        with ThreadPoolExecutor(max(jobs, 1)) as pool:
            return list(pool.map(lambda case: self._one(case, stages), cases))

    def _one(self, case: Case, stages: list[Stage] | None) -> Result:
        with self._lanes.zones(case.scenario.zones) as zones:
            stage = Stage(
                case.scenario,
                zones=zones,
                stack=self._session.stack,
                api=self._session.api,
                cloud=self._session.cloud,
                accidents=self._session.accidents,
                layers=case.scenario.layers(self._session.without),
                seed=self._seed,
                is_control=case.is_control,
            )
            if stages is not None:
                stages.append(stage)
            try:
                result = self._play(stage)
            except Exception as error:  # noqa: BLE001 - one case must not end the others
                result = self._broken(stage, error)
            finally:
                self._session.accidents.drop_out(case.scenario.accident, case.dag_id)
                stage.close()
            if stages is None:
                self._end_runs(stage)
        with self._lock:
            self._journal.add(result)
        self._say(_line(result))
        return result

    def _play(self, stage: Stage) -> Result:
        api = self._session.api
        api.unpause(stage.dag_id)
        has_reaper = Layer.REAPER in stage.layers and not stage.is_control
        if has_reaper:
            api.unpause(stage.scenario.reaper_dag_id)
        try:
            stage.scenario.disturb(stage)
            return judge(stage, self._session.without)
        finally:
            if has_reaper:
                api.pause(stage.scenario.reaper_dag_id)

    def _broken(self, stage: Stage, error: Exception) -> Result:
        """Return the result of a case that failed before its disturbance was complete."""
        scenario = stage.scenario
        left = stage.cloud.left(stage.zones)
        lines = traceback.format_exception_only(error)
        return Result(
            id=scenario.id,
            title=scenario.title,
            kind=CONTROL if stage.is_control else MATRIX,
            without=self._session.without or "",
            expected=scenario.expected,
            cleaned_by="?",
            deletions=stage.deletions()[1],
            seconds=None,
            bound=0.0,
            nodes_left=left.count,
            state=None,
            problems=[f"not carried out: {' '.join(lines).strip()}"],
        )

    def _end_runs(self, stage: Stage) -> None:
        """End the unfinished runs of a judged case, and clear its zones."""
        deadline = time.monotonic() + END_SECONDS
        while time.monotonic() < deadline:
            try:
                if not self._end_once(stage):
                    break
            except AirflowApiError:
                break  # it was deleted with its DAG
            time.sleep(1.0)
        stage.cloud.clear(stage.zones)

    @staticmethod
    def _release(stage: Stage, run_id: str) -> None:
        for tpu in range(stage.scenario.tpus):
            write_tombstones(stage.run_uri(run_id, tpu), "the leak matrix has judged it")

    def _end_once(self, stage: Stage) -> bool:
        """Mark unfinished runs failed; return whether there were any."""
        found = [self._session.api.run(stage.dag_id, run_id) for run_id in stage.run_ids]
        unfinished = [run for run in found if not run.finished]
        for run in unfinished:
            if not stage.is_control:
                self._release(stage, run.run_id)
            self._session.api.mark_run(stage.dag_id, run.run_id, "failed")
        return bool(unfinished)


def _line(result: Result) -> str:
    seconds = "-" if result.seconds is None else f"{result.seconds:.0f} s"
    text = f"{result.kind:<8} {result.id:<36} {result.cleaned_by:<9} {seconds:>6}"
    text += f"  {result.nodes_left} left"
    return text if result.passed else f"{text}  FAILED: {'; '.join(result.problems)}"


class Lanes:
    """Hands out zones that are empty except for a bystander."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud
        self._free = list(ZONES)
        self._changed = threading.Condition()

    @contextmanager
    def zones(self, count: int) -> Iterator[tuple[str, ...]]:
        """Wait for the given number of zones and reserve them while the block runs."""
        with self._changed:
            while len(self._free) < count:
                self._changed.wait()
            taken = tuple(self._free.pop(0) for _ in range(count))
        try:
            self._cloud.clear(taken)
            for zone in taken:
                self._cloud.add_bystander(zone)
            yield taken
        finally:
            with self._changed:
                self._free += taken
                self._changed.notify_all()
