"""Summarizes a model on a task: over seeds, at the learning rate that validation chose."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Sequence

import numpy as np

from pipeline_store.formats import MetricSummary, TaskManifest, TaskSplit, TaskSummary
from trained_models.downstream import metrics
from trained_models.downstream.trials import FinishedTrial
from trained_models.errors import BadDataError
from trained_models.text_to_text import metrics as texts


def summarize(manifest: TaskManifest, trials: Sequence[FinishedTrial]) -> TaskSummary:
    """Return the summary of one model on one task.

    The learning rate is the one with the best mean on the validation split; the test split is never
    used to choose anything. Of equal ones it is the smallest.

    :param trials: finished trials of this model on this task: each learning rate with each seed.
    :raises BadDataError: the rates do not have the same seeds, or were not scored alike.
    """
    first = trials[0].result.trial
    by_rate = _by_rate(trials)
    metric = manifest.compared_by
    rate = min(by_rate, key=lambda one: (-_validation_mean(by_rate[one], metric, by_rate), one))
    chosen = by_rate[rate]
    best = max(chosen, key=lambda one: one.metric(TaskSplit.VALIDATION, metric) or 0.0)
    return TaskSummary(
        task=first.task,
        model=first.model,
        learning_rate=rate,
        random_seeds=[one.result.trial.random_seed for one in chosen],
        best_trial=best.result.trial.trial_id,
        metrics=_over_seeds(chosen, TaskSplit.TEST),
        validation=_over_seeds(chosen, TaskSplit.VALIDATION),
        majority=_majority(manifest, best),
    )


def chosen_trials(summary: TaskSummary, trials: Sequence[FinishedTrial]) -> list[FinishedTrial]:
    """Return the trials that a summary is of, in the order of its seeds."""
    found = {
        one.result.trial.random_seed: one
        for one in trials
        if one.result.trial.task == summary.task
        and one.result.trial.model == summary.model
        and one.result.trial.learning_rate == summary.learning_rate
    }
    return [found[seed] for seed in summary.random_seeds]


def _by_rate(trials: Sequence[FinishedTrial]) -> dict[float, list[FinishedTrial]]:
    found: dict[float, dict[int, FinishedTrial]] = {}
    for one in trials:
        trial = one.result.trial
        found.setdefault(trial.learning_rate, {})[trial.random_seed] = one
    seeds = {rate: sorted(of_rate) for rate, of_rate in found.items()}
    if any(of_rate != seeds[next(iter(seeds))] for of_rate in seeds.values()):
        raise BadDataError(
            f"Task {trials[0].result.trial.task!r}, model {trials[0].result.trial.model!r}: each "
            f"learning rate needs trials from the same seeds; there are {seeds}."
        )
    return {rate: [of_rate[seed] for seed in seeds[rate]] for rate, of_rate in found.items()}


def _validation_mean(
    trials: Sequence[FinishedTrial], metric: str, rates: Collection[float]
) -> float:
    values = [one.metric(TaskSplit.VALIDATION, metric) for one in trials]
    known = [value for value in values if value is not None]
    if len(known) == len(values):
        return statistics.fmean(known)
    if len(rates) == 1:
        return 0.0
    missing = trials[values.index(None)].result.trial.trial_id
    raise BadDataError(
        f"Trial {missing} has no validation score, and without it there is no choosing among the "
        f"learning rates {sorted(rates)}. Give the task validation examples, or one rate."
    )


def _over_seeds(trials: Sequence[FinishedTrial], split: TaskSplit) -> dict[str, MetricSummary]:
    scores = [one.result.scores.get(split) for one in trials]
    known = [one.metrics for one in scores if one is not None]
    if len(known) < len(scores):
        return {}
    return {name: _summary([values[name] for values in known]) for name in known[0]}


def _summary(values: list[float]) -> MetricSummary:
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return MetricSummary(mean=statistics.fmean(values), deviation=deviation, values=values)


def _majority(manifest: TaskManifest, trial: FinishedTrial) -> dict[str, float]:
    """Return the metrics of the answer that is most often right in the training split."""
    if TaskSplit.TEST not in trial.result.scores:
        return {}
    if manifest.task_kind == "text_to_text":
        return _most_frequent_texts(manifest)
    labels, outputs = trial.predictions(TaskSplit.TEST)
    constant = np.full(outputs.shape, -1.0)
    if manifest.labels:
        counts = manifest.splits[TaskSplit.TRAIN].labels
        most = max(manifest.labels, key=lambda label: counts.get(label, 0))
        constant[:, manifest.labels.index(most)] = 1.0
    return metrics.scores(manifest.label_kind, labels, constant)


def _most_frequent_texts(manifest: TaskManifest) -> dict[str, float]:
    """Return the same metrics of tasks whose targets are labels; others have no such answer."""
    learned, asked = (_by_task(manifest, split) for split in (TaskSplit.TRAIN, TaskSplit.TEST))
    found: dict[str, float] = {}
    for task, counts in asked.items():
        most = max(learned[task], key=lambda label: learned[task][label])
        targets = [label for label, count in counts.items() for _ in range(count)]
        scores = texts.scores("label", [most] * len(targets), targets, sorted(learned[task]))
        found |= {f"{task}.{name}": measured.value for name, measured in scores.items()}
    return found


def _by_task(manifest: TaskManifest, split: TaskSplit) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for key, count in manifest.splits[split].labels.items():
        task, _, label = key.partition(".")
        found.setdefault(task, {})[label] = count
    return found
