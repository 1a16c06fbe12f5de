"""What retention keeps of fine-tuning, and what it lets go."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from model_registry import finetuning_plans, registry
from model_registry.children import children_of
from model_registry.retention import pruning
from model_registry.retention.pruning import Kind, PrunePlan
from pipeline_config import with_overrides
from pipeline_store import uris
from pipeline_store.formats import CompressedModel
from pipeline_store.layout import StoreLayout
from tests.model_registry.finetunings import FinetuningRun, prepare
from tests.model_registry.retained import POLICY, age, line_of_models
from tests.model_registry.runs import CONFIG, FinishedRun
from tests.model_registry.smaller_models import put_child


@pytest.fixture
def store(tmp_path: Path) -> StoreLayout:
    """Return a store with two models, the second of which is in use."""
    uri = str(tmp_path / "store")
    line_of_models(uri, 2)
    return StoreLayout(uri)


def plan(store: StoreLayout) -> PrunePlan:
    return pruning.plan(store, POLICY)


def names(found: PrunePlan, kind: Kind) -> list[str]:
    return sorted(item.name for item in found.items if item.kind is kind)


def finished(store: StoreLayout, name: str, **settings: object) -> FinetuningRun:
    """Return a run that has ended, long ago."""
    run = FinetuningRun(store, name, **settings)
    run.train()
    run.end()
    return run


def make_newer(run: FinetuningRun) -> None:
    """Let a run have ended after the others of its age."""
    path = Path(run.run.training_summary)
    os.utime(path, (path.stat().st_atime, path.stat().st_mtime + 3600))


def test_everything_of_fine_tuning_has_a_place(store: StoreLayout) -> None:
    run = finished(store, "1", finetuning__random_seeds=[1, 2], finetuning__parallel_tpus=2)
    uris.write(run.run.predictions("weather"), b"text\tlabel\n")
    uris.write(uris.join(run.run.exports.root, "weather.model.0.001.1", "exports.json"), b"{}")
    trial = run.run.probe_trial(None, "weather.candidate.0.001.1")
    uris.write(trial.result, b"{}")
    uris.write(trial.training.checkpoint(5), b"{}")
    uris.write(run.run.probe(None), b"{}")
    uris.write(uris.join(store.task("weather").root, "train.tsv"), b"text\tlabel\n")
    assert plan(store).unknown == []


def test_the_newest_classifiers_of_a_task_stay_and_older_ones_go(store: StoreLayout) -> None:
    first, second = finished(store, "1"), finished(store, "2")
    other = finished(store, "3", tasks=["traffic"])
    age(store.root)
    make_newer(second)
    found = plan(store)
    assert names(found, Kind.TRIAL) == [f"{first.key}/trials/weather.model.0.001.1"]
    [item] = [item for item in found.items if item.kind is Kind.TRIAL]
    # The commit first, so that what is left is trusted by nobody.
    assert item.commits == (
        f"runs/{first.key}/trials/weather.model.0.001.1/training/checkpoints/0000000010.json",
    )
    pruning.prune(store, POLICY)
    for run in (second, other):
        [trial] = run.plan.trials
        assert uris.list_files(run.run.trial(trial.trial_id).training.checkpoints)
    # What was measured stays of all.
    [trial] = first.plan.trials
    assert uris.exists(first.run.trial(trial.trial_id).result)
    assert uris.exists(first.run.training_summary)
    assert uris.list_files(first.run.trial(trial.trial_id).training.root) == [
        first.run.trial(trial.trial_id).training.result
    ]


def test_a_running_fine_tuning_keeps_all_that_it_uses(store: StoreLayout) -> None:
    older = finished(store, "1")
    newer = finished(store, "2")
    using = FinetuningRun(
        store,
        "3",
        tasks=["weather"],
        finetuning__mode="eval",
        finetuning__source_run=older.key,
    )
    age(store.root)
    make_newer(newer)
    found = plan(store)
    assert found.running[using.key] == "it has no outcome"
    assert names(found, Kind.TRIAL) == []
    assert set(found.blocked) == {Kind.BUNDLE}
    using.end()
    age(store.root)
    make_newer(newer)
    assert names(plan(store), Kind.TRIAL) == [f"{older.key}/trials/weather.model.0.001.1"]


def test_a_run_that_trained_nothing_has_no_newest_classifiers(store: StoreLayout) -> None:
    older = finished(store, "1")
    using = FinetuningRun(
        store,
        "2",
        tasks=["weather"],
        finetuning__mode="eval",
        finetuning__source_run=older.key,
    )
    using.end()
    age(store.root)
    make_newer(using)
    assert names(plan(store), Kind.TRIAL) == []


def test_the_version_that_is_fine_tuned_stays(store: StoreLayout) -> None:
    # The first is neither in use nor an ancestor that is kept, once there are two after it.
    first = line_of_models(f"{store.root}-2", 3)[0]
    store = StoreLayout(f"{store.root}-2")
    run = FinetuningRun(store, "1", encoder__version=first.version_id)
    age(store.root)
    reasons = plan(store).kept_versions[f"default/{first.version_id}"]
    assert f"run {run.key} names it" in reasons
    run.train()
    run.end()
    age(store.root)
    # Its classifiers are the newest: a probe needs the encoder to be used.
    assert f"default/{first.version_id}" in plan(store).kept_versions
    finished(store, "2")
    age(store.root)
    make_newer(FinetuningRun(store, "2"))
    assert f"default/{first.version_id}" not in plan(store).kept_versions


def test_prepared_tasks_that_no_run_names_go(store: StoreLayout) -> None:
    finished(store, "1", key="b" * 16)
    prepare(store, "weather", "c" * 16)
    uris.write(uris.join(store.task("weather").preparation("d" * 16), "try-1", "x"), b"killed")
    age(store.root)
    assert names(plan(store), Kind.TASK) == [f"weather/{'c' * 16}", f"weather/{'d' * 16}"]
    pruning.prune(store, POLICY)
    # What people wrote is not touched.
    assert uris.exists(store.task("weather").description)
    assert uris.exists(store.task("weather").manifest("b" * 16))


def test_a_run_that_may_be_preparing_keeps_all_prepared_tasks(store: StoreLayout) -> None:
    run = FinetuningRun(store, "1")
    uris.delete(run.run.finetuning_plan)
    prepare(store, "weather", "c" * 16)
    age(store.root)
    found = plan(store)
    assert names(found, Kind.TASK) == []
    assert found.blocked[Kind.TASK] == [f"run {run.key} may be preparing tasks"]
    # It has no partitions.
    assert Kind.MANIFEST not in found.blocked


def test_what_a_run_compares_with_stays_until_its_plan_names_it(store: StoreLayout) -> None:
    run = FinetuningRun(store, "1", encoder__compare_with=["previous", "start"])
    uris.delete(run.run.finetuning_plan)
    age(store.root)
    reason = f"run {run.key} has yet to name what it compares with"
    found = plan(store)
    assert found.blocked[Kind.VERSION] == found.blocked[Kind.TRAINING] == [reason]
    finetuning_plans.make_plan(store, run.run, run.config, run.plan.manifests)
    age(store.root)
    assert set(plan(store).blocked) == {Kind.BUNDLE}


def test_a_further_tpu_of_a_planned_run_keeps_nothing_else(store: StoreLayout) -> None:
    run = FinetuningRun(
        store,
        "1",
        encoder__compare_with=["previous"],
        finetuning__random_seeds=[1, 2],
        finetuning__parallel_tpus=2,
    )
    prepare(store, "weather", "c" * 16)
    age(store.root)
    found = plan(store)
    assert len(run.rentals) == 2
    assert set(found.blocked) == {Kind.BUNDLE}
    assert names(found, Kind.TASK) == [f"weather/{'c' * 16}"]


def test_a_running_pretraining_keeps_the_tasks_of_its_probe(store: StoreLayout) -> None:
    for task in ("weather", "traffic"):
        prepare(store, task)
    refused = uris.join(store.task("weather").preparation("e" * 16), "dead_letter-1.jsonl")
    uris.write(refused, b"no text")
    run = FinishedRun(store.root, "9")
    config = with_overrides(CONFIG, {"promotion.probe_tasks": ["weather"]})
    uris.write(run.run.config, config.to_bytes())
    age(store.root)
    found = plan(store)
    assert found.running[run.key] == "it has no outcome"
    assert names(found, Kind.TASK) == [f"traffic/{'a' * 16}", f"weather/{'e' * 16}"]
    # What it asks for is not known any more.
    uris.write(run.run.config, b"damaged")
    age(store.root)
    assert Kind.TASK in plan(store).blocked


def test_a_plan_that_cannot_be_read_keeps_what_it_could_name(store: StoreLayout) -> None:
    run = finished(store, "1")
    uris.write(run.run.finetuning_plan, b"damaged")
    age(store.root)
    found = plan(store)
    assert {Kind.VERSION, Kind.TRIAL, Kind.TASK} <= set(found.blocked)
    assert names(found, Kind.TRIAL) == []


def test_exports_of_classifiers_stay(store: StoreLayout) -> None:
    run = finished(store, "1")
    newer = finished(store, "2")
    export = uris.join(run.run.exports.root, "weather.model.0.001.1", "exports.json")
    uris.write(export, b"{}")
    age(store.root)
    make_newer(newer)
    assert run.key not in names(plan(store), Kind.EXPORTS)


def with_child(store: StoreLayout, run: FinetuningRun, version: str | None, **changes: Any) -> str:
    """Write a smaller model of a run's classifier with files and a student; return its name."""
    [trial] = run.plan.trials
    record = put_child(FinishedRun(store.root, "1"), run.key, trial=trial.trial_id, **changes)
    child = CompressedModel.load(record)
    parent = child.parent.model_copy(update={"version_id": version})
    child.model_copy(update={"parent": parent}).write(record)
    layout = run.run.children(trial.trial_id)
    uris.write(layout.table, b"{}")
    if child.accepted:
        uris.write(uris.join(record.rpartition("/")[0], child.folder, "tflite", "x"), b"weights")
        uris.write(layout.student.training.checkpoint(10), b"{}")
    return f"{run.key}/children/{trial.trial_id}/{record.split('/')[-2]}"


def test_smaller_models_stay_with_their_classifier_or_their_version(tmp_path: Path) -> None:
    first, second, third = line_of_models(str(tmp_path / "store"), 3)
    store = third.store
    gone, target, refused, newest = (finished(store, name) for name in "1234")
    names_of = {
        "gone": with_child(store, gone, first.version_id),
        # The nearest ancestor of the model in use: what a rollback would bring back.
        "target": with_child(store, target, second.version_id),
        "refused": with_child(store, refused, first.version_id, accepted=False, folder=""),
        "newest": with_child(store, newest, first.version_id),
    }
    age(store.root)
    make_newer(newest)
    policy = pruning.RetentionPolicy(keep_versions=1, confirmed=True)
    found = pruning.plan(store, policy)
    assert names(found, Kind.CHILD) == [names_of["gone"]]
    [item] = [item for item in found.items if item.kind is Kind.CHILD]
    assert item.commits == (f"runs/{names_of['gone']}/child.json",)
    # A student's checkpoints go with the classifier's, whoever needs the finished child.
    students = [name for name in names(found, Kind.TRIAL) if name.endswith("student_training")]
    assert sorted(name[:12] for name in students) == sorted([gone.key, target.key])
    assert found.unknown == []

    pruning.prune(store, policy)
    assert not uris.list_files(uris.join(store.root, "runs", names_of["gone"]))
    assert uris.exists(gone.run.children(gone.plan.trials[0].trial_id).table)
    for name in ("target", "newest"):
        assert len(uris.list_files(uris.join(store.root, "runs", names_of[name]))) == 2
    assert uris.exists(uris.join(store.root, "runs", names_of["refused"], "child.json"))
    # After a rollback the children that stayed are current.
    registry.rollback(third.lineage, second.version_id, reason="a test")
    current = [child.uri for child in children_of(store, "default") if child.is_current]
    assert current == [uris.join(store.root, "runs", names_of["target"], "child.json")]


def test_a_smaller_model_that_cannot_be_read_keeps_all_of_them(store: StoreLayout) -> None:
    old, newer = finished(store, "1"), finished(store, "2")
    name = with_child(store, old, None)
    uris.write(uris.join(store.root, "runs", name, "child.json"), b"damaged")
    age(store.root)
    make_newer(newer)
    found = plan(store)
    assert names(found, Kind.CHILD) == []
    assert Kind.CHILD in found.blocked
