"""``python -m model_registry``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from model_registry.__main__ import main
from pipeline_store import uris
from pipeline_store.layout import VersionLayout
from tests.model_registry.runs import FinishedRun, two_promoted

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def runs(tmp_path: Path) -> list[FinishedRun]:
    """Two promoted runs."""
    return two_promoted(tmp_path)


def call(runs: list[FinishedRun], *words: str) -> int:
    return main([words[0], "--store", runs[0].store.root, *words[1:]])


def call_json(capsys: Capture, runs: list[FinishedRun], *words: str) -> Any:
    assert call(runs, *words, "--json") == 0
    return json.loads(capsys.readouterr().out)


def test_list(runs: list[FinishedRun], capsys: Capture) -> None:
    assert call(runs, "list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[0] == runs[0].version_id
    assert lines[2].split()[:2] == ["*", runs[1].version_id]
    assert "2, last day-2" in lines[2]
    content = call_json(capsys, runs, "list")
    assert content["production"]["version_id"] == runs[1].version_id
    assert [v["version_id"] for v in content["versions"]] == [r.version_id for r in runs]


def test_list_of_an_empty_lineage(tmp_path: Path, capsys: Capture) -> None:
    assert main(["list", "--store", str(tmp_path), "--lineage", "other"]) == 0
    assert "Lineage other has no versions" in capsys.readouterr().out
    assert main(["show", "--store", str(tmp_path), "--lineage", "other"]) == 1
    assert "no model in use" in capsys.readouterr().err


def test_list_names_the_lineages_that_there_are(runs: list[FinishedRun], capsys: Capture) -> None:
    assert call(runs, "list", "--lineage", "other") == 0
    assert f"There are: {runs[0].lineage.root.rpartition('/')[2]};" in capsys.readouterr().out


def test_show(runs: list[FinishedRun], capsys: Capture) -> None:
    assert call(runs, "show") == 0
    assert capsys.readouterr().out.startswith(f"# BERT {runs[1].version_id}")
    assert call(runs, "show", runs[0].version_id) == 0
    assert capsys.readouterr().out.startswith(f"# BERT {runs[0].version_id}")
    assert call_json(capsys, runs, "show")["parent"] == runs[0].version_id


def test_verify(runs: list[FinishedRun], capsys: Capture) -> None:
    assert call(runs, "verify") == 0
    assert capsys.readouterr().out.count("all as published") == 2
    uris.delete(VersionLayout(runs[0].lineage.version(runs[0].version_id)).card)
    assert call(runs, "verify") == 1
    captured = capsys.readouterr()
    assert captured.err == f"{runs[0].version_id}: MODEL_CARD.md is missing\n"
    assert captured.out.count("all as published") == 1
    assert call(runs, "verify", runs[1].version_id) == 0


def test_rollback(runs: list[FinishedRun], capsys: Capture) -> None:
    assert call(runs, "rollback", runs[0].version_id, "--reason", "bad answers") == 0
    assert f"In use: {runs[0].version_id} (change 3: bad answers)" in capsys.readouterr().out
    assert call(runs, "list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert (lines[1][0], lines[2][0]) == ("*", "x")
    assert call_json(capsys, runs, "rollback", runs[1].version_id)["sequence"] == 4


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["rollback", "v-none"], "'v-none' does not exist"),
        (["show", "v-none"], "'v-none' does not exist"),
        (["verify", "v-none"], "'v-none' does not exist"),
        (["list", "--lineage", "No Such"], "not a valid id"),
    ],
)
def test_errors_are_one_line(
    runs: list[FinishedRun], capsys: Capture, words: list[str], said: str
) -> None:
    assert call(runs, *words) == 1
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.err.count("\n") == 1


def test_it_runs_without_tensorflow_or_airflow(runs: list[FinishedRun]) -> None:
    code = """
import sys
from model_registry import __main__, registry, gate
heavy = ("tensorflow", "apache_beam", "airflow")
sys.exit(any(name in sys.modules for name in heavy))
"""
    root = Path(__file__).parents[2]
    assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode == 0
    done = subprocess.run(
        [sys.executable, "-m", "model_registry", "list", "--store", runs[0].store.root],
        cwd=root,
        check=True,
        capture_output=True,
        text=True,
    )
    assert runs[1].version_id in done.stdout
