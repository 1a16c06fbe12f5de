"""The check itself: what passes, what is kept, and that each attack does harm without its mend."""

from __future__ import annotations

import json
import os
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import APIRoute

from pages import routes
from tests.model_registry.retained import line_of_models
from verification.attack_check import __main__ as command
from verification.attack_check import catalogue, web_installation
from verification.attack_check.catalogue import ROWS
from verification.attack_check.rows import Journal, Result, Row, Tally, try_row

REPOSITORY = Path(__file__).parents[3]
NEED_ROOT = ("full disk", "read-only store")
# By `make attack-check` alone; test_power_cut.py cuts the power of a small store.
LONG = (
    "power cut before each change",
    "data job on a full or read-only disk",
    "hostile corpora through the data job",
    "bombs: memory of the data job",
    "documents that take long",
    "kill -9 of a training",
    "kill -9 of an export",
    "full disk during a checkpoint",
    "a machine that fails while it reads",
)


class Attack:
    """An attack that does harm only while its mend is off."""

    def __init__(self, log: Path) -> None:
        self.is_mended = True
        self.log = log
        """Of how often each call tries: each row has a process of its own."""

    def __call__(self, folder: Path, times: int) -> Tally:
        assert list(folder.iterdir()) == []
        with self.log.open("a") as log:
            log.write(f"{times}\n")
        tally = Tally()
        for _ in range(times):
            tally.add(*([] if self.is_mended else ["harm"]))
        return tally

    def without(self) -> Any:
        self.is_mended = False
        return nullcontext()


def test_a_row_passes_when_only_its_control_is_bad(tmp_path: Path) -> None:
    attack = Attack(tmp_path / "log")
    result = try_row(Row("a", attack, 5, attack.without, 2), tmp_path)
    assert replace(result, seconds=0.0, cpu_seconds=0.0) == Result("a", 5, 0, 0, 2, [])
    assert result.passed
    line = json.loads(result.line)
    assert line.pop("seconds") >= 0
    assert line.pop("cpu_seconds") >= 0
    assert line == {
        "name": "a",
        "tried": 5,
        "bad": 0,
        "lost": 0,
        "control_bad": 2,
    }


@pytest.mark.parametrize(
    "numbers",
    [
        {"bad": 1},
        {"lost": 1},
        {"control_bad": 0},
        {"tried": 0},
    ],
)
def test_a_row_fails_with_harm_without_a_try_and_with_a_control_that_is_well(
    numbers: dict[str, int],
) -> None:
    good = {"tried": 1, "bad": 0, "lost": 0, "control_bad": 1}
    assert not Result(name="a", notes=[], **(good | numbers)).passed


def test_the_first_harms_are_told() -> None:
    tally = Tally()
    for number in range(9):
        tally.add(f"harm {number}", lost=number == 0)
    assert (tally.tried, tally.bad, tally.lost) == (9, 9, 1)
    assert tally.notes == ["harm 0", "harm 1", "harm 2"]


def test_a_control_ends_when_it_has_done_harm(tmp_path: Path) -> None:
    attack = Attack(tmp_path / "log")
    result = try_row(Row("a", attack, 9, attack.without, 9), tmp_path)
    assert (result.tried, result.bad, result.control_bad) == (9, 0, 3)


def test_results_of_other_code_do_not_count(tmp_path: Path) -> None:
    result = Result("a", 1, 0, 0, 1, [])
    Journal(tmp_path / "results.jsonl", "one").add(result)
    assert Journal(tmp_path / "results.jsonl", "one").read() == {"a": result}
    assert Journal(tmp_path / "results.jsonl", "two").read() == {}


def test_what_has_passed_is_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    good, bad = Attack(tmp_path / "good"), Attack(tmp_path / "bad")
    bad.is_mended = False
    rows = (Row("good", good, 3, good.without), Row("bad", bad, 3, bad.without))
    monkeypatch.setattr(catalogue, "ROWS", rows)
    monkeypatch.setattr(command, "code_version", lambda: "this")
    arguments = ["--state-dir", str(tmp_path), "--jobs", "1"]
    assert command.main(arguments) == 1
    assert command.main([*arguments, "--only", "good"]) == 0
    assert good.log.read_text().split() == ["3", "1"]
    assert command.main([*arguments, "--only", "good", "--fresh"]) == 0
    assert good.log.read_text().split() == ["3", "1", "3", "1"]
    lines = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [line["name"] for line in lines] == ["good", "bad", "good", "good"]
    assert lines[1]["bad"] == 3
    assert command.main([*arguments, "--only", "neither"]) == 1
    assert "no row neither. There are: good; bad" in capfd.readouterr().err


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_row_that_cannot_be_tried_is_bad_and_the_others_are_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], jobs: str
) -> None:
    def breaks(folder: Path, times: int) -> Tally:
        raise OSError("no mount here")

    good = Attack(tmp_path / "log")
    rows = (Row("broken", breaks, 3, nullcontext), Row("good", good, 3, good.without))
    monkeypatch.setattr(catalogue, "ROWS", rows)
    monkeypatch.setattr(command, "code_version", lambda: "this")
    assert command.main(["--state-dir", str(tmp_path), "--jobs", jobs]) == 1
    said = capfd.readouterr()
    lines = map(json.loads, said.out.splitlines())
    broken, other = sorted(lines, key=lambda line: str(line["name"]))
    assert (broken["name"], broken["tried"], broken["bad"]) == ("broken", 0, 1)
    assert broken["notes"] == ["It cannot be tried: OSError('no mount here')"]
    assert "Traceback" in said.err
    assert other["control_bad"] == 1


def test_a_row_whose_process_dies_is_bad(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def dies(folder: Path, times: int) -> Tally:
        os._exit(7)

    monkeypatch.setattr(catalogue, "ROWS", (Row("dies", dies, 3, nullcontext),))
    monkeypatch.setattr(command, "code_version", lambda: "this")
    assert command.main(["--state-dir", str(tmp_path)]) == 1
    line = json.loads(capfd.readouterr().out)
    assert (line["tried"], line["bad"], line["notes"]) == (0, 1, ["exit code 7"])


def test_each_page_is_asked_for_with_all_that_it_needs(tmp_path: Path) -> None:
    run = line_of_models(str(tmp_path / "store"), 1)[-1]
    asked = web_installation._pages(run)
    lacking = {
        route.path: missing
        for route in routes.application().routes
        if isinstance(route, APIRoute)
        and (missing := required(route) - {*asked.get(f"/repretraining{route.path}", ())})
    }
    assert lacking == {}


def required(route: APIRoute) -> set[str]:
    parameters = route.dependant.query_params
    return {parameter.name for parameter in parameters if parameter.field_info.is_required()}


def test_the_page_has_every_row() -> None:
    page = (REPOSITORY / "docs" / "evidence" / "attack-check.md").read_text()
    assert [row.name for row in ROWS if f"| {row.name} |" not in page] == []


@pytest.mark.thorough
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_each_attack_fails_and_succeeds_without_the_mend(row: Row, tmp_path: Path) -> None:
    if row.name in LONG:
        pytest.skip("takes minutes: by `make attack-check`")
    if row.name in NEED_ROOT and os.geteuid():
        pytest.skip("needs root, for a disk of its own")
    small = Row(row.name, row.attack, min(row.times, 4), row.without, row.control_times)
    result = try_row(small, tmp_path)
    assert result.passed, result
