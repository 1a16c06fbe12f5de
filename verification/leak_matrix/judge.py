"""Waits for the end of a disturbed run and lists what is wrong with it."""

from __future__ import annotations

import time
from dataclasses import dataclass

from local.stack.airflow_api import AirflowApiError
from verification.leak_matrix.layers import Layer
from verification.leak_matrix.results import CONTROL, MATRIX, Result
from verification.leak_matrix.scenario import POLL_SECONDS
from verification.leak_matrix.stage import Stage

LOOK_SECONDS = 1.0
CONTROL_POLLS = 60
QUIET_SECONDS = 5.0
"""Time for which nothing may reappear."""


@dataclass
class _End:
    """The observed end of a run."""

    seconds: float | None = None
    state: str | None = None
    nodes_left: int = 0
    described: str = ""


def judge(stage: Stage, without: Layer | None) -> Result:
    """Return the result of a run: wait until nothing is left and it has ended, up to the bound."""
    scenario = stage.scenario
    end = _watch(stage)
    cleaned_by, deletions = stage.deletions()
    problems = [] if stage.is_control else _problems(stage, end, cleaned_by, deletions)
    problems += [
        f"the TPU of another owner in {zone} is gone"
        for zone in stage.zones
        if not stage.cloud.bystander_lives(zone)
    ]
    return Result(
        id=scenario.id,
        title=scenario.title,
        kind=CONTROL if stage.is_control else MATRIX,
        without=without or "",
        expected=scenario.expected,
        cleaned_by=str(cleaned_by or ("itself" if stage.is_control else "?")),
        deletions=deletions,
        seconds=end.seconds,
        bound=scenario.bound * POLL_SECONDS,
        nodes_left=end.nodes_left,
        state=end.state,
        problems=problems,
    )


def _watch(stage: Stage) -> _End:
    begun = time.monotonic()
    # The control's run may hang forever; only the leak counts.
    bound = CONTROL_POLLS if stage.is_control else stage.scenario.bound
    deadline = begun + bound * POLL_SECONDS
    end = _End()
    empty_since: float | None = None
    while True:
        left = stage.cloud.left(stage.zones)
        now = time.monotonic()
        if left.count or left.processes or stage.is_asking():
            empty_since = None
        elif empty_since is None:
            empty_since = now
        end.state = _state(stage)
        is_quiet = empty_since is not None and now - empty_since >= QUIET_SECONDS
        if is_quiet and (end.state is not None or stage.scenario.ends is None):
            break
        if now > deadline:
            break
        time.sleep(LOOK_SECONDS)
    end.nodes_left, end.described = left.count, str(left)
    end.seconds = empty_since - begun if empty_since is not None else None
    return end


def _state(stage: Stage) -> str | None:
    """Return the state in which all runs ended; None while one runs or Airflow does not answer."""
    try:
        runs = [stage.api.run(stage.dag_id, run_id) for run_id in stage.run_ids]
    except AirflowApiError:
        return None
    if not all(run.finished for run in runs):
        return None
    return " ".join(dict.fromkeys(run.state for run in runs))


def _problems(stage: Stage, end: _End, cleaned_by: Layer | None, deletions: list[str]) -> list[str]:
    scenario = stage.scenario
    problems = []
    if end.seconds is None:
        problems.append(f"after {scenario.bound} polls there is left: {end.described}")
    elif cleaned_by is not scenario.expected:
        problems.append(
            f"expected {scenario.expected} to clean up, but the deletions were made by "
            f"{', '.join(deletions) or 'nobody'}"
        )
    if scenario.ends is not None and end.state not in scenario.ends.split("|"):
        problems.append(f"the run is {end.state}, not {scenario.ends}: {stage.describe()}")
    if scenario.check is not None:
        problems += scenario.check(stage)
    return problems
