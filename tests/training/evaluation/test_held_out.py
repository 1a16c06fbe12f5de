"""Scores while training, and what is decided by them: the best checkpoint, an early stop."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline_config import PipelineConfig
from pipeline_store.formats import CheckpointManifest
from pipeline_store.layout import RunLayout
from tests.training.corpora import TinyStore, tiny_config
from tests.training.jobs import (
    PREEMPTED,
    USER_ERROR,
    committed_steps,
    result,
    train,
    train_until,
)
from trained_models import metric_files
from training.architectures.models import build_model, weights_sha256
from training.evaluation.evaluator import evaluate
from training.model import checkpoints

ROWS = {"evaluation__rows_per_checkpoint": 12}
# The rate rises until training falls apart: the best checkpoint is one in the middle.
FALLS_APART = ROWS | {
    "training__train_steps": 24,
    "training__max_to_keep": 2,
    "optimizer__learning_rate": 1.0,
    "optimizer__warmup_steps": 23,
}
# Updates too small for float32: no score is better than the first.
STANDS_STILL = ROWS | {"optimizer__learning_rate": 1e-30, "training__checkpoint_interval": 2}


def scores(run: RunLayout) -> dict[int, float]:
    """Return the held-out loss of each checkpoint, by its step."""
    records = metric_files.read(run.training.metrics)
    return {r["step"]: r["loss"] for r in records if r["kind"] == "held_out"}


def test_each_checkpoint_of_the_schedule_is_scored_as_evaluation_does(
    tiny: TinyStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tiny_config(**ROWS, training__max_to_keep=5, evaluation__max_records_per_set=12)
    tiny = tiny.using(config)
    manifest, run = tiny.partition("2026-01-01"), tiny.run("r", config)
    assert train_until(1, monkeypatch, tiny, run, manifest) == PREEMPTED
    assert CheckpointManifest.load(run.training.checkpoint(2)).held_out is None
    assert train(tiny, run, manifest) == 0
    assert "step 4  held-out loss" in capsys.readouterr().out

    stored = {s: CheckpointManifest.load(run.training.checkpoint(s)) for s in (4, 8, 12)}
    by_step = {step: m.held_out.loss for step, m in stored.items() if m.held_out}
    assert by_step == scores(run)
    report = evaluate(
        store=tiny.layout,
        config=config,
        current_set="2026-01-01",
        manifest_uris={"2026-01-01": manifest},
        model_uris={"candidate": run.training.root},
    )
    evaluated, held_out = report.models[0].sets[0], result(run).held_out
    assert held_out is not None
    assert held_out.loss == pytest.approx(evaluated.loss, abs=1e-5)
    assert held_out.accuracy == pytest.approx(evaluated.accuracy)
    assert held_out.masked_tokens == sum(evaluated.token_counts)
    assert stored[12].held_out == held_out
    lowest = min(by_step, key=lambda step: by_step[step])
    assert stored[12].best is not None
    assert stored[12].best.step == lowest


def test_given_partitions_are_scored_in_place_of_the_trained_ones(tiny: TinyStore) -> None:
    config = tiny_config(**ROWS, training__train_steps=4)
    tiny = tiny.using(config)
    manifest, other = tiny.partition("2026-01-01", validation=0), tiny.partition("dev")
    run = tiny.run("r", config)
    assert train(tiny, run, manifest, "--held-out-manifest", other) == 0
    report = evaluate(
        store=tiny.layout,
        config=config.model_copy(
            update={"evaluation": config.evaluation.model_copy(update={"max_records_per_set": 12})}
        ),
        current_set="dev",
        manifest_uris={"dev": other},
        model_uris={"candidate": run.training.root},
    )
    held_out = result(run).held_out
    assert held_out is not None
    assert held_out.loss == pytest.approx(report.models[0].sets[0].loss, abs=1e-5)


def test_partition_without_held_out_rows_is_refused(
    tiny: TinyStore, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tiny_config(**ROWS)
    manifest, run = tiny.partition("2026-01-01", validation=0), tiny.run("r", config)
    assert train(tiny, run, manifest) == USER_ERROR
    assert "there are no validation records in" in capsys.readouterr().out


def best_run(tiny: TinyStore, config: PipelineConfig, key: str) -> tuple[RunLayout, str]:
    manifest, run = tiny.partition("2026-01-01"), tiny.run(key, config)
    assert train(tiny, run, manifest) == 0
    return run, manifest


@pytest.mark.parametrize(
    "parts", [(5,), pytest.param((1, 2, 4, 4), marks=pytest.mark.thorough)], ids=str
)
def test_the_result_is_the_best_checkpoint(
    tiny: TinyStore, monkeypatch: pytest.MonkeyPatch, parts: tuple[int, ...]
) -> None:
    config = tiny_config(**FALLS_APART, training__keep_best=True)
    run, manifest = best_run(tiny, config, "straight")
    by_step = scores(run)
    best = min(by_step, key=lambda step: by_step[step])
    assert by_step[24] > by_step[best] + 0.1, "it did not fall apart"
    assert best < 20, "the best would be kept anyway"

    done = result(run)
    assert done.checkpoint == f"checkpoints/{best:010d}.json"
    assert (done.train_steps, done.stopped_early) == (best, False)
    assert done.held_out is not None
    assert done.held_out.loss == by_step[best]
    assert committed_steps(run) == [best, 20, 24]
    model = build_model(config)
    checkpoints.load_weights(model, run.training.root)
    assert weights_sha256(model) == done.weights_sha256
    assert train(tiny, run, manifest) == 0, "a finished run verifies"

    interrupted = tiny.run("interrupted", config)
    for loops in parts:
        assert train_until(loops, monkeypatch, tiny, interrupted, manifest) == PREEMPTED
    assert train(tiny, interrupted, manifest) == 0
    assert result(interrupted).weights_sha256 == done.weights_sha256
    assert result(interrupted).held_out == done.held_out

    # A best checkpoint that is damaged later is made again.
    Path(interrupted.training.result).unlink()
    damaged = CheckpointManifest.load(interrupted.training.checkpoint(best)).files[1]
    Path(interrupted.training.root, damaged.path).write_bytes(b"damaged")
    assert train(tiny, interrupted, manifest) == 0
    assert result(interrupted).weights_sha256 == done.weights_sha256


def test_without_keep_best_the_result_is_the_last(tiny: TinyStore) -> None:
    run, _ = best_run(tiny, tiny_config(**FALLS_APART), "r")
    assert result(run).checkpoint == "checkpoints/0000000024.json"
    assert committed_steps(run) == [20, 24]
    held_out = result(run).held_out
    assert held_out is not None
    assert held_out.loss == scores(run)[24]


@pytest.mark.parametrize("parts", [(3,), pytest.param((1, 2), marks=pytest.mark.thorough)], ids=str)
def test_training_stops_when_scores_do_not_fall_any_more(
    tiny: TinyStore, monkeypatch: pytest.MonkeyPatch, parts: tuple[int, ...]
) -> None:
    config = tiny_config(**STANDS_STILL, training__early_stop_evaluations=3)
    run, manifest = best_run(tiny, config, "straight")
    done = result(run)
    # The first score is the best; those of the steps 4, 6 and 8 are no better.
    assert (done.train_steps, done.stopped_early) == (8, True)
    assert committed_steps(run)[-1] == 8

    interrupted = tiny.run("interrupted", config)
    for loops in parts:
        assert train_until(loops, monkeypatch, tiny, interrupted, manifest) == PREEMPTED
    assert train(tiny, interrupted, manifest) == 0
    assert result(interrupted).train_steps == 8
    assert result(interrupted).weights_sha256 == done.weights_sha256

    # Killed between the last checkpoint and the result: nothing is left to train.
    Path(run.training.result).unlink()
    assert train(tiny, run, manifest) == 0
    assert result(run) == done.model_copy(update={"resumed_from": [8]})


def test_an_early_stop_at_the_last_step_is_none(tiny: TinyStore) -> None:
    config = tiny_config(**STANDS_STILL, training__early_stop_evaluations=5)
    run, _ = best_run(tiny, config, "r")
    assert (result(run).train_steps, result(run).stopped_early) == (12, False)
