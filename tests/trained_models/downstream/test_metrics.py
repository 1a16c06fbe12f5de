"""Metrics of predictions, against values that are worked out by hand or by other code."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from pipeline_config.task import METRICS, TaskKind
from tests.training.finetuning.tasks import KINDS
from trained_models.downstream import metrics

# Right: 0 0 1 2 2; predicted: 0 1 1 2 0.
LABELS = np.array([0, 0, 1, 2, 2])
OUTPUTS = np.array([[2, 1, 0], [0, 3, 1], [-1, 0, -2], [0, 0, 0.5], [9, 0, 0]], np.float32)


def test_classification() -> None:
    scores = metrics.scores("classification", LABELS, OUTPUTS)
    f1 = [2 * 0.5 * 0.5 / 1.0, 2 * 0.5 * 1.0 / 1.5, 2 * 1.0 * 0.5 / 1.5]
    assert scores == {
        "accuracy": pytest.approx(3 / 5),
        "macro_f1": pytest.approx(np.mean(f1)),
        "micro_f1": pytest.approx(3 / 5),
        # Gorodkin's formula: (3 * 5 - 8) over the root of (25 - 9) * (25 - 9).
        "matthews": pytest.approx(7 / 16),
    }
    assert metrics.confusion(LABELS, OUTPUTS) == [[1, 1, 0], [0, 1, 0], [1, 0, 1]]
    table = metrics.per_label("classification", LABELS, OUTPUTS, ["a", "b", "c"])
    assert table["b"] == {
        "precision": 0.5,
        "recall": 1.0,
        "f1": pytest.approx(2 / 3),
        "examples": 1.0,
    }


def test_several_labels_are_right_together() -> None:
    labels = np.array([[1, 0], [1, 1], [0, 0]])
    outputs = np.array([[0.1, -0.1], [2.0, -2.0], [-1.0, -1.0]], np.float32)
    scores = metrics.scores("multi_label", labels, outputs)
    assert scores == {
        "accuracy": pytest.approx(2 / 3),
        "macro_f1": pytest.approx((1.0 + 0.0) / 2),
        "micro_f1": pytest.approx(2 * 2 / (2 + 3)),
    }
    table = metrics.per_label("multi_label", labels, outputs, ["a", "b"])
    assert table["b"] == {"precision": 0.0, "recall": 0.0, "f1": 0.0, "examples": 1.0}


def test_regression() -> None:
    random = np.random.default_rng(1)
    labels = random.normal(size=30).astype(np.float32)
    outputs = (labels[:, None] + random.normal(size=(30, 1))).astype(np.float32)
    outputs[5] = outputs[6]
    scores = metrics.scores("regression", labels, outputs)
    assert scores["pearson"] == pytest.approx(stats.pearsonr(labels, outputs[:, 0])[0])
    assert scores["spearman"] == pytest.approx(stats.spearmanr(labels, outputs[:, 0])[0])
    assert metrics.per_label("regression", labels, outputs, []) == {}


@pytest.mark.parametrize("value", [0.0, 0.1, 1e8])
def test_a_constant_prediction_correlates_with_nothing(value: float) -> None:
    labels = np.array([1.0, 2.0, 4.0], np.float32)
    constant = np.full((3, 1), value, np.float32)
    assert metrics.scores("regression", labels, constant) == {"pearson": 0.0, "spearman": 0.0}
    assert set(metrics.scores("regression", constant[:, 0], labels[:, None]).values()) == {0.0}


def test_one_class_and_one_prediction_have_numbers() -> None:
    labels, outputs = np.zeros(4, np.int64), np.tile([1.0, 0.0], (4, 1))
    scores = metrics.scores("classification", labels, outputs)
    assert scores == {"accuracy": 1.0, "macro_f1": 1.0, "micro_f1": 1.0, "matthews": 0.0}


@pytest.mark.parametrize("kind", KINDS)
def test_every_metric_of_a_kind_is_there(kind: TaskKind) -> None:
    labels = {"classification": LABELS, "multi_label": OUTPUTS > 0, "regression": OUTPUTS[:, 0]}
    found = metrics.scores(kind, np.asarray(labels[kind], np.float32), OUTPUTS)
    assert tuple(found) == METRICS[kind]


def test_nothing_to_measure_is_an_error() -> None:
    with pytest.raises(ValueError, match="labels"):
        metrics.scores("classification", LABELS[:0], OUTPUTS[:0])
    with pytest.raises(ValueError, match=r"\(3,\)"):
        metrics.scores("classification", LABELS[:3], OUTPUTS)


def test_losses_and_probabilities_are_those_of_tensorflow() -> None:
    large = OUTPUTS * 300
    losses = metrics.example_losses("classification", LABELS, large)
    expected = tf.nn.sparse_softmax_cross_entropy_with_logits(LABELS, large)
    np.testing.assert_allclose(losses, expected, rtol=1e-6, atol=1e-6)
    shares = metrics.probabilities("classification", large)
    np.testing.assert_allclose(shares, tf.nn.softmax(large), atol=1e-6)

    yes = (OUTPUTS > 1).astype(np.float32)
    losses = metrics.example_losses("multi_label", yes, large)
    expected = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(yes, large), axis=1)
    np.testing.assert_allclose(losses, expected, rtol=1e-6, atol=1e-6)
    shares = metrics.probabilities("multi_label", large)
    np.testing.assert_allclose(shares, tf.sigmoid(large), atol=1e-6)

    losses = metrics.example_losses("regression", yes[:, 0], OUTPUTS[:, :1])
    np.testing.assert_allclose(losses, (OUTPUTS[:, 0] - yes[:, 0]) ** 2)
    assert metrics.probabilities("regression", OUTPUTS[:, :1]).tolist() == OUTPUTS[:, :1].tolist()
