"""Smaller models follow the version that is in use; a rollback moves nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from model_registry import registry
from model_registry.__main__ import main
from model_registry.children import children_of
from pipeline_store import uris
from tests.model_registry.runs import FinishedRun, two_promoted
from tests.model_registry.smaller_models import put_child


@pytest.fixture
def runs(tmp_path: Path) -> list[FinishedRun]:
    """Two promoted runs of one lineage."""
    return two_promoted(tmp_path)


def current(run: FinishedRun) -> list[str]:
    lineage = run.lineage.root.rpartition("/")[2]
    return [child.uri for child in children_of(run.store, lineage) if child.is_current]


def test_a_rollback_makes_the_children_of_the_older_version_current_again(
    runs: list[FinishedRun],
) -> None:
    old, new = put_child(runs[0], "a" * 12), put_child(runs[1], "b" * 12, hours=1)
    before = {uri: uris.read(uri) for uri in (old, new)}
    assert current(runs[0]) == [new]
    registry.rollback(runs[0].lineage, runs[0].version_id, reason="a test")
    assert current(runs[0]) == [old]
    registry.rollback(runs[0].lineage, runs[1].version_id, reason="a test")
    assert current(runs[0]) == [new]
    assert {uri: uris.read(uri) for uri in (old, new)} == before


def test_of_equal_children_the_newest_is_current_and_a_refused_one_never(
    runs: list[FinishedRun],
) -> None:
    put_child(runs[1], "a" * 12)
    newer = put_child(runs[1], "b" * 12, hours=1)
    put_child(runs[1], "c" * 12, hours=2, accepted=False, reasons=["No."], folder="")
    other = put_child(runs[1], "a" * 12, name="tflite_float16")
    assert sorted(current(runs[0])) == sorted([newer, other])


def test_a_lineage_with_nothing_in_use_has_no_current_children(tmp_path: Path) -> None:
    run = FinishedRun(str(tmp_path / "store"), "1", parent=None)
    put_child(run, "a" * 12)
    assert current(run) == []
    assert len(children_of(run.store, run.lineage.root.rpartition("/")[2])) == 1
    assert children_of(run.store, "other") == []


def test_the_command_says_what_to_serve(
    runs: list[FinishedRun], capsys: pytest.CaptureFixture[str]
) -> None:
    put_child(runs[0], "a" * 12)
    place = put_child(runs[1], "b" * 12, hours=1)
    words = ["children", "--store", runs[0].store.root]
    words += ["--lineage", runs[0].lineage.root.rpartition("/")[2]]
    assert main([*words, "--current", "--json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    told = json.loads(line)
    assert told["folder"] == f"{place.rpartition('/')[0]}/{'f' * 12}/tflite"
    assert (told["version"], told["current"]) == (runs[1].version_id, True)
    assert main(words) == 0
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) == 4
    assert shown[2].startswith("*")
