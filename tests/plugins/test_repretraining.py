"""Which command lines a run plans."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from model_registry import registry
from operators.repretraining import PlanJobsOperator, ValidateRunOperator
from pipeline_config import with_overrides
from pipeline_config.settings import load_settings
from pipeline_store import uris
from pipeline_store.formats import PartitionManifest
from pipeline_store.layout import StoreLayout
from tests.model_registry.runs import CONFIG, FinishedRun
from tpu_lifecycle.reaper_status import write_pass


@pytest.fixture
def versions(tmp_path: Path) -> list[FinishedRun]:
    """Return two runs, each of whose models came into use, the second from the first."""
    first = FinishedRun(str(tmp_path), "1")
    publish(first, None)
    second = FinishedRun(str(tmp_path), "2", parent=first.version_id)
    publish(second, first.version_id)
    return [first, second]


def publish(run: FinishedRun, baseline: str | None) -> None:
    version = registry.publish(run.store, run.run, manifest_uri=run.manifest_uri, baseline=baseline)
    registry.promote(
        run.lineage, version.version_id, expected_baseline=baseline, reason="it is better"
    )


def plan(run: FinishedRun, **overrides: Any) -> list[tuple[str, str]]:
    """Return the trainer's options of a run that has other settings."""
    config = with_overrides(CONFIG, overrides | {"corpus.partition": run.partition})
    uris.write(run.run.config, config.to_bytes())
    operator = PlanJobsOperator(
        task_id="plan",
        store_uri=run.store.root,
        run_uri=run.run.root,
        manifest_uri=run.manifest_uri,
    )
    words = operator.execute({})["train"]
    return list(zip(words[::2], words[1::2], strict=True))


def replayed(options: list[tuple[str, str]]) -> list[str]:
    return [value for name, value in options if name == "--replay-manifest"]


REPLAY = {"training.replay_fraction": 0.1}


def test_partitions_of_the_parent_are_replayed(versions: list[FinishedRun]) -> None:
    first, second = versions
    third = FinishedRun(first.store.root, "3", parent=second.version_id)
    options = plan(third, **REPLAY)
    assert ("--manifest", third.manifest_uri) in options
    assert ("--init-model", third.lineage.version(second.version_id)) in options
    manifests = [PartitionManifest.load(uri) for uri in replayed(options)]
    assert [manifest.partition for manifest in manifests] == [first.partition, second.partition]


def test_nothing_is_replayed_unless_it_is_asked_for(versions: list[FinishedRun]) -> None:
    third = FinishedRun(versions[0].store.root, "3", parent=versions[1].version_id)
    assert replayed(plan(third)) == []


def test_first_run_of_a_lineage_has_nothing_to_replay(tmp_path: Path) -> None:
    assert replayed(plan(FinishedRun(str(tmp_path), "1"), **REPLAY)) == []


def test_own_partition_is_not_replayed(versions: list[FinishedRun]) -> None:
    first, second = versions
    again = FinishedRun(first.store.root, "2", parent=second.version_id)
    manifests = [PartitionManifest.load(uri) for uri in replayed(plan(again, **REPLAY))]
    assert [manifest.partition for manifest in manifests] == [first.partition]


def test_partition_of_another_recipe_is_left_out_and_named(
    versions: list[FinishedRun], capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = versions
    parent = registry.load_version(first.lineage, second.version_id)
    seen = registry.manifests(first.lineage, parent)
    old = PartitionManifest.load(seen[first.partition])
    old.model_copy(update={"packing": "full_sentences"}).write(seen[first.partition])
    third = FinishedRun(first.store.root, "3", parent=second.version_id)
    assert replayed(plan(third, **REPLAY)) == [seen[second.partition]]
    output = capsys.readouterr().out
    assert f"Partition {first.partition} is not replayed: " in output
    assert "packed as 'full_sentences'" in output


def test_a_run_says_so_when_nothing_would_reap_its_tpu(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, owner = StoreLayout(str(tmp_path)), load_settings().owner
    operator = ValidateRunOperator(task_id="validate", store_uri=store.root, preset="smoke")
    operator._warn_of_a_dead_reaper(store)
    assert "TPU REAPER: The reaper" in capsys.readouterr().out
    write_pass(store, owner, "my-project", seen=0, acted_on=0, problems=[])
    operator._warn_of_a_dead_reaper(store)
    assert capsys.readouterr().out == ""
    uris.write(store.reaper_pass(owner, "my-project"), b"not json")
    operator._warn_of_a_dead_reaper(store)
    assert "cannot be read" in capsys.readouterr().out
