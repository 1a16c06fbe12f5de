"""Removing: in which order, what a kill leaves, and what comes into use meanwhile."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from model_registry import production, registry
from model_registry.consistency import check
from model_registry.prune import main
from model_registry.retention import pruning, sweep
from model_registry.retention.policy import describe_pruned, pruned_versions
from model_registry.retention.pruning import Kind, PruneReport, RetentionPolicy
from model_registry.retention.sweep import Sweep
from pipeline_config import parse_config
from pipeline_store import local, uris
from pipeline_store.formats import (
    CheckpointManifest,
    ModelExports,
    PartitionManifest,
    RunPlan,
    ShardManifest,
    SignatureFile,
)
from pipeline_store.layout import StoreLayout
from tests.model_registry.finetunings import FinetuningRun, prepare
from tests.model_registry.retained import (
    POLICY,
    age,
    finished,
    line_of_models,
    objects,
    write_manifest,
    write_shard,
)
from tests.model_registry.runs import FinishedRun
from tests.model_registry.smaller_models import put_child
from tests.pipeline_store.gcs_server import GcsState
from trained_models import record_sources
from trained_models.artifacts import verify_files

Capture = pytest.CaptureFixture[str]
ARGUMENTS = ["--keep-versions", "1", "--older-than-days", "14", "--confirm"]


def write_note(store: str, days: float) -> None:
    """Write an object that retention keeps, so many days ago."""
    letters = "".join(chr(ord("a") + ord(sign) % 26) for sign in f"{days}")
    path = Path(store, "lineages", "default", f"note_{letters}.json")
    path.write_text("{}")
    then = (datetime.now(UTC) - timedelta(days=days)).timestamp()
    os.utime(path, (then, then))


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(tmp_path / "store")


def prune(store: str, policy: RetentionPolicy = POLICY, **options: float) -> PruneReport:
    return pruning.prune(StoreLayout(store), policy, **options)


def past(store: str) -> list[FinishedRun]:
    """Return a line of models in a store with old things of every kind."""
    runs = line_of_models(store, 4)
    for name in ("finetuned", "finetuned again"):
        tuned = FinetuningRun(runs[3].store, name)
        tuned.train()
        tuned.end()
        child = put_child(runs[0], tuned.key, trial=tuned.plan.trials[0].trial_id)
        uris.write(uris.join(child.rpartition("/")[0], "f" * 12, "model.tflite"), b"weights")
    prepare(runs[3].store, "weather", "c" * 16)
    first = write_manifest(runs[3], "old", "shared", partition="day-x")
    write_manifest(runs[3], "new", "shared", partition="day-x")
    write_shard(runs[3].store, "lonely")
    uris.write(runs[3].store.scratch("x"), b"1")
    uris.write(runs[3].store.alert(runs[0].key, "failed"), b"{}")
    age(store)
    os.utime(first, (0, 0))
    return runs


def test_everything_that_can_go_goes_and_nothing_else(store: str) -> None:
    runs = past(store)
    before = objects(store)
    report = prune(store)
    assert {item.kind for item in report.removed} == {*Kind}
    assert report.removed == report.plan.items
    assert report.left == {}
    gone = {path for item in report.removed for path in item.paths}
    records = {f"lineages/default/pruned/{run.version_id}.json" for run in runs[:2]}
    assert objects(store) == before - gone | records
    # A second pass finds nothing.
    age(store)
    assert pruning.plan(StoreLayout(store), POLICY).items == []


def test_in_a_bucket(cloud_storage: GcsState) -> None:
    store = "gs://bucket/store"
    runs = line_of_models(store, 3)
    assert prune(store).removed == []
    age(store, cloud=cloud_storage)
    before = objects(store)
    report = prune(store)
    assert {item.kind for item in report.removed} >= {Kind.VERSION, Kind.TRAINING, Kind.EXPORTS}
    gone = {path for item in report.removed for path in item.paths}
    record = f"lineages/default/pruned/{runs[0].version_id}.json"
    assert objects(store) == before - gone | {record}


def test_what_is_left_can_be_used(store: str) -> None:
    runs = past(store)
    prune(store)
    lineage, layout = runs[0].lineage, runs[0].store
    assert [m.version_id for m in registry.list_versions(lineage)] == [
        run.version_id for run in runs[2:]
    ]
    for run in runs[2:]:
        registry.verify(lineage, run.version_id)
    # A further run can be planned: all records of all partitions are there to read.
    in_use = registry.production(lineage)
    assert in_use is not None
    assert in_use.version_id == runs[3].version_id
    run = finished(store, "next", in_use.version_id)
    config = parse_config(uris.read(run.run.config), run.run.config)
    for uri in RunPlan.load(run.run.plan).evaluated.values():
        manifest = record_sources.training_manifest(uri, layout, config)
        assert_readable(layout, manifest)
    registry.publish(run.store, run.run)
    registry.rollback(lineage, runs[2].version_id, reason="test")


def assert_readable(store: StoreLayout, manifest: PartitionManifest) -> None:
    for uri in manifest.shards:
        assert_whole(uri.rpartition("/")[0], ShardManifest.load(uri))


def assert_whole(folder: str, shard: ShardManifest) -> None:
    assert shard.dead_letter is not None
    files = [digest for file in shard.files for digest in (file.data, file.index)]
    verify_files(folder, [*files, shard.dead_letter])


def test_of_a_removed_version_it_stays_known_what_it_was(store: str) -> None:
    runs = past(store)
    model = registry.load_version(runs[0].lineage, runs[0].version_id)
    content = PartitionManifest.load(runs[0].manifest_uri).content_sha256
    prune(store)
    found = pruned_versions(runs[0].lineage)
    assert [*found] == sorted(run.version_id for run in runs[:2])
    record = found[runs[0].version_id]
    assert record.model == model
    assert record.trained == {"day-1": content}
    assert record.reason == "no rollback target, and no run names it"


def test_the_registry_fits_together_afterwards(store: str) -> None:
    runs = past(store)
    registry.rollback(runs[0].lineage, runs[2].version_id, reason="test")
    registry.rollback(runs[0].lineage, runs[3].version_id, reason="test")
    age(store)
    prune(store)
    report = check(runs[0].lineage)
    assert report.problems == []
    assert report.times_trained == {f"day-{number}": 1 for number in range(1, 5)}
    assert report.partitions_seen_once


class KilledError(Exception):
    """Stands for a kill at one deletion."""


@pytest.mark.parametrize("die_at", [*range(1, 14), 20, 40, 60])
def test_nothing_half_removed_is_trusted(
    store: str, die_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = past(store)
    delete, count = uris.delete, iter(range(1, 10_000))

    def fails(uri: str) -> None:
        if next(count) >= die_at:
            raise KilledError
        delete(uri)

    monkeypatch.setattr(uris, "delete", fails)
    with pytest.raises(KilledError):
        prune(store)
    monkeypatch.setattr(uris, "delete", delete)
    assert_all_commits_hold(store, runs)
    prune(store)
    assert_all_commits_hold(store, runs)
    age(store)
    assert pruning.plan(StoreLayout(store), POLICY).items == []


def assert_all_commits_hold(store: str, runs: list[FinishedRun]) -> None:
    """Whatever is committed is complete."""
    for model in registry.list_versions(runs[0].lineage):
        registry.verify(runs[0].lineage, model.version_id)
    for path in objects(store):
        uri, folder = f"{store}/{path}", f"{store}/{path}".rpartition("/")[0]
        if path.endswith("/shard.json"):
            assert_whole(folder, ShardManifest.load(uri))
        elif path.startswith("signatures/") and path.endswith(".json"):
            assert uris.exists(uris.join(folder, SignatureFile.load(uri).data.path))
        elif "/checkpoints/" in path:
            training = folder.removesuffix("/checkpoints")
            verify_files(training, CheckpointManifest.load(uri).files)
        elif path.endswith("/exports.json"):
            for exported in ModelExports.load(uri).formats.values():
                verify_files(uris.join(folder, exported.folder), exported.files)
        elif "/partitions/" in path and path.endswith(".json"):
            index = PartitionManifest.load(uri).duplicate_index
            assert index is not None
            assert uris.exists(uris.join(folder, index.data.path))
            assert_readable(StoreLayout(store), PartitionManifest.load(uri))


# Kills itself at the deletion whose number is given, without a chance to tidy up.
KILLED = """
import itertools, os, signal, sys
from model_registry import prune
from pipeline_store import local, uris

delete, numbers = uris.delete, itertools.count(1)

def fatal(uri):
    if next(numbers) >= int(sys.argv[1]):
        os.kill(os.getpid(), signal.SIGKILL)
    delete(uri)

uris.delete = fatal
prune.main(sys.argv[2:])
"""


@pytest.mark.parametrize("die_at", [2, 25])
def test_a_killed_pass_is_finished_by_the_next(store: str, die_at: int) -> None:
    runs = past(store)
    command = [sys.executable, "-c", KILLED, str(die_at), "--store", store, "--delete", *ARGUMENTS]
    killed = subprocess.run(command, check=False, capture_output=True)
    assert killed.returncode == -signal.SIGKILL
    assert_all_commits_hold(store, runs)
    assert main(["--store", store, "--delete", *ARGUMENTS]) == 0
    age(store)
    assert pruning.plan(StoreLayout(store), POLICY).items == []
    assert [m.version_id for m in registry.list_versions(runs[0].lineage)] == [
        run.version_id for run in runs[2:]
    ]


def test_a_rollback_at_the_last_moment_wins(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = past(store)
    target = runs[0]
    delete, before = uris.delete, objects(store)

    def rolls_back_first(uri: str) -> None:
        if uri == target.lineage.model(target.version_id):
            registry.rollback(target.lineage, target.version_id, reason="just now")
        delete(uri)

    monkeypatch.setattr(uris, "delete", rolls_back_first)
    report = prune(store)
    assert (
        report.left[f"model versions: default/{target.version_id}"]
        == "it was put into use in the meantime"
    )
    registry.verify(target.lineage, target.version_id)
    in_use = registry.production(target.lineage)
    assert in_use is not None
    assert in_use.version_id == target.version_id
    version = f"lineages/default/versions/{target.version_id}/"
    assert {path for path in before if path.startswith(version)} <= objects(store)
    assert target.version_id not in pruned_versions(target.lineage)


def test_a_rollback_that_has_verified_wins_over_a_pass_that_has_looked(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Verified; the record taken and the marks read; the pointer moved; the bytes gone?"""
    runs = past(store)
    lineage, target = runs[0].lineage, runs[0].version_id
    verified, looked, moved = threading.Event(), threading.Event(), threading.Event()
    verify, is_rolled_back_to = production.verify, sweep._is_rolled_back_to

    def verifies(*arguments: Any) -> Any:
        model = verify(*arguments)
        verified.set()
        assert looked.wait(60)
        return model

    def looks(*arguments: Any) -> bool:
        found = is_rolled_back_to(*arguments)
        looked.set()
        assert moved.wait(60)
        return found

    monkeypatch.setattr(production, "verify", verifies)
    monkeypatch.setattr(sweep, "_is_rolled_back_to", looks)
    with ThreadPoolExecutor() as pool:
        rolled = pool.submit(registry.rollback, lineage, target, reason="bad answers")
        rolled.add_done_callback(lambda _: moved.set())
        assert verified.wait(60)
        report = prune(store)
        assert rolled.result(60).version_id == target
    registry.verify(lineage, target)
    assert report.left[f"model versions: default/{target}"].startswith("it was put into use")
    assert uris.list_files(lineage.rollbacks) == []
    assert target not in pruned_versions(lineage)


def test_a_rollback_mends_what_a_pass_that_died_has_taken(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = past(store)
    lineage, target = runs[0].lineage, runs[0].version_id
    pruned = describe_pruned(lineage, target, "old")
    verify = production.verify

    def verifies(*arguments: Any) -> Any:
        model = verify(*arguments)
        pruned.create(lineage.pruned_version(target))
        uris.delete(lineage.model(target))
        return model

    monkeypatch.setattr(production, "verify", verifies)
    registry.rollback(lineage, target, reason="bad answers")
    registry.verify(lineage, target)
    assert check(lineage).problems == []


def test_a_rollback_that_failed_leaves_no_mark(store: str) -> None:
    runs = past(store)
    with pytest.raises(registry.RegistryError):
        registry.rollback(runs[0].lineage, "v-000000000000", reason="bad answers")
    assert uris.list_files(runs[0].lineage.rollbacks) == []


class FullDisk:
    """A disk without room for a byte, until something is removed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.free = 0
        self._fill, self._delete = local._fill, local.LocalBackend.delete
        monkeypatch.setattr(local, "_fill", self.fill)
        monkeypatch.setattr(local.LocalBackend, "delete", lambda _, uri: self.delete(uri))

    def fill(self, aside: Path, data: bytes, path: Path) -> None:
        if len(data) > self.free:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._fill(aside, data, path)
        self.free -= len(data)

    def delete(self, uri: str) -> None:
        path = Path(uri)
        freed = path.stat().st_size if path.exists() else 0
        self._delete(local.LocalBackend(), uri)
        self.free += freed


def test_a_full_disk_is_freed_before_anything_is_written(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = past(store)
    FullDisk(monkeypatch)
    report = prune(store)
    assert report.left == {}
    gone = {item.name for item in report.removed if item.kind is Kind.VERSION}
    assert gone == {f"default/{run.version_id}" for run in runs[:2]}
    assert_all_commits_hold(store, runs)
    assert set(pruned_versions(runs[0].lineage)) == {run.version_id for run in runs[:2]}


def test_without_room_for_its_record_a_version_stays_with_all_that_it_names(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = past(store)
    disk = FullDisk(monkeypatch)
    monkeypatch.setattr(disk, "delete", lambda uri: disk._delete(local.LocalBackend(), uri))
    report = prune(store)
    left = report.left[f"model versions: default/{runs[0].version_id}"]
    assert "cannot be written" in left
    assert f"{runs[0].version_id}.json" in left
    assert not any(item.kind in (Kind.VERSION, Kind.SHARD) for item in report.removed)
    assert any(item.kind is Kind.TRAINING for item in report.removed)
    assert_all_commits_hold(store, runs)


def test_what_killed_writes_left_is_told_and_goes(store: str) -> None:
    past(store)
    old = Path(store, "shards", f"{local.ASIDE_MARK}{'0' * 32}")
    young = Path(store, "runs", f"{local.ASIDE_MARK}{'1' * 32}")
    for path in (old, young):
        path.write_bytes(b"half of it")
    os.utime(old, (0, 0))
    [item] = [i for i in pruning.plan(StoreLayout(store), POLICY).items if ".aside" in i.name]
    assert (item.name, item.why) == (f"shards/{old.name}", "left by a killed write")
    prune(store)
    assert not old.exists()
    assert young.exists()


def test_what_would_look_old_to_a_wrong_clock_needs_a_confirmation(
    store: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    line_of_models(store, 4)
    age(store, days=20)
    for days in (14, 7, 0):
        write_note(store, days)
    arguments = ARGUMENTS[:-1]
    # Something was written each week, and half of the versions are not too many.
    assert pruning.plan(StoreLayout(store), POLICY).doubts == []
    now = datetime.now(UTC) + timedelta(days=20)
    monkeypatch.setattr(uris, "now", lambda probe: now)
    before = objects(store)
    assert main(["--store", store, *arguments]) == 0
    assert "Needs --confirm: it is " in capsys.readouterr().out
    assert main(["--store", store, "--delete", *arguments]) == 1
    assert "as a person has to look first: it is" in capsys.readouterr().err
    assert objects(store) == before
    assert main(["--store", store, "--delete", *arguments, "--confirm"]) == 0


def test_a_clock_that_has_written_what_agrees_with_it_needs_a_confirmation(
    store: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a jump, whatever is written is of the wrong time, and young by it."""
    line_of_models(store, 4)
    now = datetime.now(UTC) + timedelta(days=20)
    monkeypatch.setattr(uris, "now", lambda probe: now)
    for days in (20, 19, 17):
        write_note(store, -days)
    write_note(store, -20)
    before = objects(store)
    assert main(["--store", store, "--delete", *ARGUMENTS[:-1]]) == 1
    said = capsys.readouterr().err
    assert "are old only if 17 days passed between" in said
    assert "such as checkpoints of ended runs" in said
    assert objects(store) == before
    assert main(["--store", store, "--delete", *ARGUMENTS]) == 0


def test_silences_count_by_half_of_the_age(store: str) -> None:
    """What was old before nothing was written for long goes; what was young then does not."""
    line_of_models(store, 4)
    age(store, days=100)
    policy = RetentionPolicy(keep_versions=1)
    write_note(store, 0)
    [doubt] = pruning.plan(StoreLayout(store), policy).doubts
    assert "if 100 days passed" in doubt
    write_note(store, 93.5)
    assert pruning.plan(StoreLayout(store), policy).doubts != []
    write_note(store, 93)
    write_note(store, 86.5)
    assert pruning.plan(StoreLayout(store), policy).doubts == []


def test_most_versions_at_once_need_a_confirmation(store: str, capsys: Capture) -> None:
    runs = line_of_models(store, 5)
    age(store, days=20)
    uris.write(f"{store}/runs/{runs[4].key}/notes.json", b"{}")
    assert main(["--store", store, "--delete", *ARGUMENTS[:-1]]) == 1
    assert "3 of 5 model versions would go, more than 50%" in capsys.readouterr().err
    assert len(registry.list_versions(runs[0].lineage)) == 5


def test_a_run_that_begins_in_between_keeps_what_it_names(store: str) -> None:
    runs = past(store)
    layout = StoreLayout(store)
    planned = pruning.plan(layout, POLICY).items
    looks: list[int] = []

    def look() -> list[Any]:
        looks.append(1)
        return pruning.plan(layout, POLICY).items

    late = finished(store, "late", runs[3].version_id)
    late.plan(parent_version=runs[0].version_id)
    removed, left = Sweep(layout, look, lambda done, total, size: None).remove(planned)
    assert f"model versions: default/{runs[0].version_id}" in left
    assert f"default/{runs[1].version_id}" in {item.name for item in removed}
    assert len(looks) < len(planned)
    registry.verify(runs[0].lineage, runs[0].version_id)


def test_the_look_is_repeated(store: str) -> None:
    past(store)
    layout = StoreLayout(store)
    planned = pruning.plan(layout, POLICY).items
    looks: list[int] = []

    def look() -> list[Any]:
        looks.append(1)
        return planned if len(looks) < 3 else []

    sweep = Sweep(layout, look, lambda done, total, size: None, check_seconds=0.0)
    removed, left = sweep.remove(planned)
    assert len(removed) + len(left) == len(planned)
    assert left


# The command


def test_without_being_asked_nothing_is_removed(store: str, capsys: Capture) -> None:
    runs = past(store)
    before = objects(store)
    for words in ([], ["--dry-run"]):
        assert main(["--store", store, *ARGUMENTS, *words]) == 0
        output = capsys.readouterr().out
        assert "Would go (nothing is removed without --delete):" in output
        [line] = [line for line in output.splitlines() if f"/{runs[3].version_id}: " in line]
        assert line.endswith("has the newest classifiers; in use; one of the newest")
        assert objects(store) == before


def test_removing_is_told(store: str, capsys: Capture) -> None:
    past(store)
    assert main(["--store", store, "--delete", *ARGUMENTS]) == 0
    output = capsys.readouterr().out
    assert "Removed:" in output
    assert "2 " in next(line for line in output.splitlines() if "model versions" in line)
    assert main(["--store", store, "--delete", *ARGUMENTS]) == 0
    assert "Nothing can go." in capsys.readouterr().out


def test_json(store: str, capsys: Capture) -> None:
    runs = past(store)
    uris.write(uris.join(store, "notes"), b"1")
    uris.delete(runs[3].run.outcome)
    uris.delete(runs[3].run.plan)
    assert main(["--store", store, "--json", *ARGUMENTS]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["deleted"] is False
    assert content["removed"] == {}
    assert content["can_go"]["checkpoints of ended runs"]["count"] == 3
    assert content["can_go"]["checkpoints of ended runs"]["bytes"] > 1000
    assert content["running"] == {runs[3].key: "it has no outcome"}
    assert "shards of records" in content["blocked"]
    assert content["unknown"] == ["notes"]
    assert {item["name"] for item in content["items"]} >= {runs[0].key}


def test_a_pinned_model_stays(store: str, capsys: Capture) -> None:
    runs = past(store)
    pinned = runs[0].lineage.version(runs[0].version_id)
    assert main(["--store", store, "--keep", pinned, "--json", *ARGUMENTS]) == 0
    kept = json.loads(capsys.readouterr().out)["kept_versions"]
    assert kept[f"default/{runs[0].version_id}"] == ["it is pinned"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--older-than-days", "1"], "give at least 2"),
        (["--keep-versions", "0"], "keep at least 1"),
        (["--store", "s3://bucket"], "s3"),
    ],
)
def test_what_cannot_be_is_refused(
    store: str, words: list[str], message: str, capsys: Capture
) -> None:
    Path(store).mkdir()
    assert main(["--store", store, *words]) == 1
    assert message in capsys.readouterr().err


def test_a_model_that_the_preset_starts_from_stays(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    runs = past(store)
    pinned = runs[0].lineage.version(runs[0].version_id)
    preset = tmp_path / "own.toml"
    preset.write_text(f'extends = "smoke"\n[model]\ninit_checkpoint = "{pinned}"\n')
    monkeypatch.setenv("REPRETRAIN_PRESET", str(preset))
    assert main(["--store", store, "--json", *ARGUMENTS]) == 0
    kept = json.loads(capsys.readouterr().out)["kept_versions"]
    assert kept[f"default/{runs[0].version_id}"] == ["it is pinned"]
