"""The loss of every example, and what balanced weights change."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from sklearn.utils.class_weight import compute_class_weight

from pipeline_config.task import TaskKind
from tests.training.finetuning.tasks import KINDS
from trained_models.downstream import metrics
from training.finetuning.losses import balanced_weights, example_losses
from training.finetuning.task_data import Examples

LABELS = np.array([0, 0, 0, 0, 0, 1, 1, 2], np.int32)


def examples(labels: np.ndarray) -> Examples:
    return Examples({"features": np.zeros((len(labels), 2), np.float32)}, labels)


@pytest.mark.parametrize("kind", KINDS)
def test_without_weights_it_is_the_loss_that_is_reported(kind: TaskKind) -> None:
    random = np.random.default_rng(3)
    outputs = random.normal(size=(8, 1 if kind == "regression" else 3)).astype(np.float32)
    labels = {
        "classification": LABELS,
        "multi_label": (random.random((8, 3)) > 0.5).astype(np.float32),
        "regression": random.normal(size=8).astype(np.float32),
    }[kind]
    losses = example_losses(kind, tf.constant(outputs), tf.constant(labels), None)
    expected = metrics.example_losses(kind, labels, outputs)
    np.testing.assert_allclose(losses, expected, rtol=1e-5)


def test_balanced_weights_are_those_of_scikit_learn() -> None:
    weights = balanced_weights("classification", examples(LABELS), 3)
    expected = compute_class_weight("balanced", classes=np.arange(3), y=LABELS)
    np.testing.assert_allclose(weights, expected, rtol=1e-6)
    assert weights[LABELS].mean() == pytest.approx(1.0)


def test_a_label_that_is_not_met_takes_no_weight_from_the_others() -> None:
    weights = balanced_weights("classification", examples(LABELS), 4)
    np.testing.assert_allclose(weights[:3], balanced_weights("classification", examples(LABELS), 3))
    assert weights[3] == 0.0


def test_each_of_several_labels_is_balanced_for_itself() -> None:
    labels = np.array([[1, 0], [0, 0], [0, 0], [0, 1]], np.float32)
    labels[:, 1] = [1, 1, 1, 0]
    weights = balanced_weights("multi_label", examples(labels), 2)
    np.testing.assert_allclose(weights, [[4 / 6, 2.0], [2.0, 4 / 6]])
    logits = tf.zeros([4, 2])
    losses = example_losses("multi_label", logits, tf.constant(labels), tf.constant(weights))
    # All probabilities are one half: what is left are the weights, whose mean is 1.
    assert float(tf.reduce_mean(losses)) == pytest.approx(np.log(2.0))


def test_rare_labels_count_as_much_as_frequent_ones() -> None:
    weights = tf.constant(balanced_weights("classification", examples(LABELS), 3))
    logits = tf.random.stateless_normal([8, 3], seed=[1, 2])
    plain = example_losses("classification", logits, tf.constant(LABELS), None).numpy()
    losses = example_losses("classification", logits, tf.constant(LABELS), weights).numpy()
    by_label = [plain[label == LABELS].mean() for label in range(3)]
    assert losses.mean() == pytest.approx(np.mean(by_label), rel=1e-5)
