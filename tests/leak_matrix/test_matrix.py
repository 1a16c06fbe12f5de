"""A few scenarios for real, and the control, which has to leak."""

from __future__ import annotations

from pathlib import Path

import pytest

from leak_matrix.catalogue import SCENARIOS
from leak_matrix.results import Journal
from leak_matrix.runner import Case, Runner
from leak_matrix.session import Session

pytestmark = pytest.mark.stack

FAST = [scenario for scenario in SCENARIOS if scenario.fast]
LEAKING_CONTROL = next(s for s in SCENARIOS if s.id == "create-fails-after-ready")


def test_nothing_is_left_and_the_expected_layers_clean_up(opened: Session, tmp_path: Path) -> None:
    cases = [*map(Case, FAST), Case(LEAKING_CONTROL, is_control=True)]
    runner = Runner(opened, Journal(tmp_path / "results.jsonl"), seed=1, jobs=3)
    results = runner.run(cases)
    own = [result for result in results if result.kind == "matrix"]
    assert len(own) == len(FAST)
    assert [result.problems for result in results if result.problems] == []
    assert {result.cleaned_by for result in own} == {scenario.expected for scenario in FAST}
    assert [result.nodes_left for result in results if result.kind == "control"] == [1]
