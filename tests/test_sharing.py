"""The order in which test files run, and what is kept of how long they took."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import sharing
from tests.sharing import ALL, TEST, Part
from verification.mutants import tracing

STORED = {
    TEST: {"tests/a/test_short.py": 1.0, "tests/a/test_mixed.py": 2.0, "tests/b/test_long.py": 5.0},
    ALL: {"tests/a/test_mixed.py": 90.0},
}


def item(nodeid: str, *markers: str) -> Any:
    return SimpleNamespace(nodeid=nodeid, keywords=dict.fromkeys(markers, True))


def order(*items: Any) -> list[str]:
    found = list(items)
    sharing.sort(found, STORED)
    return [one.nodeid for one in found]


def test_the_longest_file_comes_first_and_before_it_the_stack_in_its_own_order() -> None:
    long, short = "tests/b/test_long.py::x", "tests/a/test_short.py::x"
    story = ["tests/stack/test_b.py::x", "tests/stack/test_a.py::x"]
    assert order(item(short), item(story[0]), item(long), item(story[1])) == [*story, long, short]


def test_only_the_tests_that_are_selected_count() -> None:
    long, mixed = "tests/b/test_long.py::x", "tests/a/test_mixed.py::x"
    thorough = "tests/a/test_mixed.py::y"
    assert order(item(mixed), item(long)) == [long, mixed]
    assert order(item(long), item(mixed), item(thorough, "thorough")) == [mixed, thorough, long]


def test_what_is_thorough_does_not_begin_too_late_and_says_so() -> None:
    sharing.leave_out_late({"thorough"}, minutes=64.9, within=65)
    sharing.leave_out_late({"stack"}, minutes=65.1, within=65)
    with pytest.raises(pytest.skip.Exception, match="65 minutes had passed: run `make test-all`"):
        sharing.leave_out_late({"thorough", "stack"}, minutes=65.1, within=65)


def test_a_file_that_was_never_measured_is_as_the_median() -> None:
    new, long, short = "tests/c/test_new.py::x", "tests/b/test_long.py::x", "tests/a/test_short.py"
    assert order(item(short), item(new), item(long)) == [long, new, short]


def test_tests_of_equal_files_stay_together() -> None:
    nodes = [f"tests/c/test_{name}.py::{test}" for test in "xy" for name in "ba"]
    assert order(*map(item, nodes)) == [nodes[1], nodes[3], nodes[0], nodes[2]]


def test_what_was_measured_replaces_what_is_stored_of_files_that_exist(tmp_path: Path) -> None:
    path = tmp_path / "durations.json"
    path.write_text(json.dumps(STORED))
    for file in ("tests/a/test_short.py", "tests/b/test_long.py"):
        (tmp_path / file).parent.mkdir(parents=True)
        (tmp_path / file).touch()
    measured = {Part(TEST, "tests/b/test_long.py"): 7.26, Part(ALL, "tests/b/test_long.py"): 8.0}
    sharing.store(measured, tmp_path, path)
    assert sharing.load(path) == {
        TEST: {"tests/a/test_short.py": 1.0, "tests/b/test_long.py": 7.3},
        ALL: {"tests/b/test_long.py": 8.0},
    }


def test_the_table_adds_up_a_folder_with_setup_and_teardown() -> None:
    def report(nodeid: str, duration: float, *keywords: str) -> Any:
        return SimpleNamespace(nodeid=nodeid, duration=duration, keywords=keywords)

    found = sharing.measured(
        [
            report("tests/a/test_1.py::x", 1.0),
            report("tests/a/test_1.py::x", 0.5),
            report("tests/a/test_2.py::x[1]", 2.0, "thorough"),
            report("tests/b/test_3.py::x", 4.0),
        ]
    )
    assert found[Part(ALL, "tests/a/test_2.py")] == [2.0]
    assert [line.split() for line in sharing.table(found)] == [
        ["4.0", "s", "1", "tests", "tests/b"],
        ["3.5", "s", "2", "tests", "tests/a"],
    ]


def test_the_stored_durations_can_be_read() -> None:
    stored = sharing.load()
    assert stored[TEST]
    assert all(seconds >= 0 for files in stored.values() for seconds in files.values())


def test_all_who_leave_tests_out_leave_out_the_same() -> None:
    makefile = Path(__file__).parents[1].joinpath("Makefile").read_text()
    [unasked] = re.findall(r"^UNASKED := (.*)$", makefile, re.MULTILINE)
    assert unasked == tracing.UNASKED
    assert set(re.findall(r"not (\w+)", unasked)) == sharing.LEFT_OUT - {"thorough"}
