"""What trials come to: the rate that validation chose, over seeds, beside the majority's answer."""

from __future__ import annotations

import statistics
from pathlib import Path

import numpy as np
import pytest

from pipeline_store.formats import TaskSplit
from tests.trained_models.downstream.written import guesses, task_manifest, write_trial
from trained_models.downstream.summaries import chosen_trials, summarize
from trained_models.downstream.trials import FinishedTrial
from trained_models.errors import BadDataError

VALIDATION = np.arange(60) % 3
TEST = np.repeat([0, 1, 2], [10, 60, 30])


def trial(
    folder: Path, rate: float, seed: int, *, validation: float | None, test: float
) -> FinishedTrial:
    splits = {TaskSplit.TEST: guesses(TEST, test, seed)}
    if validation is not None:
        splits[TaskSplit.VALIDATION] = guesses(VALIDATION, validation, seed + 100)
    return write_trial(str(folder), task_manifest(), splits, rate=rate, seed=seed)


def test_the_rate_is_chosen_by_validation_and_never_by_test(tmp_path: Path) -> None:
    trials = [
        trial(tmp_path, rate, seed, validation=validation, test=test)
        for rate, validation, test in ((1e-3, 0.9, 0.5), (3e-3, 0.6, 1.0))
        for seed in (2, 1)
    ]
    summary = summarize(task_manifest(), trials)
    assert (summary.learning_rate, summary.random_seeds) == (1e-3, [1, 2])
    own = [one for one in trials if one.result.trial.learning_rate == 1e-3]
    values = [one.result.scores[TaskSplit.TEST].metrics["accuracy"] for one in reversed(own)]
    found = summary.metrics["accuracy"]
    assert found.values == values
    assert found.mean == pytest.approx(statistics.fmean(values))
    assert found.deviation == pytest.approx(statistics.stdev(values))
    best = max(own, key=lambda one: one.metric(TaskSplit.VALIDATION, "accuracy") or 0)
    assert summary.best_trial == best.result.trial.trial_id
    chosen = chosen_trials(summary, trials)
    assert [one.result.trial.random_seed for one in chosen] == [1, 2]


def test_of_equally_good_rates_the_smallest_is_taken(tmp_path: Path) -> None:
    trials = [
        write_trial(
            str(tmp_path),
            task_manifest(),
            {TaskSplit.VALIDATION: guesses(VALIDATION, 0.8, 1)},
            rate=rate,
        )
        for rate in (3e-3, 1e-3)
    ]
    summary = summarize(task_manifest(), trials)
    assert summary.learning_rate == 1e-3
    # Nothing was tested.
    assert (summary.metrics, summary.majority) == ({}, {})


def test_the_majority_is_that_of_the_training_split(tmp_path: Path) -> None:
    one = trial(tmp_path, 1e-3, 1, validation=0.9, test=0.9)
    majority = summarize(task_manifest(), [one]).majority
    assert majority["accuracy"] == pytest.approx(0.6)
    assert majority["macro_f1"] == pytest.approx(2 * 60 / (60 + 100) / 3)
    assert majority["matthews"] == 0
    rare = task_manifest(train={"animal": 90, "mineral": 50, "plant": 20})
    assert summarize(rare, [one]).majority["accuracy"] == pytest.approx(0.1)


def test_the_most_frequent_of_several_labels_is_one_label(tmp_path: Path) -> None:
    manifest = task_manifest(kind="multi_label")
    labels = np.array([[0, 1, 0], [1, 1, 0], [0, 0, 0], [0, 1, 0]])
    splits = {TaskSplit.TEST: (labels, labels - 0.5), TaskSplit.VALIDATION: (labels, labels - 0.5)}
    one = write_trial(str(tmp_path), manifest, splits)
    assert summarize(manifest, [one]).majority["accuracy"] == pytest.approx(0.5)


def test_a_constant_has_no_correlation(tmp_path: Path) -> None:
    manifest = task_manifest(kind="regression")
    labels = np.random.default_rng(1).normal(size=30)
    splits = dict.fromkeys((TaskSplit.TEST, TaskSplit.VALIDATION), (labels, labels[:, np.newaxis]))
    summary = summarize(manifest, [write_trial(str(tmp_path), manifest, splits)])
    assert summary.majority == {"pearson": 0, "spearman": 0}
    assert summary.metrics["pearson"].mean == pytest.approx(1)


def test_one_rate_needs_no_validation_and_several_do(tmp_path: Path) -> None:
    alone = trial(tmp_path, 1e-3, 1, validation=None, test=0.9)
    assert summarize(task_manifest(), [alone]).learning_rate == 1e-3
    other = trial(tmp_path, 3e-3, 1, validation=0.9, test=0.9)
    with pytest.raises(BadDataError, match=r"things\.model\.0\.001\.1 has no validation score"):
        summarize(task_manifest(), [alone, other])


def test_rates_with_different_seeds_cannot_be_ranked(tmp_path: Path) -> None:
    trials = [
        trial(tmp_path, rate, seed, validation=0.8, test=0.8)
        for rate, seed in ((1e-3, 1), (1e-3, 2), (3e-3, 1))
    ]
    with pytest.raises(BadDataError, match="trials from the same seeds"):
        summarize(task_manifest(), trials)
