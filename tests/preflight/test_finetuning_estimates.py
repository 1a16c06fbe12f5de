"""What a fine-tuning run is estimated to use: by sizes of tasks, earlier runs, arithmetic."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from pipeline_config import (
    FinetuningConfig,
    load_finetuning_preset,
    with_overrides,
)
from pipeline_store import uris
from pipeline_store.formats import (
    FileDigest,
    RunEstimate,
    TaskManifest,
    TaskRecords,
    TaskSplit,
    TrialResult,
)
from pipeline_store.layout import StoreLayout
from preflight.estimates.finetuning_estimates import estimate, example_flops, plan_lines, steps_of
from preflight.finetuning_settings import completed, encoder_config
from tests.model_registry.finetunings import FinetuningRun, prepare
from tests.model_registry.retained import promoted

TASK = "weather"
DIGEST = FileDigest(path="p", bytes=1, sha256="0" * 64)


@pytest.fixture
def store(tmp_path: Path) -> StoreLayout:
    """Return a store with a model in use."""
    return promoted(str(tmp_path), "1").store


def describe(store: StoreLayout, content: bytes, name: str = "train.tsv", toml: str = "") -> None:
    folder = store.task(TASK)
    uris.write(folder.description, toml.encode())
    uris.write(uris.join(folder.root, name), content)


def config(preset: str = "finetuning_smoke", **settings: Any) -> FinetuningConfig:
    chosen = {name.replace("__", "."): value for name, value in settings.items()}
    return with_overrides(load_finetuning_preset(preset), {"finetuning.tasks": [TASK]} | chosen)


def told(store: StoreLayout, preset: str = "finetuning_smoke", **settings: Any) -> RunEstimate:
    return estimate(completed(config(preset, **settings), store), store)


def test_lines_are_counted_and_what_is_held_out_is_not(store: StoreLayout) -> None:
    describe(store, b"text\tlabel\n" + b"a\tb\n" * 999)
    assert told(store).train_steps == 3 * 800 // 32
    describe(store, b"text\tlabel\n" + b"a\tb\n" * 999, toml='validation = "v.tsv"\n')
    uris.write(uris.join(store.task(TASK).root, "v.tsv"), b"text\tlabel\n")
    assert told(store).train_steps == round(3 * 900 / 32)


def test_packed_text_says_nothing_before_it_is_prepared(store: StoreLayout) -> None:
    describe(store, gzip.compress(b"text\tlabel\n" * 100), "train.tsv.gz")
    found = told(store)
    assert found.hours is found.cost is None
    assert f"examples: {TASK}: not known before it is prepared" in found.lines


def test_a_prepared_task_is_known(store: StoreLayout) -> None:
    prepare(store, TASK)
    assert f"examples: {TASK}: about 0 to train on (as it was prepared last)" in told(store).lines


def test_a_tpu_is_estimated_by_its_arithmetic(store: StoreLayout) -> None:
    describe(store, b"text\tlabel\n" + b"a\tb\n" * 9999)
    found = told(store, "finetuning_base_v5e")
    assert found.hours is not None
    assert found.cost == pytest.approx(found.hours * 8 * 1.2)
    assert "no run like it is known" in found.basis
    # Four hours of eight chips at the most.
    assert found.worst_case_cost == pytest.approx(4 * 8 * 1.2)
    probe = told(store, "finetuning_base_v5e", finetuning__frozen_encoder=True)
    assert probe.hours == pytest.approx(found.hours / 3)


def test_flops_follow_the_shapes(store: StoreLayout) -> None:
    chosen = completed(config(finetuning__max_seq_length=64), store)
    encoder = encoder_config(chosen, store)
    # BERT-tiny: two layers of 128, inner 512, forwards and backwards.
    layer = 8 * 128**2 + 4 * 128 * 512 + 4 * 64 * 128
    assert example_flops(chosen, encoder) == 3 * (64 * 2 * layer + 2 * 128**2)


def test_an_earlier_run_like_it_tells_the_speed(store: StoreLayout) -> None:
    describe(store, b"text\tlabel\n" + b"a\tb\n" * 999)
    run = FinetuningRun(store, "1", tasks=[TASK])
    [trial] = run.plan.trials
    TrialResult(
        trial=trial,
        task_manifest_sha256="m",
        encoder=run.plan.models["model"],
        settings=run.config.finetuning.model_dump(mode="json"),
        train_examples=160,
        train_steps=50,
        train_steps_total=60,
        train_loss=0.2,
        weights_sha256="w",
        resumed_from=[],
        seconds=12.0,
        examples_per_second=80.0,
        scores={},
    ).write(run.run.trial(trial.trial_id).result)
    run.end()
    uris.delete(store.task(TASK).manifest("a" * 16))
    found = told(store)
    assert found.hours == pytest.approx(found.rows / 80 / 3600)
    assert "learned from 80 examples a second" in found.basis
    # Longer rows take another time.
    assert told(store, finetuning__max_seq_length=64).hours is None


def test_what_crosses_regions_is_told(store: StoreLayout) -> None:
    describe(store, b"text\tlabel\n" + b"a\tb\n" * 999)
    assert not any(line.startswith("egress") for line in told(store).lines)
    lines = told(store, tpu__allow_other_regions=True).lines
    [line] = [line for line in lines if line.startswith("egress: ")]
    assert "us-central1-a outside the bucket's region (not known)" in line
    assert "examples not counted" in line


def test_the_plan_says_it_again_with_the_true_sizes(store: StoreLayout) -> None:
    run = FinetuningRun(store, "1", tasks=[TASK], finetuning__random_seeds=[1, 2, 3])
    uri = run.plan.manifests[TASK]
    records = TaskRecords(
        data=DIGEST, index=DIGEST, sources=DIGEST, records=320, labels={}, truncated=0, tokens=5000
    )
    manifest = TaskManifest.load(uri).model_copy(update={"splits": {TaskSplit.TRAIN: records}})
    manifest.write(uri)
    lines = list(plan_lines(run.config, run.plan, store))
    assert any(line.startswith("training: 90 steps of 32 examples in all") for line in lines)
    assert any(line.startswith("TPU 0: 3 training(s): weather.model.0.001.1, ") for line in lines)


def test_a_budget_that_is_too_short_is_warned_of(store: StoreLayout) -> None:
    describe(store, b"text\tlabel\n" + b"a\tb\n" * 9999)
    found = told(
        store,
        "finetuning_base_v5e",
        tpu__queue_timeout_seconds=60,
        tpu__boot_timeout_seconds=60,
        budget__max_hours=0.05,
        finetuning__num_train_epochs=1000.0,
        finetuning__random_seeds=list(range(50)),
    )
    assert any(line.startswith("WARNING: budget.max_hours: 0.05 h") for line in found.lines)


def test_even_a_few_examples_take_a_step() -> None:
    assert steps_of(config(), 1) == 1
    assert steps_of(config(finetuning__train_fraction=0.5), 640) == 30
