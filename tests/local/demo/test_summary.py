"""What the demo reports of its runs, as JSON and as tables."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path

import pytest
from rich.console import Console

from local.demo import summary
from pipeline_store import uris
from pipeline_store.formats import PartitionManifest
from tests.model_registry.runs import FinishedRun


def finished(tmp_path: Path) -> tuple[FinishedRun, summary.Day]:
    run = FinishedRun(str(tmp_path / "store"), "1")
    manifest = PartitionManifest.load(run.manifest_uri)
    dropped = {"duplicate": 30, "near_duplicate": 4, "empty": 3}
    manifest.model_copy(update={"dropped": dropped}).write(run.manifest_uri)
    # Beside a manifest lie its report and the index of its documents.
    uris.write(run.manifest_uri.replace(".json", ".html"), b"page")
    uris.write(run.lineage.duplicate_index(run.partition, "f" * 64), b"index")
    return run, summary.Day(run.partition, run.run, "success", {"data.prepare": 7.5}, 60.0)


def test_summary_has_all_that_is_promised(tmp_path: Path) -> None:
    run, day = finished(tmp_path)
    result = summary.load_result(day, run.lineage.manifests(run.partition))
    content = summary.to_json([day], [result], tpu_nodes_left=0)
    promised = ("documents", "tokens", "steps", "losses", "verdicts", "stage_seconds")
    assert all(list(content[key]) == [run.partition] for key in promised)
    assert content["tpu_nodes_left"] == 0
    # 660 000 tokens in 5 500 rows of 128.
    assert content["row_fill"] == {run.partition: 0.9375}
    assert content["duplicates_dropped"] == {run.partition: 34}
    assert content["data_reports"] == {run.partition: run.manifest_uri.replace(".json", ".html")}


def test_tables_show_the_data(tmp_path: Path) -> None:
    run, day = finished(tmp_path)
    result = summary.load_result(day, run.lineage.manifests(run.partition))
    console = Console(file=io.StringIO(), width=120)
    summary.show([day], [result], console)
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    for words in ("duplicates", "34", "row fill", "93.8%", "data.prepare", "7.5"):
        assert words in shown


def test_partitions_are_never_cut_off(tmp_path: Path) -> None:
    run, day = finished(tmp_path)
    result = summary.load_result(day, run.lineage.manifests(run.partition))
    console = Console(file=io.StringIO(), width=50)
    day = dataclasses.replace(day, partition="2026-01-31")
    summary.show([day], [result], console)
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().count("2026-01-31") >= 2


def test_a_run_without_a_verdict_is_named(tmp_path: Path) -> None:
    run, day = finished(tmp_path)
    uris.delete_tree(run.run.verdicts)
    with pytest.raises(FileNotFoundError, match="has no verdict"):
        summary.load_result(day, run.lineage.manifests(run.partition))
