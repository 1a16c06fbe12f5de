"""What retention keeps and what it lets go, rule by rule."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from model_registry import registry
from model_registry.retention import pruning
from model_registry.retention.pruning import Kind, PrunePlan, RetentionPolicy
from pipeline_config import with_overrides
from pipeline_store import uris
from pipeline_store.formats import PartitionManifest, ProductionPointer, RunPlan
from pipeline_store.layout import StoreLayout, VersionLayout
from tests.model_registry.retained import (
    POLICY,
    age,
    end,
    finished,
    hold,
    line_of_models,
    objects,
    promoted,
    wait,
    write_manifest,
    write_reservation,
    write_shard,
)
from tests.model_registry.runs import CONFIG, NOW, FinishedRun, change_manifest, sha256


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(tmp_path / "store")


def plan(store: str, policy: RetentionPolicy = POLICY) -> PrunePlan:
    return pruning.plan(StoreLayout(store), policy)


def names(found: PrunePlan, kind: Kind) -> list[str]:
    return [item.name for item in found.items if item.kind is kind]


def gone(store: str, policy: RetentionPolicy = POLICY) -> set[str]:
    """Return every object that would go."""
    return {path for item in plan(store, policy).items for path in item.paths}


def versions(*runs: FinishedRun) -> list[str]:
    return sorted(f"default/{run.version_id}" for run in runs)


# Versions


def test_the_model_in_use_and_its_nearest_ancestors_stay(store: str) -> None:
    runs = line_of_models(store, 5)
    age(store)
    found = plan(store)
    assert names(found, Kind.VERSION) == versions(*runs[:3])
    assert found.kept_versions == {
        f"default/{runs[3].version_id}": ["an ancestor of the one in use"],
        f"default/{runs[4].version_id}": ["in use", "one of the newest"],
    }
    assert names(plan(store, RetentionPolicy(keep_versions=3)), Kind.VERSION) == versions(runs[0])


def test_after_a_rollback_both_ways_stay_open(store: str) -> None:
    runs = line_of_models(store, 4)
    registry.rollback(runs[0].lineage, runs[1].version_id, reason="test")
    age(store)
    assert names(plan(store), Kind.VERSION) == versions(runs[2])


def test_without_a_model_in_use_every_version_stays(store: str) -> None:
    runs = line_of_models(store, 3)
    uris.delete(runs[0].lineage.production)
    age(store)
    reason = ["its lineage has no model in use yet"]
    assert plan(store).kept_versions == dict.fromkeys(versions(*runs), reason)


def test_nothing_that_is_young_goes(store: str) -> None:
    line_of_models(store, 4)
    write_shard(StoreLayout(store), "unnamed")
    age(store, days=13)
    assert gone(store) == set()
    age(store, days=15)
    assert gone(store) != set()


def test_one_young_file_keeps_a_version(store: str) -> None:
    runs = line_of_models(store, 4)
    age(store)
    card = VersionLayout(runs[0].lineage.version(runs[0].version_id)).card
    uris.write(card, uris.read(card))
    assert names(plan(store), Kind.VERSION) == versions(runs[1])


OPENERS: dict[str, Callable[[FinishedRun], None]] = {
    "it has no outcome": lambda run: uris.delete(run.run.outcome),
    "it holds its lineage": lambda run: hold(run.lineage, run.key),
    "it waits for its lineage": lambda run: wait(run.lineage, run.key),
}


@pytest.mark.parametrize("reason", OPENERS)
def test_what_a_running_run_needs_stays(store: str, reason: str) -> None:
    runs = line_of_models(store, 3)
    late = finished(store, "late", runs[0].version_id)
    end(late)
    for number in range(4, 7):
        runs.append(promoted(store, str(number), runs[-1].version_id))
    OPENERS[reason](late)
    age(store)
    found = plan(store)
    assert found.running == {late.key: reason}
    assert names(found, Kind.VERSION) == versions(*runs[1:4])
    assert f"run {late.key} names it" in found.kept_versions[f"default/{runs[0].version_id}"]
    gone_paths = gone(store)
    needed = [late.manifest_uri, runs[0].manifest_uri]
    for uri in needed:
        assert all(files_of(store, shard).isdisjoint(gone_paths) for shard in shards(uri))
        assert uri.removeprefix(f"{store}/") not in gone_paths
    assert not any(path.startswith(f"runs/{late.key}/") for path in gone_paths)


def test_a_run_that_ended_lately_counts_as_running(store: str) -> None:
    runs = line_of_models(store, 1)
    late = finished(store, "late", runs[0].version_id)
    age(store)
    end(late)
    found = plan(store)
    assert found.running == {late.key: "it ended lately"}
    assert not found.blocked
    assert not any(path.startswith(f"runs/{late.key}/") for path in gone(store))


def test_a_baseline_stays_as_long_as_its_run(store: str) -> None:
    runs = line_of_models(store, 4)
    other = finished(store, "other", runs[0].version_id)
    other.plan(parent_version=None)
    age(store)
    assert versions(runs[0])[0] in plan(store).kept_versions
    for layout in (other.run.evaluation, other.run.verdict):
        uris.delete(layout(runs[0].version_id))
    assert versions(runs[0])[0] not in plan(store).kept_versions


@pytest.mark.parametrize("way", ["version", "training", "policy"])
def test_a_model_to_start_from_stays(store: str, way: str) -> None:
    runs = line_of_models(store, 4)
    pinned = runs[0].lineage.version(runs[0].version_id)
    if way == "training":
        pinned = runs[0].run.training.root
    policy = POLICY
    if way == "policy":
        policy = RetentionPolicy(keep_versions=1, pinned=(pinned,))
    else:
        other = finished(store, "other", runs[3].version_id)
        changes = {"model.init_checkpoint": pinned.removeprefix(f"{store}/")}
        uris.write(other.run.config, with_overrides(CONFIG, changes).to_bytes())
    age(store)
    found = plan(store, policy)
    kept = f"default/{runs[0].version_id}" in found.kept_versions
    assert kept is (way != "training")
    assert (runs[0].key in names(found, Kind.TRAINING)) is (way != "training")


def test_a_half_published_version_goes_when_its_run_has_ended(store: str) -> None:
    runs = line_of_models(store, 1)
    half = finished(store, "half", runs[0].version_id)
    uris.write(uris.join(half.lineage.version(half.version_id), "checkpoint/model.index"), b"1")
    age(store)
    assert names(plan(store), Kind.VERSION) == []
    end(half)
    age(store)
    assert names(plan(store), Kind.VERSION) == versions(half)


# Runs


def test_of_an_ended_run_the_records_stay(store: str) -> None:
    [run] = line_of_models(store, 1)
    for name in ("metrics/0-0.jsonl", "events/e", "initial_weights.json"):
        uris.write(uris.join(run.run.training.root, name), b"{}")
    for name in ("approval.json", "estimate.json", "holder.json"):
        uris.write(uris.join(run.run.root, name), b"{}")
    age(store)
    found = plan(store)
    assert names(found, Kind.TRAINING) == names(found, Kind.EXPORTS) == [run.key]
    left = {path for path in objects(store) - gone(store) if path.startswith("runs/")}
    assert left == {
        f"runs/{run.key}/{name}"
        for name in (
            *("run.json", "config.json", "plan.json", "outcome.json", "approval.json"),
            *("estimate.json", "holder.json", "evaluations/unigram.json", "verdicts/unigram.json"),
            *("training/result.json", "training/initial_weights.json", "training/events/e"),
            *("training/metrics/0-0.jsonl", "reservations/g1/reservation.json"),
            "reservations/g1/ledger.json",
        )
    }


def test_a_folder_of_a_training_by_hand_is_never_touched(store: str) -> None:
    run = finished(store, "hand")
    uris.delete(run.run.record)
    age(store)
    assert plan(store).running == {}
    assert not any(path.startswith("runs/") for path in gone(store))


# Data


def shards(manifest_uri: str) -> list[str]:
    return [uri.split("/")[-2] for uri in PartitionManifest.load(manifest_uri).shards]


def files_of(store: str, shard_key: str) -> set[str]:
    return {path for path in objects(store) if path.startswith(f"shards/{shard_key}/")}


def test_records_of_all_partitions_that_a_kept_version_has_seen_stay(store: str) -> None:
    runs = line_of_models(store, 4)
    age(store)
    assert not names(plan(store), Kind.SHARD)
    assert not names(plan(store), Kind.MANIFEST)
    assert all(files_of(store, key) for run in runs for key in shards(run.manifest_uri))


def superseded(run: FinishedRun, partition: str) -> tuple[str, str, str]:
    """Prepare a partition twice; return the manifests, and the shard that only the first has."""
    store = run.store.root
    first = write_manifest(run, "old", "shared", partition=partition)
    second = write_manifest(run, "new", "shared", partition=partition)
    age(store, 100)
    os.utime(first, (0, 0))
    [shard] = {*shards(first)} - {*shards(second)}
    return first.removeprefix(f"{store}/"), second.removeprefix(f"{store}/"), shard


def test_a_superseded_manifest_that_nobody_trained_on_goes_with_its_shards(store: str) -> None:
    [run] = line_of_models(store, 1)
    first, _, shard = superseded(run, "day-x")
    found, paths = plan(store), gone(store)
    assert first in names(found, Kind.MANIFEST)
    assert {path for path in paths if path.startswith("lineages/")} == {
        first,
        first.replace(".json", ".html"),
        index_of(store, first),
    }
    assert names(found, Kind.SHARD) == [shard]
    assert files_of(store, shard) <= paths
    assert len(names(found, Kind.SIGNATURE)) == 2  # the commit and its data
    assert len(names(found, Kind.DECISION)) == 1


def index_of(store: str, manifest: str) -> str:
    index = PartitionManifest.load(f"{store}/{manifest}").duplicate_index
    assert index is not None
    return uris.join(manifest.rpartition("/")[0], index.data.path)


def test_of_a_manifest_that_was_trained_on_the_record_and_its_index_stay(store: str) -> None:
    runs = line_of_models(store, 2)
    first, _, shard = superseded(runs[1], "day-x")
    # Its own version is about to go, and with it the only copy that a version has.
    other = finished(store, "other", runs[0].version_id)
    other.plan(trained={"day-x": f"{store}/{first}"})
    end(other)
    age(store)
    os.utime(f"{store}/{first}", (0, 0))
    found, paths = plan(store), gone(store)
    assert names(found, Kind.SHARD) == [shard]
    assert not any(path.startswith("lineages/default/partitions/") for path in paths)


def test_the_newest_manifest_of_settings_in_use_stays(store: str) -> None:
    [run] = line_of_models(store, 1)
    first, second, _ = superseded(run, "day-x")
    newer = PartitionManifest.load(f"{store}/{second}")
    newer.model_copy(update={"config_sha256": "other"}).write(f"{store}/{second}")
    age(store)
    os.utime(f"{store}/{first}", (0, 0))
    assert names(plan(store), Kind.SHARD) == []
    assert first not in gone(store)


def test_shards_without_a_manifest_and_spare_tries_go(store: str) -> None:
    [run] = line_of_models(store, 1)
    lonely = write_shard(StoreLayout(store), "lonely").shard_key
    kept = shards(run.manifest_uri)[0]
    for uri in (f"{store}/shards/{kept}/try-2/x", f"{store}/shards/unfinished/try-1/x"):
        uris.write(uri, b"1")
    uris.write(run.store.signature_data("0" * 64), b"1")
    uris.write(run.store.scratch("x"), b"1")
    uris.write(run.store.probe("x"), b"1")
    uris.write(run.store.job_key(run.key, 1), b"1")
    age(store)
    found = plan(store)
    assert names(found, Kind.SHARD) == sorted([lonely, f"{kept}: spare", "unfinished"])
    assert f"signatures/{'0' * 64}.npz" in names(found, Kind.SIGNATURE)
    assert names(found, Kind.SCRATCH) == [f"job_keys/{run.key}", "preflight/x", "scratch/x.json"]
    paths = gone(store)
    assert f"shards/{kept}/try-2/x" in paths
    assert not any(path.startswith(f"shards/{kept}/try-1/") for path in paths)


@pytest.mark.parametrize("waits", [False, True])
def test_while_a_run_prepares_or_chooses_no_data_goes(store: str, waits: bool) -> None:
    [run] = line_of_models(store, 1)
    superseded(run, "day-x")
    other = finished(store, "other", run.version_id)
    uris.delete(other.run.plan)
    if waits:
        wait(other.lineage, other.key)
    age(store)
    found = plan(store)
    kinds = {Kind.MANIFEST, Kind.SHARD, Kind.SIGNATURE, Kind.DECISION}
    assert {*found.blocked} == kinds
    assert {item.kind for item in found.items} == {Kind.TRAINING, Kind.EXPORTS}
    doing = "is about to choose from" if waits else "may be preparing"
    assert found.blocked[Kind.SHARD] == [f"run {other.key} {doing} partitions"]
    uris.delete(other.lineage.ticket(other.key))
    end(other)
    age(store)
    assert not plan(store).blocked


# Code, alerts, and what is not ours


def test_code_stays_while_a_tpu_may_run_it_and_while_it_is_the_newest(store: str) -> None:
    runs = line_of_models(store, 3)
    bundles = [sha256(f"code of {name}".encode()) for name in ("1", "2", "3")]
    write_reservation(runs[2], bundles[2], created=NOW + timedelta(days=1))
    age(store)
    assert names(plan(store), Kind.BUNDLE) == sorted(f"bundles/{sha}.zip" for sha in bundles[:2])
    uris.delete(runs[0].run.reservation(1).ledger)
    age(store)
    assert names(plan(store), Kind.BUNDLE) == [f"bundles/{bundles[1]}.zip"]
    uris.delete(runs[1].run.outcome)
    assert names(plan(store), Kind.BUNDLE) == []


def test_before_a_run_has_reserved_no_code_goes(store: str) -> None:
    run = finished(store, "1")
    end(run)
    write_reservation(run, "0" * 64, created=NOW + timedelta(days=1))
    waiting = finished(store, "2")
    uris.delete(waiting.run.reservation(1).record)
    age(store)
    found = plan(store)
    assert found.blocked[Kind.BUNDLE] == [f"run {waiting.key} may be about to use one"]
    assert not names(found, Kind.BUNDLE)
    end(waiting)
    age(store)
    assert names(plan(store), Kind.BUNDLE)


def test_alerts_go_a_month_after_their_run(store: str) -> None:
    ended, running = finished(store, "1"), finished(store, "2")
    end(ended)
    for run in (ended, running):
        uris.write(run.store.alert(run.key, "failed"), b"{}")
        uris.write(run.store.alert_delivery(run.key, "failed", "mail"), b"{}")
    age(store, 29)
    assert names(plan(store), Kind.ALERT) == []
    age(store, 31)
    assert names(plan(store), Kind.ALERT) == [ended.key]


def test_what_is_unknown_is_named_and_stays(store: str) -> None:
    runs = line_of_models(store, 4)
    foreign = [
        "notes.txt",
        "other/place/x",
        f"runs/{runs[0].key}/training/notes.txt",
        f"runs/{runs[0].key}/notes",
        "lineages/default/partitions/day-x/notes",
        "lineages/default/somewhere/x",
        f"lineages/default/versions/{runs[0].version_id}/notes",
        f"shards/{'0' * 32}/try-1/deep/x",
        "signatures/notes",
        "decisions/notes",
        "bundles/notes",
        "alerts/x",
    ]
    for path in (*foreign, "corpus/day-1/text.txt", "corpora/x/y", "places/p/z.json"):
        uris.write(uris.join(store, path), b"1")
    age(store)
    found = plan(store)
    assert found.unknown == sorted(foreign)
    assert not gone(store) & {*foreign}
    # A version that holds something foreign stays whole.
    assert names(found, Kind.VERSION) == versions(runs[1])
    assert not any(path.startswith(("corpus", "corpora", "places")) for path in gone(store))


# Damage


def with_copy(run: FinishedRun, partition: str) -> str:
    """Give a version a copy of a manifest, as all had once; return its URI."""
    change_manifest(run.lineage, run.version_id, partition)
    return VersionLayout(run.lineage.version(run.version_id)).manifest(partition)


DAMAGES: dict[str, tuple[Callable[[list[FinishedRun]], str], set[Kind]]] = {
    "production": (
        lambda runs: runs[0].lineage.production,
        {Kind.VERSION, Kind.CHILD, Kind.MANIFEST, Kind.SHARD, Kind.SIGNATURE, Kind.DECISION},
    ),
    "model": (
        lambda runs: runs[0].lineage.model(runs[0].version_id),
        {Kind.VERSION, Kind.CHILD, Kind.MANIFEST, Kind.SHARD, Kind.SIGNATURE, Kind.DECISION},
    ),
    "lease": (lambda runs: runs[0].lineage.lease, {*Kind}),
    "outcome": (lambda runs: runs[0].run.outcome, {*Kind}),
    "plan": (
        lambda runs: runs[0].run.plan,
        {Kind.VERSION, Kind.CHILD, Kind.MANIFEST, Kind.SHARD, Kind.SIGNATURE, Kind.DECISION},
    ),
    "manifest of a version": (
        lambda runs: with_copy(runs[3], "day-1"),
        {Kind.SHARD, Kind.SIGNATURE, Kind.DECISION},
    ),
    "manifest": (
        lambda runs: runs[3].manifest_uri,
        {Kind.MANIFEST, Kind.SHARD, Kind.SIGNATURE, Kind.DECISION},
    ),
    "configuration of a version": (
        lambda runs: VersionLayout(runs[3].lineage.version(runs[3].version_id)).config,
        {Kind.MANIFEST, Kind.SHARD, Kind.SIGNATURE, Kind.DECISION},
    ),
    "shard": (
        lambda runs: runs[0].store.shard_manifest(shards(runs[0].manifest_uri)[0]),
        {Kind.SIGNATURE, Kind.DECISION},
    ),
    "signatures": (
        lambda runs: runs[0].store.signatures(sha256(b"1-1")[:32]),
        {Kind.SIGNATURE},
    ),
    "reservation": (lambda runs: runs[0].run.reservation(1).record, {Kind.BUNDLE}),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_a_damaged_record_could_name_stays(store: str, damage: str) -> None:
    runs = line_of_models(store, 4)
    superseded(runs[0], "day-x")
    uri, kinds = DAMAGES[damage][0](runs), DAMAGES[damage][1]
    uris.write(uri, b"{")
    age(store)
    found = plan(store)
    assert {*found.blocked} == kinds
    path = uri.removeprefix(f"{store}/")
    reasons = [reasons[0] for reasons in found.blocked.values()]
    assert all(reason.startswith(f"{path} cannot be read") for reason in reasons)
    assert not kinds & {item.kind for item in found.items}


def test_the_configuration_of_a_running_run_must_be_readable(store: str) -> None:
    runs = line_of_models(store, 4)
    uris.delete(runs[3].run.outcome)
    uris.write(runs[3].run.config, b"{")
    age(store)
    assert {Kind.VERSION, Kind.TRAINING} < {*plan(store).blocked}


def test_a_manifest_that_a_plan_names_and_that_is_gone_keeps_the_shards(store: str) -> None:
    runs = line_of_models(store, 1)
    other = finished(store, "other", runs[0].version_id)
    plan_of = RunPlan.load(other.run.plan)
    other.plan(replayed={**plan_of.replayed, "x": other.lineage.manifest("x", "0" * 16)})
    age(store)
    [reason] = plan(store).blocked[Kind.SHARD]
    assert reason.startswith(f"the plan of run {other.key} names")


def test_a_pointer_to_nowhere_keeps_the_versions(store: str) -> None:
    runs = line_of_models(store, 4)
    pointer = ProductionPointer.load(runs[0].lineage.production)
    pointer.model_copy(update={"version_id": "v-x"}).write(runs[0].lineage.production)
    age(store)
    assert "which does not exist" in plan(store).blocked[Kind.VERSION][0]


@pytest.mark.parametrize("wrong", [{"keep_versions": 0}, {"older_than": timedelta(days=1.9)}])
def test_a_policy_that_is_not_safe_is_refused(wrong: dict) -> None:
    with pytest.raises(ValueError, match=r"keep-versions|older-than-days"):
        RetentionPolicy(**wrong)
