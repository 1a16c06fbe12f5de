"""What a run copies to a TPU VM's disk, by the manifests of a lineage, and the refusal."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline_config import PipelineConfig, with_overrides
from pipeline_store import uris
from pipeline_store.formats import RunPlan, Split
from pipeline_store.layout import StoreLayout
from preflight.estimates import vm_disk
from preflight.run.disk import vm_disk_problems
from tests.model_registry.runs import CONFIG, FinishedRun
from tests.model_registry.test_plans import in_use, prepare
from tests.pipeline_store.gcs_server import GcsState

ROW = 5 * 128 + 8 * 20 + 256
TRAIN, HELD_OUT = 5000 * ROW, 500 * ROW
"""Of one partition."""
DAY = "2026-01-31"


def configured(**settings: Any) -> PipelineConfig:
    named = {name.replace("__", "."): value for name, value in settings.items()}
    return with_overrides(CONFIG, {"training.replay_fraction": 0.2, **named})


@pytest.fixture
def lineage(cloud_storage: GcsState) -> FinishedRun:
    """Return the second of two runs whose models came into use, in a bucket."""
    first = in_use("gs://bucket/store", "1")
    second = in_use("gs://bucket/store", "2", first.version_id)
    uris.write(f"{second.store.root}/corpus/{DAY}/a.txt", b"Some text.\n" * 1000)
    return second


def estimated(run: FinishedRun, **settings: Any) -> vm_disk.CopiedBytes:
    found = vm_disk.estimated(configured(**settings), DAY, run.store)
    assert found is not None
    return found


def test_a_new_partition_and_all_that_was_seen_is_copied(lineage: FinishedRun) -> None:
    found = estimated(lineage)
    assert found.new == 2 * 11_000
    assert (found.replayed, found.held_out) == (2 * TRAIN, 2 * HELD_OUT)
    assert found.total == found.new + 2 * TRAIN + 2 * HELD_OUT + found.checkpoints
    assert "10.6 MB of records to replay" in found.words
    prepare(lineage, DAY)
    found = estimated(lineage)
    assert (found.new, found.replayed, found.held_out) == (TRAIN, 2 * TRAIN, 3 * HELD_OUT)


def test_settings_decide_what_is_copied(lineage: FinishedRun) -> None:
    prepare(lineage, "general")
    assert estimated(lineage, training__replay_fraction=0.0).replayed == 0
    assert estimated(lineage, evaluation__max_sets=2).held_out < 2 * HELD_OUT
    general = estimated(lineage, evaluation__general_partition="general")
    assert (general.replayed, general.held_out) == (2 * TRAIN, 3 * HELD_OUT)
    not_prepared = estimated(lineage, evaluation__general_partition="elsewhere")
    assert not_prepared == estimated(lineage)


def test_a_plan_says_it_exactly(lineage: FinishedRun) -> None:
    first = lineage.lineage.manifest("day-1", "0" * 16)
    plan = lineage.plan(
        replayed={"day-1": first},
        evaluated={"day-1": first, lineage.partition: lineage.manifest_uri},
    )
    found = vm_disk.planned(configured(), plan, lineage.store)
    assert found is not None
    assert (found.new, found.replayed, found.held_out) == (TRAIN, TRAIN, 2 * HELD_OUT)


def test_longer_rows_count_if_they_are_trained_on(lineage: FinishedRun) -> None:
    long = {Split.TRAIN: 10, Split.VALIDATION: 1}
    prepare(
        lineage, DAY, extra_max_seq_length=512, extra_max_predictions_per_seq=76, extra_records=long
    )
    longer = {
        "masking__extra_max_seq_length": 512,
        "masking__extra_max_predictions_per_seq": 76,
        "model__max_position_embeddings": 512,
    }
    assert estimated(lineage).new == TRAIN
    plan = lineage.plan(trained={DAY: lineage.lineage.manifest(DAY, "0" * 16)})
    found = vm_disk.planned(
        configured(training__extra_steps_fraction=0.1, **longer), plan, lineage.store
    )
    assert found is not None
    assert found.new == TRAIN + 10 * (5 * 512 + 8 * 76 + 256)


def test_what_cannot_fit_is_refused(lineage: FinishedRun) -> None:
    small = configured(tpu__disk_gigabytes=vm_disk.SYSTEM_GIGABYTES)
    [line] = vm_disk_problems(small, DAY, lineage.store)
    assert line.startswith("tpu.disk_gigabytes: a VM of v5litepod-1 has 40 GB")
    assert "10.6 MB of records to replay" in line
    assert "set training.replay_fraction to 0" in line
    without = configured(tpu__disk_gigabytes=10, training__replay_fraction=0.0)
    [line] = vm_disk_problems(without, DAY, lineage.store)
    assert "replay" not in line
    assert list(vm_disk_problems(configured(), DAY, lineage.store)) == []


def test_from_a_folder_nothing_is_copied(tmp_path_factory: pytest.TempPathFactory) -> None:
    store = StoreLayout(str(tmp_path_factory.mktemp("store")))
    full = configured(tpu__disk_gigabytes=10)
    assert list(vm_disk_problems(full, DAY, store)) == []
    assert vm_disk.planned(full, RunPlan.model_construct(), store) is None
