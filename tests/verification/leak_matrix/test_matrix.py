"""A few scenarios for real, and the control, which has to leak."""

from __future__ import annotations

from pathlib import Path

import pytest

from verification.leak_matrix.catalogue import SCENARIOS
from verification.leak_matrix.results import CONTROL, MATRIX, Journal, Result
from verification.leak_matrix.runner import Case, Runner
from verification.leak_matrix.session import Session

pytestmark = pytest.mark.stack

FAST = [scenario for scenario in SCENARIOS if scenario.fast]
# One of each DAG for each layer that is wanted; `make test-all` plays the other fast ones, too.
FIRST = {"create-fails-after-ready", "run-marked-failed", "second-tpu-marked-failed"}
LEAKING_CONTROL = next(s for s in SCENARIOS if s.id == "create-fails-after-ready")


def play(opened: Session, folder: Path, cases: list[Case]) -> list[Result]:
    """Play cases at once; each has nothing left, and was cleaned by the layer it expects."""
    results = Runner(opened, Journal(folder / "results.jsonl"), seed=1, jobs=4).run(cases)
    assert [result.problems for result in results if result.problems] == []
    own = [result for result in results if result.kind == MATRIX]
    wanted = {case.scenario.id: case.scenario.expected for case in cases if not case.is_control}
    assert {result.id: result.cleaned_by for result in own} == wanted
    return results


def test_nothing_is_left_and_the_expected_layers_clean_up(opened: Session, tmp_path: Path) -> None:
    cases = [Case(scenario) for scenario in FAST if scenario.id in FIRST]
    assert len(cases) == len(FIRST)
    results = play(opened, tmp_path, [*cases, Case(LEAKING_CONTROL, is_control=True)])
    assert [result.nodes_left for result in results if result.kind == CONTROL] == [1]


@pytest.mark.thorough
def test_nothing_is_left_of_other_runs_either(opened: Session, tmp_path: Path) -> None:
    cases = [Case(scenario) for scenario in FAST if scenario.id not in FIRST]
    assert cases
    play(opened, tmp_path, cases)
