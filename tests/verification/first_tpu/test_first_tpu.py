"""The first day with a TPU: its list of beliefs, its limits, and a rehearsal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from verification.first_tpu.__main__ import main
from verification.first_tpu.beliefs import BELIEFS, Belief, Finding, table
from verification.first_tpu.report import as_markdown
from verification.first_tpu.steps import REPOSITORY, Account, Outcome, read_results

STEPS = {"cloud", "bucket", "partition", "contract"}


def test_the_page_has_the_list_of_beliefs() -> None:
    page = (REPOSITORY / "docs" / "evidence" / "limits.md").read_text()
    wanted = "\n".join(table())
    assert wanted in page, f"docs/evidence/limits.md needs this table:\n{wanted}"


def test_evidence_names_steps_and_tests_that_there_are() -> None:
    named = {name for belief in BELIEFS for name in belief.evidence} - STEPS
    assert named
    for name in named:
        file, _, test = name.partition("::")
        assert f"def {test}(" in (REPOSITORY / "tests" / "contract" / f"{file}.py").read_text()


@pytest.mark.parametrize(
    ("results", "finding"),
    [
        ({"a": True, "b": True}, Finding.HELD),
        ({"a": True, "b": None}, Finding.NOT_TRIED),
        ({"a": True}, Finding.NOT_TRIED),
        ({"a": False, "b": None}, Finding.WRONG),
        ({}, Finding.NOT_TRIED),
    ],
)
def test_a_belief_holds_if_all_its_evidence_does(
    results: dict[str, bool | None], finding: Finding
) -> None:
    assert Belief("s", "w", "b", ("a", "b")).finding(results) is finding


def test_what_nothing_tries_is_not_said_to_hold() -> None:
    assert Belief("s", "w", "b").finding({"a": True}) is Finding.NOT_TRIED


def test_results_of_a_test_are_those_of_all_its_cases(tmp_path: Path) -> None:
    report = tmp_path / "r.xml"
    report.write_text(
        "<testsuites><testsuite>"
        '<testcase classname="tests.contract.test_a" name="test_x[1]"/>'
        '<testcase classname="tests.contract.test_a" name="test_x[2]"><failure/></testcase>'
        '<testcase classname="tests.contract.test_a" name="test_y"><skipped/></testcase>'
        '<testcase classname="tests.contract.test_a" name="test_z[1]"><skipped/></testcase>'
        '<testcase classname="tests.contract.test_a" name="test_z[2]"/>'
        '<testcase classname="tests.contract.test_b" name="test_x"/>'
        "</testsuite></testsuites>"
    )
    assert read_results(report) == {
        "test_a::test_x": False,
        "test_a::test_y": None,
        "test_a::test_z": None,
        "test_b::test_x": True,
    }


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--project", "p", "--store", "gs://b/p"], "could cost 2.40"),
        (["--project", "p", "--store", "gs://b/p", "--max-cost", "2"], "--max-cost 2.00"),
        (["--project", "p"], "belong together"),
        (["--store", "gs://b/p"], "belong together"),
        (["--preset", "none"], "none"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_done(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--state-dir", str(tmp_path), *words]) == 2
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_says_what_would_be_done_and_does_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = ["--project", "p", "--store", "gs://b/p", "--max-cost", "3"]
    assert main(["--dry-run", "--state-dir", str(tmp_path), *place]) == 0
    said = capsys.readouterr().out
    assert all(step in said for step in STEPS)
    assert "at most 2.40" in said
    assert list(tmp_path.iterdir()) == []


def test_the_report_ticks_off_each_belief() -> None:
    account = Account(store="gs://b/p", preset="p.toml", project="p")
    tests = {name: True for belief in BELIEFS for name in belief.evidence if "::" in name}
    passed = [Outcome("cloud", True), Outcome("bucket", False, note="see the log")]
    page = as_markdown(account, [*passed, Outcome("contract", True, tests=tests)], 2.4)
    for belief in BELIEFS:
        assert belief.statement in page
    assert "| bucket | **failed** | 0 | see the log |" in page
    assert page.count("| held |") >= 5
    assert page.count("| **wrong** |") == 1


@pytest.mark.thorough
@pytest.mark.timeout(1800)
def test_a_rehearsal_goes_through_and_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--state-dir", str(tmp_path)]) == 0, capsys.readouterr()
    report = json.loads((tmp_path / "report.json").read_text())
    found = {step["name"]: step["passed"] for step in report["steps"]}
    assert found == {"cloud": None, "bucket": True, "partition": True, "contract": True}
    by_finding = [belief["finding"] for belief in report["beliefs"]]
    assert by_finding.count("held") >= 7
    assert "wrong" not in by_finding
    assert not list((tmp_path / "store").rglob("*.json"))
