"""Going back after a loss that is no number, or that jumps: exact, limited, and reported."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import tensorflow as tf

from pipeline_config import PipelineConfig
from pipeline_store.formats import CheckpointManifest
from pipeline_store.layout import RunLayout
from tests.training.conftest import TwoDays
from tests.training.corpora import TinyStore, tiny_config
from tests.training.jobs import FAILED, PREEMPTED, committed_steps, result, train, train_until
from tests.training.poison import not_a_number, poison, surprise
from trained_models import metric_files
from training.architectures.models import build_model, trained_variables, weights_sha256
from training.input.data import TrainingBatches
from training.loop.step import make_train_loop
from training.model.checkpoints import load_weights
from training.optimization.optimizers import build_optimizer

# More than a training of 12 steps reads, so that no record comes twice.
DOCUMENTS = 48
# Fast enough for a word that no text has to be a surprise after a few steps.
SPIKE = {"optimizer__learning_rate": 3e-2, "training__max_loss_increase": 0.5}


def poisoned(tiny: TinyStore, config: PipelineConfig, *steps: int) -> str:
    """Return the manifest of a partition in which some steps read a NaN."""
    store = tiny.using(config)
    manifest = store.partition("2026-01-01", documents=DOCUMENTS)
    for step in steps:
        poison(store, manifest, step, not_a_number)
    return manifest


def ways(run: RunLayout) -> list[tuple[int, int]]:
    """Return from where to where a training went back."""
    return [(rollback.from_step, rollback.to_step) for rollback in result(run).rollbacks]


def sha256_after(
    tiny: TinyStore,
    manifest: str,
    config: PipelineConfig,
    parts: list[tuple[int, int, int]],
    init_model: str | None = None,
) -> str:
    """Return the hash of the weights after some steps, without trainer or checkpoints.

    :param parts: first step, number of steps, steps whose records are passed over.
    """
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    with strategy.scope():
        model = build_model(config)
        optimizer = build_optimizer(config, trained_variables(model, config))
    if init_model is not None:
        load_weights(model, init_model)
    loop = make_train_loop(strategy, model, optimizer, config)
    batches = TrainingBatches(tiny.using(config).training_data(manifest), strategy)
    for step, steps, skipped in parts:
        loop(batches.take(step, steps, skipped), tf.constant(steps))
    return weights_sha256(model)


def test_records_of_a_bad_loop_are_passed_over(
    tiny: TinyStore, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tiny_config()
    manifest, run = poisoned(tiny, config, 5), tiny.run("r", config)
    assert train(tiny, run, manifest) == 0
    assert "back from step 6 to checkpoint 4: loss nan" in capsys.readouterr().out
    done = result(run)
    assert ways(run) == [(6, 4)]
    assert done.weights_sha256 == sha256_after(tiny, manifest, config, [(0, 4, 0), (4, 8, 2)])
    (reported,) = [r for r in metric_files.read(run.training.metrics) if r["kind"] == "rollback"]
    assert (reported["from_step"], reported["step"]) == (6, 4)
    last = CheckpointManifest.load(run.training.checkpoint(12))
    assert last.rollbacks == done.rollbacks
    assert CheckpointManifest.load(run.training.checkpoint(4)).rollbacks == []


@pytest.mark.parametrize("from_init_model", [True, pytest.param(False, marks=pytest.mark.thorough)])
def test_without_a_checkpoint_training_goes_back_to_the_start(
    tiny: TinyStore, two_days: TwoDays, monkeypatch: pytest.MonkeyPatch, from_init_model: bool
) -> None:
    config = tiny_config()
    manifest = poisoned(tiny, config, 3)
    straight, stopped = tiny.run("straight", config), tiny.run("stopped", config)
    init_model = two_days.first.training.root if from_init_model else None
    words = [] if init_model is None else ["--init-model", init_model]
    assert train(tiny, straight, manifest, *words) == 0
    assert ways(straight) == [(4, 0)]
    expected = sha256_after(tiny, manifest, config, [(0, 12, 4)], init_model)
    assert result(straight).weights_sha256 == expected

    # A process that never saw the start: it begins at a checkpoint that SIGTERM left at step 2.
    assert train_until(1, monkeypatch, tiny, stopped, manifest, *words) == PREEMPTED
    assert committed_steps(stopped) == [2]
    assert train(tiny, stopped, manifest, *words) == 0
    assert result(stopped).weights_sha256 == expected
    assert result(stopped).resumed_from == [2]
    assert committed_steps(stopped) == [4, 8, 12]


# Right before and after going back, which then is done again, and in between.
@pytest.mark.thorough
def test_interrupted_around_a_rollback_ends_bit_identical(
    tiny: TinyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny_config(**SPIKE, model__hidden_dropout_prob=0.1)
    manifest = poisoned(tiny, config, 7)
    poison(tiny.using(config), manifest, 12, surprise)
    straight = tiny.run("straight", config)
    assert train(tiny, straight, manifest) == 0
    # The steps 8 to 10 then read what 12 to 14 would have: the second bad record.
    assert ways(straight) == [(8, 4), (10, 8)]

    own = {"seconds", "resumed_from"}
    expected = result(straight).model_dump(exclude=own)
    for number, parts in enumerate([(3, 1, 2), (1, 4, 1)]):
        interrupted = tiny.run(f"interrupted-{number}", config)
        for loops in parts:
            assert train_until(loops, monkeypatch, tiny, interrupted, manifest) == PREEMPTED
        assert train(tiny, interrupted, manifest) == 0
        assert result(interrupted).model_dump(exclude=own) == expected


@pytest.mark.thorough
def test_what_sigterm_saved_is_no_place_to_go_back_to(
    tiny: TinyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny_config(training__max_to_keep=2, training__steps_per_loop=1)
    manifest, run = poisoned(tiny, config, 7), tiny.run("r", config)
    # Saved at 5, 6 and 7: more than are kept, and 4 is kept all the same.
    for loops in (5, 1, 1):
        assert train_until(loops, monkeypatch, tiny, run, manifest) == PREEMPTED
    assert committed_steps(run) == [4, 6, 7]
    assert train(tiny, run, manifest) == 0
    assert ways(run) == [(8, 4)]
    assert committed_steps(run) == [8, 12]
    expected = sha256_after(tiny, manifest, config, [(0, 4, 0), (4, 8, 4)])
    assert result(run).weights_sha256 == expected


def test_a_spike_is_passed_over_only_where_that_is_asked_for(
    tiny: TinyStore, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tiny_config(**SPIKE)
    manifest = tiny.partition("2026-01-01", documents=DOCUMENTS)
    poison(tiny.using(config), manifest, 5, surprise)
    without = tiny_config(optimizer__learning_rate=3e-2)
    guarded, plain = tiny.run("guarded", config), tiny.run("plain", without)
    assert train(tiny, guarded, manifest) == 0
    assert "is more than training.max_loss_increase=0.5 above" in capsys.readouterr().out
    assert ways(guarded) == [(6, 4)]
    assert train(tiny, plain, manifest) == 0
    assert result(plain).rollbacks == []


@pytest.mark.thorough
def test_training_ends_when_it_has_gone_back_too_often(
    tiny: TinyStore, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tiny_config(training__max_rollbacks=1)
    manifest, run = poisoned(tiny, config, 5, 10), tiny.run("r", config)
    assert train(tiny, run, manifest) == FAILED
    output = capsys.readouterr().out
    assert "is not finite in the steps up to 10" in output
    assert "training has gone back from step 6 to 4 (loss nan or gradient norm nan is" in output
    assert "all that training.max_rollbacks=1 allows" in output
    assert committed_steps(run) == [4, 8]

    # Patience is not part of what is trained: the same run goes on with more of it.
    more = tiny_config(training__max_rollbacks=2)
    straight = tiny.run("straight", more)
    Path(run.config).write_bytes(more.to_bytes())
    assert train(tiny, run, manifest) == 0
    assert train(tiny, straight, manifest) == 0
    assert result(run).weights_sha256 == result(straight).weights_sha256
    assert ways(run) == [(6, 4), (10, 8)]


def test_weights_that_are_no_numbers_are_never_saved(
    tiny: TinyStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tiny_config(training__steps_per_loop=1, training__checkpoint_interval=1)
    manifest, run = tiny.partition("2026-01-01"), tiny.run("r", config)

    def rate(schedule: object, step: tf.Tensor) -> tf.Tensor:
        # The update of step 3 overflows; nothing shows in its loss, which is that before it.
        return tf.where(tf.cast(step, tf.int64) == 2, math.inf, 1e-3)

    monkeypatch.setattr("training.optimization.schedules.LinearWarmupDecay.__call__", rate)
    assert train(tiny, run, manifest) == FAILED
    assert "a weight is not finite in the steps up to 3" in capsys.readouterr().out
    assert committed_steps(run) == [1, 2]
