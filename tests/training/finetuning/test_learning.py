"""Classifiers learn: every kind of task is learned by heart, and settings do what they say."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from pipeline_config.rental_schema import TpuConfig
from pipeline_config.task import METRICS, TaskKind
from pipeline_store.formats import TaskSplit, TrainingResult
from tests.training.corpora import TinyStore
from tests.training.finetuning.tasks import (
    LABELS,
    RECIPE,
    do,
    labels_of,
    rows,
    trial_job,
    write_task,
)
from trained_models.downstream import metrics
from trained_models.flops import available_flops, peak_flops
from training.architectures.models import named_variables
from training.finetuning.losses import example_losses
from training.finetuning.model import build_classifier
from training.finetuning.objective import rate_factors
from training.finetuning.setup import trial_config, used_examples
from training.finetuning.step import ClassifierMetrics, make_replica_step
from training.finetuning.task_data import Task
from training.finetuning.trained import load_trial_model, predict_logits
from training.optimization.optimizers import build_optimizer

NO_DROPOUT: dict[str, Any] = {
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "classifier_dropout": 0.0,
}

# One loop of steps, one checkpoint.
AT_ONCE: dict[str, Any] = {"steps_per_loop": 1000, "evaluations_per_epoch": 0}


def by_heart(store: TinyStore, kind: TaskKind, label_ids: np.ndarray, **changes: Any) -> str:
    """Write a task of 32 examples, which are also its validation split."""
    examples = {TaskSplit.TRAIN: 32}
    given = {TaskSplit.TRAIN: label_ids}
    uri = write_task(store, kind=kind, examples=examples, label_ids=given, **changes)
    manifest = Task.load(uri).manifest
    train = manifest.splits[TaskSplit.TRAIN]
    splits = {TaskSplit.TRAIN: train, TaskSplit.VALIDATION: train}
    manifest.model_copy(update={"splits": splits}).write(uri)
    return uri


@pytest.mark.parametrize(
    ("kind", "two_labels"),
    [
        ("classification", False),
        pytest.param("regression", False, marks=pytest.mark.thorough),
        pytest.param("multi_label", False, marks=pytest.mark.thorough),
        pytest.param("classification", True, marks=pytest.mark.thorough),
    ],
)
def test_it_learns_thirty_two_examples_by_heart(
    tiny: TinyStore, *, kind: TaskKind, two_labels: bool
) -> None:
    label_ids = labels_of(kind, rows(32, seed=0))
    if two_labels:
        uri = by_heart(tiny, kind, np.minimum(label_ids, 1), labels=LABELS[:2])
    else:
        uri = by_heart(tiny, kind, label_ids)
    often: dict[str, Any] = {
        # Several labels at a time take longer.
        "num_train_epochs": 150.0 if kind == "multi_label" else 60.0,
        "steps_per_loop": 600,
        "evaluations_per_epoch": 0,
    }
    result = do(trial_job(tiny, uri, **NO_DROPOUT, **often))
    score = result.scores[TaskSplit.VALIDATION]
    assert score.metrics[METRICS[kind][0]] > (0.99 if kind == "regression" else 0.999)
    assert score.loss < 0.2
    assert np.array(score.confusion).sum() == (32 if kind == "classification" else 0)


def test_a_probe_learns_and_leaves_its_encoder_alone(tiny: TinyStore) -> None:
    uri = by_heart(tiny, "classification", labels_of("classification", rows(32, seed=0)))
    settings: dict[str, Any] = {
        "num_train_epochs": 200.0,
        "steps_per_loop": 800,
        "evaluations_per_epoch": 0,
    }
    job = trial_job(tiny, uri, frozen_encoder=True, rate=3e-2, **NO_DROPOUT, **settings)
    result = do(job)
    assert result.scores[TaskSplit.VALIDATION].metrics["accuracy"] > 0.9
    trained = load_trial_model(job.layout.result, tiny.layout)
    names = {*named_variables(trained.model)}
    assert names == {"probe/classifier/kernel", "probe/classifier/bias", "mean", "scale"}
    # Its features are those of an encoder that the seed alone has made.
    fresh = build_classifier(trial_config(job, 32), 3, 0.0)
    assert trained.encoder is not None
    for ours, theirs in zip(
        trained.encoder.variables, fresh.encoder_network.variables, strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("frozen", [False, True])
def test_predictions_are_those_of_the_loaded_model(tiny: TinyStore, *, frozen: bool) -> None:
    uri = write_task(tiny)
    job = trial_job(tiny, uri, frozen_encoder=frozen)
    result = do(job)
    trained = load_trial_model(job.layout.result, tiny.layout)
    examples = Task.load(uri).examples(TaskSplit.TEST)
    stored = np.load(f"{job.layout.root}/{result.scores[TaskSplit.TEST].predictions.path}")
    np.testing.assert_array_equal(stored["labels"], examples.known_labels)
    # In batches of another size sums are rounded in another order.
    np.testing.assert_allclose(predict_logits(trained, examples, 5), stored["outputs"], atol=1e-5)
    assert (trained.kind, tuple(trained.labels)) == ("classification", LABELS)


@pytest.mark.thorough
def test_the_seed_decides_all_of_it(tiny: TinyStore) -> None:
    uri = write_task(tiny)
    first, again, other = (
        do(trial_job(tiny, uri, folder, seed=seed))
        for folder, seed in (("a", 1), ("b", 1), ("c", 2))
    )
    assert first.weights_sha256 == again.weights_sha256 != other.weights_sha256
    assert first.scores[TaskSplit.TEST].metrics == again.scores[TaskSplit.TEST].metrics


def test_the_best_checkpoint_by_the_metric_is_the_result(tiny: TinyStore) -> None:
    uri = write_task(tiny)
    job = trial_job(tiny, uri, num_train_epochs=8.0)
    result = do(job)
    training = TrainingResult.load(job.layout.training.result)
    from trained_models import metric_files

    scores = [
        (record["accuracy"], -record["loss"], -record["step"])
        for record in metric_files.read(job.layout.training.metrics)
        if record["kind"] == metric_files.HELD_OUT
    ]
    assert len(scores) == 8
    assert training.train_steps == -max(scores)[2]
    assert result.train_steps == training.train_steps
    assert result.train_steps_total == 48
    found = result.scores[TaskSplit.VALIDATION]
    assert found.metrics["accuracy"] == max(scores)[0]


def test_it_stops_early_by_the_metric(tiny: TinyStore) -> None:
    job = trial_job(tiny, write_task(tiny), num_train_epochs=30.0, early_stop_evaluations=2)
    result = do(job)
    assert result.train_steps_total < 180
    assert result.train_steps_total == result.train_steps + 2 * 6


@pytest.mark.thorough
def test_balanced_weights_make_a_rare_label_as_likely(tiny: TinyStore) -> None:
    words = rows(32, seed=0)
    label_ids = (labels_of("classification", words) == 0).astype(np.int64)
    label_ids[np.flatnonzero(label_ids)[3:]] = 0
    uri = by_heart(tiny, "classification", label_ids, labels=LABELS[:2])
    shares = {}
    for name in ("none", "balanced"):
        settings: dict[str, Any] = {
            "class_weights": name,
            "num_train_epochs": 10.0,
            "keep_best": False,
        }
        job = trial_job(tiny, uri, name, **NO_DROPOUT, **settings)
        path = do(job).scores[TaskSplit.VALIDATION].predictions.path
        outputs = np.load(f"{job.layout.root}/{path}")["outputs"]
        shares[name] = metrics.probabilities("classification", outputs)[:, 1].mean()
    # The mean over examples comes to what the loss takes the share of the label to be.
    assert shares["none"] == pytest.approx(3 / 32, abs=0.07)
    assert shares["balanced"] == pytest.approx(1 / 2, abs=0.15)


@pytest.mark.thorough
def test_a_share_of_the_examples_is_exact(tiny: TinyStore) -> None:
    uri = write_task(tiny)
    job = trial_job(tiny, uri, train_fraction=0.55)
    assert do(job).train_examples == 26
    every = Task.load(uri).examples(TaskSplit.TRAIN).inputs["input_word_ids"].tolist()
    used = used_examples(Task.load(uri), job.recipe, seed=1).inputs["input_word_ids"].tolist()
    assert len(used) == 26
    assert all(row in every for row in used)


class OneStep:
    """A classifier, its optimizer and its step on one batch, without a trainer."""

    def __init__(self, store: TinyStore, *, jit_compile: bool = False, **recipe: Any) -> None:
        self.job = trial_job(store, write_task(store), **NO_DROPOUT | recipe)
        self.config = trial_config(self.job, 48)
        self.model = build_classifier(self.config, 3, 0.0)
        decay = self.job.recipe.layer_decay
        factors = None if decay == 1.0 else rate_factors(self.model, decay)
        self.optimizer = build_optimizer(self.config, self.model.trainable_variables, factors)

        def losses(logits: tf.Tensor, batch: dict[str, tf.Tensor]) -> tf.Tensor:
            return example_losses("classification", logits, batch["label_ids"], None)

        step = make_replica_step(self.model, self.optimizer, losses, 1.0)
        self.step = tf.function(step, jit_compile=jit_compile)
        examples = Task.load(self.job.manifest_uri).examples(TaskSplit.TRAIN)
        self.batch = {name: tf.constant(value[:8]) for name, value in examples.inputs.items()}
        self.batch["label_ids"] = tf.constant(examples.known_labels[:8])

    @functools.cached_property
    def changes(self) -> dict[str, np.ndarray]:
        """Return by how much a step changes each variable."""
        before = {name: v.numpy() for name, v in named_variables(self.model).items()}
        self.metrics: ClassifierMetrics = self.step(self.batch)
        return {n: v.numpy() - before[n] for n, v in named_variables(self.model).items()}


def test_layer_decay_has_the_rates_of_the_formula(tmp_path: Any) -> None:
    plain, decayed = (
        OneStep(TinyStore.create(tmp_path / str(decay)), layer_decay=decay, weight_decay_rate=0.1)
        for decay in (1.0, 0.5)
    )
    depths = {"classifier": 0, "pooler_transform": 0, "layer_0": 1}
    for name, change in decayed.changes.items():
        depth = next((depth for part, depth in depths.items() if part in name), 2)
        np.testing.assert_allclose(change, plain.changes[name] * 0.5**depth, rtol=1e-3, atol=1e-8)
        assert np.any(change != 0), name


@pytest.mark.thorough
def test_a_step_is_compiled_by_xla_as_a_whole(tmp_path: Any) -> None:
    # As on a TPU: static shapes, no operation that XLA does not know.
    plain, compiled = (
        OneStep(TinyStore.create(tmp_path / str(jit)), jit_compile=jit) for jit in (False, True)
    )
    for name, change in compiled.changes.items():
        np.testing.assert_allclose(change, plain.changes[name], rtol=2e-2, atol=2e-6)
    assert float(compiled.metrics.loss_sum) == pytest.approx(float(plain.metrics.loss_sum))
    logits = plain.model(plain.batch)
    losses = example_losses("classification", logits, plain.batch["label_ids"], None)
    assert float(tf.reduce_sum(losses)) != float(plain.metrics.loss_sum)


def test_utilisation_is_that_of_the_runs_tpu(tiny: TinyStore) -> None:
    job = trial_job(tiny, write_task(tiny), distribution_strategy="tpu")
    sixteen = replace(job, tpu=TpuConfig(accelerator_type="v5litepod-16"))
    assert available_flops(trial_config(sixteen, 48)) == peak_flops("v5litepod-16")


def test_the_classifier_computes_in_float32(tiny: TinyStore) -> None:
    config = trial_config(trial_job(tiny, write_task(tiny), mixed_precision_dtype="bfloat16"), 48)
    model = build_classifier(config, 3, 0.0)
    examples = Task.load(tiny.layout.task("kind-of-thing").manifest("k1")).examples(TaskSplit.TEST)
    logits = model({name: tf.constant(value) for name, value in examples.inputs.items()})
    assert model.encoder_network.transformer_layers[0].compute_dtype == "bfloat16"
    assert logits.dtype == tf.float32
    # Most numbers are none of bfloat16's.
    rounded = tf.cast(tf.cast(logits, tf.bfloat16), tf.float32)
    assert np.mean(rounded.numpy() != logits.numpy()) > 0.5


@pytest.mark.thorough
@pytest.mark.parametrize("several", [2, 4])
def test_replicas_compute_the_same_update(tiny: TinyStore, several: int) -> None:
    from tests.training.conftest import replicas
    from trained_models.commit import CommitGuard
    from training.finetuning.trial import train_trial
    from training.runtime.job import StopRequest

    uri = write_task(tiny)
    few: dict[str, Any] = {"num_train_epochs": 1.0, "keep_best": False, "layer_decay": 0.5}
    one, other = (
        train_trial(
            trial_job(tiny, uri, f"on-{count}", **NO_DROPOUT, **few),
            strategy=replicas(count),
            guard=CommitGuard.from_environment(),
            stop=StopRequest(),
        )
        for count in (1, several)
    )
    assert one.train_loss == pytest.approx(other.train_loss, rel=1e-4)
    for split, score in one.scores.items():
        assert other.scores[split].loss == pytest.approx(score.loss, rel=1e-4)
    assert RECIPE.global_batch_size % several == 0
