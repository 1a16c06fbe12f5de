"""Mutants are put in where they are said to be, and a test that looks notices one."""

from __future__ import annotations

import ast
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from coverage import CoverageData

from verification.mutants import drawing, running, tracing
from verification.mutants.coverage_plugin import TESTS_SUFFIX
from verification.mutants.drawing import Mutant, draw
from verification.mutants.mutations import mutations
from verification.mutants.running import Outcome, copy_tree, run_tests, try_mutant
from verification.mutants.tracing import Reach, trace

SOURCE = '''
LIMIT = 3


def within(value: int, name: str = "ä") -> bool:
    """Return whether a value is within the limit."""
    if value < LIMIT and not name.isupper():
        return True
    print("ü", value + 1)
    return False


class Box:
    def put(self, item: str) -> None:
        if item is None:
            raise ValueError("nothing")
        self.item = item
'''
TESTS = """
import sys

import pytest
from room.code import Box, within


@pytest.fixture(scope="module")
def box():
    box = Box()
    box.put("a")
    return box


@pytest.mark.parametrize("large", [4, pytest.param(5, marks=pytest.mark.thorough)])
def test_large(large):
    assert not within(large)


def test_by_fixture(box):
    assert box.item == "a"


def test_beside_it(box):
    pass


def test_small():
    assert within(1)


def test_that_fails():
    assert within(7)


def test_by_order():
    assert within(2)
    assert sys.modules.setdefault("seen", 1) == 1


def test_spoils_it():
    assert not within(8)
    sys.modules["seen"] = 2


@pytest.mark.slow
def test_by_hand():
    assert within(1)
"""
FILE = "tests/room/test_code.py"
CODE = Path("room/code.py")


def test_every_mutation_is_another_program() -> None:
    found = mutations(SOURCE)
    changed = [mutation.apply(SOURCE) for mutation in found]
    assert len({ast.dump(ast.parse(text)) for text in [SOURCE, *changed]}) == len(found) + 1
    assert {(m.function, m.before, m.after) for m in found} >= {
        ("within", "value < LIMIT", "value <= LIMIT"),
        ("within", "not name.isupper()", "name.isupper()"),
        ("within", "value + 1", "value - 1"),
        ("within", "return True", "return None"),
        ("within", "True", "False"),
        ("Box.put", "item is None", "item is not None"),
        ("Box.put", 'raise ValueError("nothing")', "pass"),
    }
    assert all(SOURCE[m.start : m.end] == m.before for m in found)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tree = tmp_path_factory.mktemp("tree")
    for path, text in ((CODE, SOURCE), (CODE.with_name("__init__.py"), ""), (Path(FILE), TESTS)):
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_text(text)
    (tree / "pytest.ini").write_text(
        "[pytest]\npythonpath = .\nmarkers =\n    browser:\n    slow:\n    parity:\n"
        "    tpu_compiler:\n    thorough:\n"
    )
    subprocess.run(["git", "init", "-q"], cwd=tree, check=True)
    subprocess.run(["git", "add", "."], cwd=tree, check=True)
    return tree


@pytest.fixture(scope="module", autouse=True)
def rig_for_trees() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        # Pytest in the tree finds its plugins here.
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
        for module in (tracing, drawing):
            patch.setattr(module, "GROUPS", {"gate": ("room",)})
        yield


@pytest.fixture(scope="module")
def reach(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Reach:
    data = tmp_path_factory.mktemp("work") / "gate.coverage"
    assert trace(tree, "gate", data) == 1  # As one of the tests fails.
    return Reach([data])


def reaching(reach: Reach, tree: Path, text: str) -> set[str]:
    line = SOURCE.splitlines().index(text) + 1
    return {name.removeprefix(f"{FILE}::") for name in reach.tests(tree / CODE, line)}


def test_a_line_is_reached_by_tests_and_by_those_whose_fixture_does(
    reach: Reach, tree: Path
) -> None:
    large = {"test_large[4]", "test_large[5]", "test_spoils_it"}
    assert reaching(reach, tree, "    return False") == large
    assert reaching(reach, tree, "    if value < LIMIT and not name.isupper():") == {
        *large,
        "test_by_order",
        "test_small",
    }
    assert reaching(reach, tree, "        self.item = item") == {
        "test_by_fixture",
        "test_beside_it",
    }
    assert not reaching(reach, tree, '            raise ValueError("nothing")')


def test_the_fastest_of_a_tier_come_first_a_file_after_the_other(tmp_path: Path) -> None:
    def test(seconds: float, *fixtures: str, thorough: bool = False) -> dict[str, object]:
        return {"seconds": seconds, "thorough": thorough, "passed": True, "fixtures": fixtures}

    tests = {
        "a.py::long": test(5.0),
        "a.py::short": test(0.2),
        "b.py::shares too": test(0.2, "f"),
        "b.py::shares": test(0.1, "f"),
        "c.py::thorough": test(0.0, thorough=True),
    }
    data = tmp_path / "data"
    CoverageData(str(data)).write()
    path = Path(f"{data}{TESTS_SUFFIX}")
    path.write_text(json.dumps({"tests": tests, "fixtures": {"f": 1.0}}))

    def fastest(budget: float, *, thorough: bool = False) -> list[str]:
        return Reach([data]).fastest(tests, thorough=thorough, budget=budget)

    both = ["b.py::shares too", "b.py::shares"]
    assert fastest(10.0) == [*both, "a.py::long", "a.py::short"]
    assert fastest(2.0) == ["a.py::short", *both]
    assert fastest(0.0) == ["a.py::short"]
    assert fastest(0.0, thorough=True) == ["c.py::thorough"]


def mutant(function: str, before: str, after: str) -> Mutant:
    return Mutant(
        group="gate", module="room.code", function=function, before=before, after=after,
        ordinal=0,
    )  # fmt: skip


@pytest.mark.thorough
def test_what_a_test_looks_at_is_noticed_and_nothing_else(
    reach: Reach, tree: Path, tmp_path: Path
) -> None:
    copy = copy_tree(tree, tmp_path / "copy")

    def outcomes(*named: str) -> dict[str, Outcome]:
        tried = try_mutant(mutant(*named), tree, copy, reach)
        return {tier: found.outcome for tier, found in tried.items()}

    with pytest.raises(LookupError, match="no such place"):
        outcomes("within", "value < LIMIT", "value >= LIMIT")
    survived = {"make test": Outcome.SURVIVED, "make test-all": Outcome.SURVIVED}
    assert outcomes("within", "return False", "return None") == survived
    assert outcomes("within", "not name.isupper()", "name.isupper()") == {
        "make test": Outcome.KILLED
    }
    untested = {"make test": Outcome.UNTESTED, "make test-all": Outcome.UNTESTED}
    assert outcomes("Box.put", 'raise ValueError("nothing")', "pass") == untested
    assert (copy / CODE).read_text() == SOURCE
    assert (copy / CODE).stat().st_mtime_ns == (tree / CODE).stat().st_mtime_ns


def test_tests_that_are_gone_are_no_kill(tree: Path) -> None:
    with pytest.raises(RuntimeError, match="Trace the tests again"):
        run_tests(tree, [f"{FILE}::test_gone"])


@pytest.mark.thorough
def test_a_test_that_fails_after_the_same_others_anyway_kills_nothing(
    reach: Reach, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = copy_tree(tree, tmp_path / "copy")
    names = [f"{FILE}::{name}" for name in ("test_spoils_it", "test_by_order")]
    assert run_tests(copy, names).by == names[1]
    monkeypatch.setattr(reach, "fastest", lambda *_, **__: names)
    monkeypatch.setattr(running, "TIERS", {"make test": False})
    tried = try_mutant(mutant("within", "return False", "return None"), tree, copy, reach)
    assert tried["make test"].outcome is Outcome.SURVIVED


def test_named_tests_run_in_their_order(tree: Path) -> None:
    names = [f"{FILE}::{name}" for name in ("test_small", "test_that_fails", "test_large[4]")]
    assert run_tests(tree, names).by == names[1]


def test_the_same_seed_draws_the_same_of_lines_that_are_reached(reach: Reach, tree: Path) -> None:
    drawn = [draw(reach, tree, count=5, seed=seed) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert all(reach.tests(tree / one.path, one.find(tree).line) for one in drawn[0])
    assert len({one.name for one in drawn[0]}) == 5
