"""The check of hangs counts right, goes on where it was, and its points are in the code."""

from __future__ import annotations

import ast
import json
from collections import Counter
from pathlib import Path

import pytest

from local.stack.paths import REPOSITORY
from verification.hang_check import injected
from verification.hang_check.hangs import HANGS
from verification.hang_check.healthy import PAUSED, SHARES, Kind, Slow
from verification.hang_check.prepared import SETTINGS, config_of
from verification.hang_check.results import Journal, Result, has_passed, summary


@pytest.mark.parametrize(("module", "name"), injected.POINTS.values(), ids=injected.POINTS)
def test_each_point_is_in_the_code(module: str, name: str) -> None:
    tree: ast.Module | ast.ClassDef = ast.parse((REPOSITORY / module).read_text())
    for word in name.split("."):
        kinds = (ast.ClassDef, ast.FunctionDef)
        [found] = [n for n in tree.body if isinstance(n, kinds) and n.name == word]
        assert isinstance(found, kinds)
        tree = found  # type: ignore[assignment]


def test_what_is_planned_happens_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(injected.FOLDER, str(tmp_path))
    act = {"point": "loop", "start": 1, "call": 2, "how": "note"}
    (tmp_path / "plan.json").write_text(json.dumps({"delay": {}, "acts": [act]}))
    happened: list[float] = []
    monkeypatch.setitem(injected.HOW, "note", lambda folder, seconds: happened.append(seconds))
    injected._started.cache_clear()
    injected._calls.clear()
    loop = injected.at("loop", lambda number: 2 * number)
    assert [loop(number) for number in range(3)] == [0, 2, 4]
    assert happened == [0.0]
    assert (tmp_path / "acted").exists()
    injected._started.cache_clear()


def test_eight_hangs_at_points_that_there_are() -> None:
    assert len(HANGS) == len({hang.name for hang in HANGS}) == 8
    acts = [act for hang in HANGS for act in hang.acts]
    assert {act["point"] for act in acts} <= set(injected.POINTS)
    assert {act["how"] for act in acts} <= set(injected.HOW)


def test_of_100_trainings_30_are_paused_within_their_limit() -> None:
    limits = {name: value for name, value in SETTINGS.items() if name.startswith("hang.")}
    drawn = [Slow.draw(number) for number in range(100)]
    kinds = Counter(one.kind for one in drawn)
    assert sum(kinds[kind] for kind in PAUSED) == 30
    assert kinds[Kind.LONG_COMPILE] == kinds[Kind.STORE_AWAY] == 1
    assert Slow.draw(7) == drawn[7]
    for one in drawn:
        assert SHARES[0] <= one.share <= SHARES[1]
        for act in one.acts(limits):
            assert act["seconds"] < config_of().hang.first_loop_seconds


def result(kind: str, name: str, *, passed: bool = True, alarms: int = 0) -> Result:
    return Result(kind, name, passed, [] if passed else ["a reason"], {"alarms": alarms})


def test_results_are_counted_and_kept_by_version(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    Journal(path, "another").add(result("hang", "gil-held"))
    journal = Journal(path, "this")
    assert journal.read() == []
    found = [
        result("hang", "gil-held", passed=False),
        result("hang", "gil-held"),
        result("healthy", "plain-9"),
        result("control", "stopped-0", alarms=1),
        result("control", "stopped-10"),
    ]
    for one in found:
        journal.add(one)
    assert journal.read() == found
    numbers = summary(journal.read())
    assert numbers == {
        "hangs": 1,
        "found": 1,
        "healthy_runs": 1,
        "false_alarms": 0,
        "control_alarms": 1,
    }
    assert not has_passed(numbers, found[3:])
    assert has_passed(numbers, found[3:4])
    assert not has_passed(numbers | {"false_alarms": 1}, found[3:4])
    assert not has_passed(numbers | {"found": 0}, found[3:4])
