"""With a real MLflow server: runs, versions and the alias, also after an outage."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from model_registry import outcomes, registry
from model_registry.publishing import metrics_of
from pipeline_store import uris
from pipeline_store.formats import (
    EvaluationReport,
    Installation,
    OutcomeKind,
    PrunedVersion,
    Verdict,
)
from pipeline_store.layout import VersionLayout
from tests.model_registry.runs import NOW, FinishedRun
from tests.pipeline_mirror import server as servers
from tests.pipeline_mirror.server import MlflowProcess
from trained_models.metric_files import HELD_OUT, LOOP, START, MetricFiles

pytestmark = [
    pytest.mark.observe,
    pytest.mark.skipif(bool(servers.why_not()), reason=servers.why_not()),
]


@pytest.fixture(scope="module")
def mlflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlflowProcess]:
    with servers.serving(tmp_path_factory.mktemp("mlflow")) as running:
        yield running


class World:
    """A store whose runs train, are judged and promoted, and what MLflow has of it.

    :ivar name: of its experiment and registered model: each test has its own.
    """

    def __init__(self, folder: Path, mlflow: MlflowProcess) -> None:
        self.store, self.mlflow = str(folder / "store"), mlflow
        self.prefix = f"{folder.name}-"
        self.name = f"{self.prefix}default"
        self.in_use: str | None = None
        Installation(id=folder.name).write(f"{self.store}/installation.json")

    def train(self, name: str, *, gain: float = 0.5) -> FinishedRun:
        run = FinishedRun(self.store, name, parent=self.in_use, gain=gain)
        files = MetricFiles(run.run.training.metrics)
        files.add(START, 0, train_steps=400)
        for step in (100, 200, 300):
            files.add(LOOP, step, steps=100, loss=7.0 - step / 100, tokens_per_second=1000.0)
        files.add(HELD_OUT, 300, loss=4.5, accuracy=0.25)
        files.publish()
        return run

    def promote(self, run: FinishedRun) -> None:
        registry.publish(run.store, run.run)
        registry.promote(
            run.lineage, run.version_id, expected_baseline=self.in_use, reason="better"
        )
        self.in_use = run.version_id
        outcomes.record(
            run.run,
            OutcomeKind.PROMOTED,
            "better",
            written_by="test",
            version_id=run.version_id,
        )

    def roll_back(self, run: FinishedRun) -> None:
        registry.rollback(run.lineage, run.version_id, reason="wrong words", by="Ada")
        self.in_use = run.version_id

    def mirror(self) -> str:
        """Make a pass in which nothing goes wrong, and return what it says."""
        code, said = self.mlflow.mirror(self.store, self.prefix)
        assert code == 0, said
        return said

    def runs(self) -> dict[str, Any]:
        """Return MLflow's runs by key."""
        found = self.mlflow.get("experiments/get-by-name", experiment_name=self.name)
        experiment = found["experiment"]["experiment_id"]
        answer = self.mlflow.post("runs/search", experiment_ids=[experiment], max_results=100)
        by_key = {}
        for run in answer.get("runs", []):
            key = words(run["data"]["tags"])["repretrain.run_key"]
            assert key not in by_key
            by_key[key] = run
        return by_key

    def versions(self) -> dict[str, Any]:
        """Return MLflow's versions by our ids."""
        answer = self.mlflow.get("model-versions/search", filter=f"name='{self.name}'")
        found = answer.get("model_versions", [])
        by_id = {words(one["tags"])["repretrain.version_id"]: one for one in found}
        assert len(by_id) == len(found)
        return by_id

    def production(self) -> str:
        """Return our id of the version that the alias names."""
        answer = self.mlflow.get("registered-models/alias", name=self.name, alias="production")
        return words(answer["model_version"]["tags"])["repretrain.version_id"]

    def history(self, run: Any, metric: str) -> dict[int, list[float]]:
        """Return the values of a metric by step."""
        answer = self.mlflow.get(
            "metrics/get-history", run_id=run["info"]["run_id"], metric_key=metric
        )
        found: dict[int, list[float]] = {}
        for one in answer.get("metrics", []):
            found.setdefault(int(one["step"]), []).append(one["value"])
        return found


def words(pairs: list[dict[str, str]]) -> dict[str, str]:
    return {one["key"]: one.get("value", "") for one in pairs}


@pytest.fixture
def world(tmp_path: Path, mlflow: MlflowProcess) -> World:
    return World(tmp_path, mlflow)


def test_a_run_has_its_settings_metrics_and_datasets(world: World) -> None:
    run = world.train("1")
    world.promote(run)
    assert "1 run(s) written; 1 version(s) added" in world.mirror()
    [there] = world.runs().values()
    assert there["info"]["status"] == "FINISHED"
    assert there["info"]["run_name"] == run.partition
    params = words(there["data"]["params"])
    assert params["corpus.partition"] == run.partition
    assert params["model.lineage_id"] == "default"
    assert float(params["optimizer.learning_rate"]) > 0
    tags = words(there["data"]["tags"])
    assert tags["repretrain.outcome"] == "promoted"
    assert tags["repretrain.version_id"] == run.version_id
    assert world.history(there, "training/loss") == {100: [6.0], 200: [5.0], 300: [4.0]}
    assert world.history(there, "held_out/accuracy") == {300: [0.25]}
    [dataset] = there["inputs"]["dataset_inputs"]
    assert dataset["dataset"]["name"] == run.partition
    assert dataset["dataset"]["digest"] == "0" * 16
    assert json.loads(dataset["dataset"]["source"]) == {"uri": run.manifest_uri}
    assert json.loads(dataset["dataset"]["profile"])["documents"] == 1234
    assert words(dataset["tags"]) == {"mlflow.data.context": "training, evaluation"}


def test_a_comparison_is_there_of_a_rejected_run_too(world: World) -> None:
    world.promote(world.train("1"))
    run = world.train("2", gain=-0.5)
    outcomes.record(run.run, OutcomeKind.REJECTED, "worse", written_by="test")
    world.mirror()
    assert run.version_id not in world.versions()
    there = world.runs()[run.key]
    found = {one["key"]: one["value"] for one in there["data"]["metrics"]}
    report = EvaluationReport.load(run.run.evaluation(run.parent))
    verdict = Verdict.load(run.run.verdict(run.parent))
    wanted = metrics_of(report, verdict)
    assert wanted["improvement"] < 0
    assert {name: found[f"evaluation/{name}"] for name in wanted} == pytest.approx(wanted)


def test_a_version_says_where_it_comes_from(world: World) -> None:
    first = world.train("1")
    world.promote(first)
    second = world.train("2")
    world.promote(second)
    world.mirror()
    versions = world.versions()
    # MLflow's numbers grow as ours came.
    assert [versions[run.version_id]["version"] for run in (first, second)] == ["1", "2"]
    there = versions[second.version_id]
    tags = words(there["tags"])
    assert tags["repretrain.parent_version"] == first.version_id
    assert tags["repretrain.partitions_trained"] == "day-2"
    assert float(tags["repretrain.improvement"]) == pytest.approx(0.5, abs=0.01)
    assert there["run_id"] == world.runs()[second.key]["info"]["run_id"]
    assert there["source"].endswith(second.lineage.version(second.version_id))


def test_the_alias_follows_promotion_and_rollback(world: World) -> None:
    first, second = world.train("1"), None
    world.promote(first)
    world.mirror()
    assert world.production() == first.version_id
    second = world.train("2")
    world.promote(second)
    world.mirror()
    assert world.production() == second.version_id
    world.roll_back(first)
    assert f"{world.name} uses {first.version_id}" in world.mirror()
    assert world.production() == first.version_id
    answer = world.mlflow.get("registered-models/get", name=world.name)
    tags = words(answer["registered_model"]["tags"])
    assert tags["repretrain.production_reason"] == "wrong words"
    assert tags["repretrain.rolled_back_by"] == "Ada"
    assert tags["repretrain.rolled_back"] == second.version_id


def test_a_second_pass_changes_nothing(world: World) -> None:
    world.promote(world.train("1"))
    world.mirror()
    before = world.runs(), world.versions()
    assert "0 run(s) written; 0 version(s) added; 0 problem(s)" in world.mirror()
    assert (world.runs(), world.versions()) == before


def test_a_run_is_followed_while_it_trains(world: World) -> None:
    run = world.train("1")
    world.mirror()
    [there] = world.runs().values()
    assert there["info"]["status"] == "RUNNING"
    files = MetricFiles(run.run.training.metrics)
    files.add(LOOP, 400, steps=100, loss=3.5)
    files.publish()
    assert "1 run(s) written" in world.mirror()
    curve = {100: [6.0], 200: [5.0], 300: [4.0], 400: [3.5]}
    assert world.history(there, "training/loss") == curve
    world.promote(run)
    world.mirror()
    [there] = world.runs().values()
    assert there["info"]["status"] == "FINISHED"
    # All of it is sent again then, and is there once.
    assert world.history(there, "training/loss") == curve


def test_a_run_that_goes_on_after_all_is_going_on_there(world: World) -> None:
    run = world.train("1")
    outcomes.record(run.run, OutcomeKind.FAILED, "no chips", written_by="test")
    world.mirror()
    [there] = world.runs().values()
    assert there["info"]["status"] == "FAILED"
    outcomes.reopen(run.run)
    world.mirror()
    [there] = world.runs().values()
    assert there["info"]["status"] == "RUNNING"
    assert words(there["data"]["tags"])["repretrain.outcome"] == ""


def test_a_run_that_ends_long_after_it_began_ends_there_too(world: World) -> None:
    run = world.train("1")
    world.mirror()
    long_ago = time.time() - timedelta(days=100).total_seconds()
    os.utime(run.run.record, (long_ago, long_ago))
    outcomes.record(run.run, OutcomeKind.FAILED, "no chips", written_by="test")
    world.mirror()
    [there] = world.runs().values()
    assert there["info"]["status"] == "FAILED"


def test_a_pass_that_was_cut_off_is_made_again(world: World) -> None:
    """As after a kill between a run's beginning and its content."""
    run = world.train("1")
    world.promote(run)
    world.mirror()
    [there] = world.runs().values()
    run_id = there["info"]["run_id"]
    for tag in ("repretrain.ended", "repretrain.metrics_until"):
        world.mlflow.post("runs/delete-tag", run_id=run_id, key=tag)
    assert "1 run(s) written" in world.mirror()
    [there] = world.runs().values()
    assert there["info"]["run_id"] == run_id
    assert world.history(there, "training/loss") == {100: [6.0], 200: [5.0], 300: [4.0]}


def test_what_retention_removes_is_marked(world: World) -> None:
    first = world.train("1")
    world.promote(first)
    second = world.train("2")
    world.promote(second)
    world.mirror()
    model = registry.load_version(first.lineage, first.version_id)
    PrunedVersion(model=model, trained={}, pruned=NOW, reason="old").write(
        first.lineage.pruned_version(first.version_id)
    )
    uris.delete(first.lineage.model(first.version_id))
    world.mirror()
    tags = {name: words(one["tags"]) for name, one in world.versions().items()}
    assert tags[first.version_id]["repretrain.removed"] == "true"
    assert "repretrain.removed" not in tags[second.version_id]


def test_what_two_passes_at_once_have_each_made_is_one_again(world: World) -> None:
    first = world.train("1")
    world.promote(first)
    second = world.train("2")
    world.promote(second)
    world.mirror()
    # As another pass makes them that has looked before this one had: of the run nothing but its
    # beginning, as of a pass that was then killed.
    run, version = world.runs()[first.key], world.versions()[first.version_id]
    world.mlflow.post(
        "runs/create",
        experiment_id=run["info"]["experiment_id"],
        start_time=run["info"]["start_time"],
        tags=[{"key": "repretrain.run_key", "value": first.key}],
    )
    world.mlflow.post(
        "model-versions/create",
        name=world.name,
        source=version["source"],
        tags=version["tags"],
    )
    world.mirror()
    there = world.runs()[first.key]
    assert there["info"]["status"] == "FINISHED"
    assert world.history(there, "training/loss") == {100: [6.0], 200: [5.0], 300: [4.0]}
    model = registry.load_version(first.lineage, first.version_id)
    PrunedVersion(model=model, trained={}, pruned=NOW, reason="old").write(
        first.lineage.pruned_version(first.version_id)
    )
    uris.delete(first.lineage.model(first.version_id))
    world.mirror()
    answer = world.mlflow.get("model-versions/search", filter=f"name='{world.name}'")
    marks = Counter(
        (tags["repretrain.version_id"], tags.get("repretrain.removed"))
        for tags in (words(one["tags"]) for one in answer["model_versions"])
    )
    assert marks == {(first.version_id, "true"): 2, (second.version_id, None): 1}


def test_a_run_that_a_person_deletes_there_stays_deleted(world: World) -> None:
    world.promote(world.train("1"))
    world.mirror()
    [there] = world.runs().values()
    world.mlflow.post("runs/delete", run_id=there["info"]["run_id"])
    assert "0 run(s) written" in world.mirror()
    assert world.runs() == {}


def test_two_stores_do_not_change_each_others(world: World, tmp_path: Path) -> None:
    world.promote(world.train("1"))
    world.mirror()
    other = World(tmp_path / "other", world.mlflow)
    other.promote(other.train("1", gain=0.7))
    code, said = world.mlflow.mirror(other.store, world.prefix)
    assert code == 1
    assert "was not made by the mirror of this store" in said
    assert "REPRETRAIN_MLFLOW_PREFIX" in said
    assert len(world.versions()) == 1


def test_a_damaged_run_costs_no_other_one(world: World) -> None:
    damaged, whole = world.train("1"), world.train("2")
    uris.write(damaged.run.plan, b"{}")
    code, said = world.mlflow.mirror(world.store, world.prefix)
    assert code == 1
    assert f"run {damaged.key}: " in said
    assert world.runs().keys() == {whole.key}


def test_a_damaged_version_keeps_no_other_one_from_use(world: World) -> None:
    damaged = world.train("1")
    world.promote(damaged)
    whole = world.train("2")
    world.promote(whole)
    uris.write(VersionLayout(damaged.lineage.version(damaged.version_id)).verdict, b"{}")
    code, said = world.mlflow.mirror(world.store, world.prefix)
    assert code == 1
    assert f"version {damaged.version_id} of {world.name}: " in said
    assert world.production() == whole.version_id


def test_an_outage_is_made_up_for(world: World) -> None:
    first = world.train("1")
    world.promote(first)
    world.mirror()
    world.mlflow.stop()
    try:
        second, third = world.train("2"), None
        world.promote(second)
        third = world.train("3")
        world.promote(third)
        world.roll_back(second)
        done = world.mlflow.command(world.store)
        assert done.returncode == 1
        assert "MLflow cannot be asked" in done.stderr
        assert "Traceback" not in done.stderr
    finally:
        world.mlflow.start()
    world.mirror()
    assert world.runs().keys() == {first.key, second.key, third.key}
    numbers = {name: one["version"] for name, one in world.versions().items()}
    assert numbers == {first.version_id: "1", second.version_id: "2", third.version_id: "3"}
    assert world.production() == second.version_id
