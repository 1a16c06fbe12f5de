"""What tasks say of the data that they have read and written, without OpenLineage's provider."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from model_registry import outcomes, registry
from operators import task_data
from operators.rollback import RollbackOperator
from operators.task_data import MAX_FILES, TaskData
from pipeline_store import uris
from pipeline_store.formats import OutcomeKind, PartitionManifest, PreparedInput, ShardManifest
from pipeline_store.layout import StoreLayout
from tests.model_registry.runs import FinishedRun, two_promoted

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def runs(tmp_path: Path) -> list[FinishedRun]:
    """Two runs, each of whose models came into use, the second from the first."""
    runs = two_promoted(tmp_path)
    for run in runs:
        PreparedInput(manifest=run.manifest_uri).write(run.run.prepared_partition)
        outcomes.record(
            run.run, OutcomeKind.PROMOTED, "better", version_id=run.version_id, written_by="promote"
        )
    return runs


def names(data: TaskData) -> tuple[set[str], set[str]]:
    return {one.uri for one in data.inputs}, {one.uri for one in data.outputs}


def write_shard(run: FinishedRun, number: int) -> str:
    key = f"{number:032x}"
    uri = run.store.shard_manifest(key)
    ShardManifest(
        shard_key=key,
        input_uri=f"{run.store.root}/corpus/{run.partition}/{number}.txt",
        input_sha256="1" * 64,
        input_bytes=1000,
        vocabulary_sha256="2" * 64,
        config_sha256="3" * 64,
        decisions_sha256="4" * 64,
        files=[],
        documents=12,
        dropped={"empty": 3, "near_duplicate": 0},
        dead_letter=None,
        statistics=PartitionManifest.load(run.manifest_uri).statistics,
        libraries={},
    ).write(uri)
    return uri


def shards(run: FinishedRun, count: int) -> None:
    manifest = PartitionManifest.load(run.manifest_uri)
    found = [write_shard(run, number) for number in range(count)]
    manifest.model_copy(update={"shards": found}).write(run.manifest_uri)


def test_raw_files_become_records(runs: list[FinishedRun]) -> None:
    run = runs[1]
    shards(run, 2)
    data = task_data.of_prepare(run.run)
    corpus = f"{run.store.root}/corpus/{run.partition}"
    read = {f"{corpus}/0.txt", f"{corpus}/1.txt", run.lineage.vocabulary}
    assert names(data) == (read, {run.manifest_uri})
    [records] = data.outputs
    assert (records.rows, records.tokens, records.files) == (5500, 660_000, 2)
    assert {column.name for column in records.columns} >= {"input_ids", "input_mask"}
    raw = data.inputs[0]
    assert (raw.rows, raw.bytes, raw.version) == (12, 1000, "1" * 64)
    assert [(check.holds, check.actual) for check in raw.checks] == [(False, "3"), (True, "0")]


def test_a_partition_of_very_many_files_is_told_by_its_folder(runs: list[FinishedRun]) -> None:
    run = runs[1]
    shards(run, MAX_FILES + 1)
    inputs, outputs = names(task_data.of_prepare(run.run))
    assert (len(inputs), outputs) == (2, {run.manifest_uri})
    assert any(run.partition in uri for uri in inputs)


def test_each_task_reads_what_others_wrote(runs: list[FinishedRun]) -> None:
    run = runs[1]
    shards(run, 1)
    first = runs[0]
    parent = first.lineage.version(first.version_id)
    tasks = {
        name: getattr(task_data, f"of_{name}")(run.run)
        for name in ("prepare", "plan", "train", "evaluate", "judge", "export", "promote")
    }
    written = {uri for data in tasks.values() for uri in names(data)[1]}
    assert {run.lineage.production, run.lineage.version(run.version_id)} <= written
    before = {parent, run.lineage.vocabulary, f"{run.store.root}/corpus/{run.partition}/0.txt"}
    read = {uri for data in tasks.values() for uri in names(data)[0]}
    assert read - written == before
    assert names(tasks["promote"])[1] == {
        run.lineage.production,
        run.lineage.version(run.version_id),
    }
    pointer = tasks["promote"].outputs[-1]
    assert (pointer.version, pointer.is_replaced) == (run.version_id, True)
    [verdict] = tasks["judge"].outputs
    assert [check.holds for check in verdict.checks] == [True]


def test_what_was_rejected_or_skipped_has_written_nothing(tmp_path: Path) -> None:
    run = FinishedRun(str(tmp_path), "1", gain=-1.0)
    outcomes.record(run.run, OutcomeKind.REJECTED, "worse", written_by="judge")
    data = task_data.of_promote(run.run)
    assert data.outputs == []
    [verdict] = task_data.of_judge(run.run).outputs
    assert [check.holds for check in verdict.checks] == [False]
    uris.delete(run.run.plan)
    assert task_data.of_train(run.run).outputs == []
    assert task_data.of_plan(run.run).outputs == []


def test_a_rollback_is_told_by_the_run_that_asked_for_it(runs: list[FinishedRun]) -> None:
    first, second = runs
    lineage = first.lineage
    asked = StoreLayout(first.store.root).run("0123456789ab")
    registry.rollback(
        lineage, first.version_id, reason="worse in use", by="ada", request="0123456789ab"
    )
    operator = RollbackOperator(
        task_id="rollback",
        store_uri=first.store.root,
        lineage="default",
        version=first.version_id,
        reason="worse in use",
    )
    data = operator.task_data(asked, 0)
    assert names(data) == ({lineage.version(first.version_id)}, {lineage.production})
    assert names(operator.task_data(second.run, 0)) == (set(), set())


@pytest.mark.parametrize(
    ("uri", "name"),
    [
        ("gs://bucket/store/runs/1/training", ("gs://bucket", "store/runs/1/training")),
        ("gs://bucket", ("gs://bucket", "/")),
        ("/data/store/", ("file", "/data/store")),
        ("file:///data/store", ("file", "/data/store")),
    ],
)
def test_names_follow_the_conventions(uri: str, name: tuple[str, str]) -> None:
    assert uris.dataset_name(uri) == name


def test_nothing_of_openlineage_is_imported_by_the_operators() -> None:
    code = (
        "import sys; import operators.finetuning, operators.promotion, operators.rollback; "
        "print([name for name in sys.modules if 'openlineage' in name])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'plugins'}"},
    )
    assert found.stdout.strip() == "['operators.openlineage']"
