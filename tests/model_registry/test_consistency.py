"""``python -m model_registry check``: what fits together, and everything that does not."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from model_registry import registry
from model_registry.__main__ import main
from model_registry.consistency import check
from pipeline_store import uris
from pipeline_store.formats import (
    LineageLease,
    ModelVersion,
    PartitionManifest,
    ProductionPointer,
    RunPlan,
)
from pipeline_store.layout import VersionLayout
from tests.model_registry.runs import FinishedRun


def promoted(store: str, name: str, parent: str | None) -> FinishedRun:
    run = FinishedRun(store, name, parent=parent)
    registry.publish(run.store, run.run)
    registry.promote(run.lineage, run.version_id, expected_baseline=parent, reason="better")
    return run


@pytest.fixture
def runs(tmp_path: Path) -> list[FinishedRun]:
    """A line of three models."""
    found: list[FinishedRun] = []
    for name in ("1", "2", "3"):
        parent = found[-1].version_id if found else None
        found.append(promoted(str(tmp_path / "store"), name, parent))
    return found


def edit(run: FinishedRun, **changes: Any) -> None:
    """Change a version's record, which the registry itself never does."""
    uri = run.lineage.model(run.version_id)
    ModelVersion.load(uri).model_copy(update=changes).write(uri)


def edit_plan(run: FinishedRun, **changes: Any) -> None:
    uri = VersionLayout(run.lineage.version(run.version_id)).plan
    RunPlan.load(uri).model_copy(update=changes).write(uri)


def point(run: FinishedRun, **changes: Any) -> None:
    uri = run.lineage.production
    ProductionPointer.load(uri).model_copy(update=changes).write(uri)


def test_a_line_of_promotions_fits(runs: list[FinishedRun]) -> None:
    report = check(runs[0].lineage)
    assert report.problems == []
    assert (report.versions, report.in_use) == (3, runs[2].version_id)
    assert report.times_trained == {"day-1": 1, "day-2": 1, "day-3": 1}
    assert report.partitions_seen_once


def test_only_the_line_of_the_model_in_use_counts(runs: list[FinishedRun]) -> None:
    registry.rollback(runs[0].lineage, runs[0].version_id, reason="test")
    branch = promoted(runs[0].store.root, "4", runs[0].version_id)
    report = check(runs[0].lineage)
    assert report.problems == []
    assert (report.versions, report.in_use) == (4, branch.version_id)
    assert report.times_trained == {"day-1": 1, "day-4": 1}


DAMAGES: dict[str, tuple[Callable[[list[FinishedRun]], None], str]] = {
    "parent": (lambda runs: edit(runs[1], parent="v-nobody"), "its parent v-nobody does not exist"),
    "forgotten": (lambda runs: edit(runs[2], partitions_seen=["day-3"]), "which it does not list"),
    "twice": (
        lambda runs: edit(runs[2], partitions_seen=["day-1", "day-2", "day-3", "day-3"]),
        "partitions day-3 are listed more than once",
    ),
    "own": (lambda runs: edit(runs[0], partitions_seen=[]), "made of 'day-1', which it does not"),
    "steps": (
        lambda runs: edit(runs[1], train_steps_total=400),
        "it has 400 steps, its parent 400",
    ),
    "run": (lambda runs: edit(runs[1], run_key="0" * 12), "whose version has another name"),
    "vocabulary": (lambda runs: edit(runs[1], vocabulary_sha256="a"), "its vocabulary is a"),
    "prefix": (
        lambda runs: edit(runs[1], checkpoint_prefix="x/y"),
        "belongs to its checkpoint x/y",
    ),
    "pointer": (lambda runs: point(runs[0], version_id="v-x"), "names v-x, which does not exist"),
    "rolled back": (
        lambda runs: point(runs[0], rolled_back=[runs[2].version_id, "v-y"]),
        "v-y was rolled back; it does not exist",
    ),
    "config": (
        lambda runs: uris.delete(uris.join(version_folder(runs[0]), "config.json")),
        "config.json is missing",
    ),
    "plan": (
        lambda runs: edit_plan(runs[1], parent_version="v-x"),
        "its run was planned from v-x, not from v-",
    ),
    "no plan": (
        lambda runs: uris.delete(uris.join(version_folder(runs[0]), "plan.json")),
        "plan.json cannot be read",
    ),
    "manifest": (
        lambda runs: uris.write(runs[0].manifest_uri, uris.read(runs[1].manifest_uri)),
        "the manifest of partition day-1 is of another partition",
    ),
}


def version_folder(run: FinishedRun) -> str:
    return run.lineage.version(run.version_id)


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_does_not_fit_is_named(
    runs: list[FinishedRun], damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    act, words = DAMAGES[damage]
    act(runs)
    assert main(["check", "--store", runs[0].store.root, "--json"]) == 1
    output = capsys.readouterr()
    assert words in output.err
    assert json.loads(output.out)["registry_consistent"] is False


def test_quick_compares_sizes_only(runs: list[FinishedRun]) -> None:
    uri = uris.join(version_folder(runs[1]), "vocab.txt")
    uris.write(uri, b"x" * uris.size(uri))
    assert check(runs[0].lineage, quick=True).problems == []
    problem = f"{runs[1].version_id}: vocab.txt has other content than was published"
    assert check(runs[0].lineage).problems == [problem]


def promoted_again(runs: list[FinishedRun], manifest_uri: str) -> FinishedRun:
    """Return a promoted run that was trained on the second day once more."""
    again = FinishedRun(runs[0].store.root, "5", parent=runs[2].version_id)
    again.plan(partition="day-2", trained={"day-2": manifest_uri})
    registry.publish(again.store, again.run)
    registry.promote(
        again.lineage, again.version_id, expected_baseline=runs[2].version_id, reason="again"
    )
    return again


def test_a_partition_that_was_trained_on_again_is_counted(
    runs: list[FinishedRun], capsys: pytest.CaptureFixture[str]
) -> None:
    again = promoted_again(runs, runs[1].manifest_uri)
    assert main(["check", "--store", again.store.root]) == 0
    assert "day-2: trained on 2 times" in capsys.readouterr().out
    assert not check(again.lineage).partitions_seen_once


def test_a_partition_that_has_changed_since_is_no_repetition(runs: list[FinishedRun]) -> None:
    changed = PartitionManifest.load(runs[1].manifest_uri).model_copy(update={"documents": 7})
    changed.write(uri := runs[1].lineage.manifest("day-2", "1" * 16))
    report = check(promoted_again(runs, uri).lineage)
    assert report.problems == []
    assert report.times_trained["day-2"] == 2
    assert report.partitions_seen_once


def test_who_holds_the_lineage_is_told(
    runs: list[FinishedRun], capsys: pytest.CaptureFixture[str]
) -> None:
    lineage = runs[0].lineage
    assert check(lineage).lease == "no run has ever held the lineage"
    now = datetime.now(UTC)
    held = LineageLease(
        sequence=1,
        run_key="k",
        dag_id="dag",
        run_id="day-4",
        partition="day-4",
        acquired=now,
        expires=now + timedelta(hours=1),
    )
    held.write(lineage.lease)
    report = check(lineage)
    assert report.problems == []
    assert "held by run day-4 of dag, partition day-4 (run key k)" in report.lease
    assert main(["check", "--store", runs[0].store.root]) == 0
    assert "lease: the lineage is held by run day-4" in capsys.readouterr().out
    held.model_copy(update={"expires": now}).write(lineage.lease)
    assert "but it has expired: if that run has ended" in check(lineage).lease
    uris.write(lineage.lease, b"{")
    [problem] = check(lineage).problems
    assert "lease.json" in problem
    assert "lease --break" in problem
