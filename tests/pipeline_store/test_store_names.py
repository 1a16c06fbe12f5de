"""Names and places."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline_store import identity, uris
from pipeline_store.layout import StoreLayout

# Cloud TPU: lower-case letters, digits and hyphens, starting with a letter; labels are shorter.
RESOURCE_NAME = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
SHA = "0" * 64


@settings(deadline=None)
@given(st.text(), st.text(), st.integers(1, 999), st.integers(1, 999))
def test_every_run_gets_a_name_the_cloud_takes(dag: str, run: str, gen: int, attempt: int) -> None:
    key = identity.run_key(dag, run)
    assert re.fullmatch(r"[0-9a-f]{12}", key)
    label = identity.installation_label(f"gs://{dag}", run)
    for installation in (label, None):
        assert RESOURCE_NAME.fullmatch(identity.resource_id(key, gen, attempt, installation))
    assert identity.run_key(dag, run) == key


def test_names_stay_what_they_are() -> None:
    # Names are found again after an upgrade; a change of the hash would lose running TPUs.
    run = "scheduled__2026-01-31T00:00:00+00:00"
    assert identity.run_key("bert_repretraining", run) == "527ad0a9b6c9"
    assert identity.resource_id("0a1b2c3d4e5f", 1, 2, None) == "bert-0a1b2c3d4e5f-g1-a2"
    label = identity.installation_label("gs://bucket/store/", "0" * 32)
    assert label == identity.installation_label("gs://bucket/store", "0" * 32)
    name = "bert-a20a32bc-cd8676ae-0a1b2c3d4e5f-g1-a2"
    assert identity.resource_id("0a1b2c3d4e5f", 1, 2, label) == name
    assert identity.version_id("0a1b2c3d4e5f") == "v-0a1b2c3d4e5f"


def test_parts_of_a_name_do_not_run_together() -> None:
    assert identity.run_key("ab", "c") != identity.run_key("a", "bc")
    assert identity.run_key("ab", "1:c") != identity.run_key("ab1:", "c")


@pytest.mark.parametrize("changed", range(4))
def test_a_shard_key_follows_each_of_its_inputs(changed: int) -> None:
    other = [SHA] * 4
    other[changed] = "1" + SHA[1:]
    assert identity.shard_key(*other) != identity.shard_key(SHA, SHA, SHA, SHA)


def test_a_manifest_id_depends_on_the_set_of_shards() -> None:
    assert identity.manifest_id("p", ["a", "b"]) == identity.manifest_id("p", ["b", "a"])
    assert identity.manifest_id("p", ["a", "b"]) != identity.manifest_id("p", ["a"])
    assert identity.manifest_id("p", ["a"]) != identity.manifest_id("q", ["a"])


@pytest.mark.parametrize("good", ["2026-01-31", "a", "0", "wiki.en_2", "x" * 63])
def test_partitions(good: str) -> None:
    assert identity.check_partition(good) == good


@pytest.mark.parametrize(
    "bad", ["", "A", "a/b", "..", "a..b", "-a", ".a", "a b", "x" * 64, "2026-01-31\n"]
)
def test_bad_partitions_are_refused(bad: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(bad))):
        identity.check_partition(bad)


@pytest.mark.parametrize("bad", ["", "1a", "A", "a_b", "a/b", "x" * 41, "a\n"])
def test_bad_lineages_are_refused(bad: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(bad))):
        identity.check_lineage(bad)


PLACES: dict[str, Callable[[StoreLayout], str]] = {
    "runs/k/run.json": lambda s: s.run("k").record,
    "runs/k/config.json": lambda s: s.run("k").config,
    "runs/k/holder.json": lambda s: s.run("k").holder,
    "runs/k/evaluations/unigram.json": lambda s: s.run("k").evaluation(None),
    "runs/k/evaluations/v-1.json": lambda s: s.run("k").evaluation("v-1"),
    "runs/k/verdicts/v-1.json": lambda s: s.run("k").verdict("v-1"),
    "runs/k/training/result.json": lambda s: s.run("k").training.result,
    "runs/k/training/events": lambda s: s.run("k").training.events,
    "runs/k/training/checkpoints/0000000050.json": lambda s: s.run("k").training.checkpoint(50),
    "runs/k/training/attempts/t": lambda s: s.run("k").training.attempt_files("t"),
    "runs/k/reservations/g1/reservation.json": lambda s: s.run("k").reservation(1).record,
    "runs/k/reservations/g1/released.json": lambda s: s.run("k").reservation(1).released,
    "runs/k/reservations/g1/ledger.json": lambda s: s.run("k").reservation(1).ledger,
    "runs/k/reservations/g1/attempts/a2/attempt.json": lambda s: (
        s.run("k").reservation(1).attempt(2).record
    ),
    "runs/k/reservations/g1/attempts/a2/jobs/010-train.json": lambda s: (
        s.run("k").reservation(1).attempt(2).job("010-train")
    ),
    "runs/k/reservations/g1/attempts/a2/workers/0/agent.json": lambda s: (
        s.run("k").reservation(1).attempt(2).hello(0)
    ),
    "runs/k/reservations/g1/attempts/a2/workers/0/heartbeat.json": lambda s: (
        s.run("k").reservation(1).attempt(2).heartbeat(0)
    ),
    "runs/k/reservations/g1/attempts/a2/workers/0/010-train/status.json": lambda s: (
        s.run("k").reservation(1).attempt(2).status(0, "010-train")
    ),
    "runs/k/reservations/g1/attempts/a2/workers/0/010-train/log/000007.txt": lambda s: (
        s.run("k").reservation(1).attempt(2).log_chunk(0, "010-train", 7)
    ),
    "lineages/l/vocabulary/vocab.txt": lambda s: s.lineage("l").vocabulary,
    "lineages/l/vocabulary/vocabulary.json": lambda s: s.lineage("l").vocabulary_info,
    "lineages/l/production.json": lambda s: s.lineage("l").production,
    "lineages/l/versions/v-1/model.json": lambda s: s.lineage("l").model("v-1"),
    "lineages/l/partitions/p/m.json": lambda s: s.lineage("l").manifest("p", "m"),
    "shards/abc/shard.json": lambda s: s.shard_manifest("abc"),
    "bundles/abc.zip": lambda s: s.bundle("abc"),
}


@pytest.mark.parametrize("root", ["/store", "gs://bucket/store"])
@pytest.mark.parametrize("place", PLACES)
def test_places_are_as_the_contract_says(root: str, place: str) -> None:
    assert PLACES[place](StoreLayout(root)) == f"{root}/{place}"


def test_relative_patterns_lie_below_the_store() -> None:
    store = StoreLayout("gs://bucket/store")
    assert store.resolve("corpus/x/*") == "gs://bucket/store/corpus/x/*"
    assert store.resolve("/data/*") == "/data/*"
    assert store.resolve("gs://other/*") == "gs://other/*"


def test_checkpoints_sort_by_step() -> None:
    training = StoreLayout("/store").run("k").training
    steps = [5, 50, 400, 1000, 12_345_678]
    assert sorted(map(training.checkpoint, reversed(steps))) == [*map(training.checkpoint, steps)]
    assert uris.join(training.root, "checkpoints") == training.checkpoints
