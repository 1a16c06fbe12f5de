"""Runs a trial: trains a model on a task from a seed at a rate, scores it, commits the result."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable
from dataclasses import fields

import tensorflow as tf

from pipeline_store.formats import (
    PhaseName,
    TaskManifest,
    TaskSplit,
    TrainingResult,
    TrialResult,
    TrialScores,
)
from pipeline_store.layout import TrialLayout
from trained_models.checkpoint_store import CheckpointStore
from trained_models.commit import CommitGuard
from trained_models.finished import finished_training
from training.finetuning.finished import new_outputs, require_same, result_of
from training.finetuning.lengths import kept_rows
from training.finetuning.objective import FineTuning
from training.finetuning.probing import Probing, encoder_features, with_features
from training.finetuning.scoring import Forward, score_split
from training.finetuning.setup import (
    TrialJob,
    make_objective,
    make_strategy,
    say,
    trial_inputs,
)
from training.finetuning.task_data import Task
from training.finetuning.trained import load_trained, load_trial_model
from training.finetuning.transfer import check_fits, check_splits
from training.loop.trainer import Trainer, TrainingJob
from training.runtime.job import StopRequest
from training.runtime.phases import phase

__all__ = ["TrialJob", "evaluate_trial", "make_strategy", "train_trial"]

log = logging.getLogger("training")

SCORED = (TaskSplit.VALIDATION, TaskSplit.TEST)


def train_trial(
    job: TrialJob,
    *,
    strategy: tf.distribute.Strategy,
    guard: CommitGuard,
    stop: StopRequest,
    splits: Iterable[TaskSplit] = SCORED,
) -> TrialResult:
    """Train to the end, score, and commit, skipping completed steps.

    :param strategy: from :func:`make_strategy`.
    :param splits: splits to score the trained model on; those that the task does not have are
        skipped.
    :raises PreemptedError: a stop was requested; a checkpoint is saved, and the same call resumes
        from it.
    :raises JobError: see :mod:`trained_models.errors`.
    """
    task = Task.load(job.manifest_uri)
    found = TrialResult.load_or_none(job.layout.result)
    if found is not None:
        require_same(
            found,
            job.layout.result,
            trial=job.trial,
            encoder=job.encoder,
            manifest=task.manifest,
            recipe=job.recipe,
        )
        log.info("Trial %s is done already.", job.trial.trial_id)
        return found
    training = _train(job, task, strategy, guard, stop)
    trained = load_trained(job.layout, job.recipe, job.encoder, job.store, strategy)
    forward = trained.forward(strategy, job.recipe.eval_batch_size)
    with phase(PhaseName.EVALUATION):
        scores = _scores(job, task, forward, splits)
    return _commit(_result(job, task, training, scores), job, guard)


def evaluate_trial(
    job: TrialJob,
    source: TrialLayout,
    source_manifest: TaskManifest,
    *,
    strategy: tf.distribute.Strategy,
    guard: CommitGuard,
) -> TrialResult:
    """Score another run's trained model on this job's task, and commit the result.

    :param source: folder of the trial that trained it.
    :param source_manifest: manifest of the task that it was trained on.
    :raises UserError: it was trained for other labels, or with another vocabulary, or may have been
        trained on the examples to score it on.
    :raises FileNotFoundError: the source trial is not finished.
    """
    before = TrialResult.load(source.result)
    task = Task.load(job.manifest_uri)
    check_splits(task.manifest, source_manifest)
    trained = load_trial_model(source.result, job.store, strategy)
    check_fits(task.manifest, trained)
    forward = trained.forward(strategy, job.recipe.eval_batch_size)
    with phase(PhaseName.EVALUATION):
        scores = _scores(job, task, forward, SCORED)
    result = before.model_copy(
        update={"task_manifest_sha256": task.manifest.content_sha256, "scores": scores}
    )
    return _commit(result, job, guard)


def _train(
    job: TrialJob,
    task: Task,
    strategy: tf.distribute.Strategy,
    guard: CommitGuard,
    stop: StopRequest,
) -> TrainingResult:
    """Train to the end, or return the result of a finished training from the same inputs."""
    objective = make_objective(job, task)
    config, inputs = objective.config, trial_inputs(job, task, objective.config)
    store = CheckpointStore(
        job.layout.training,
        guard,
        config,
        inputs=inputs,
        data_sha256=hashlib.sha256(inputs.to_bytes()).hexdigest(),
    )
    done = finished_training(
        job.layout.training, store, "Delete the trial's folder to train it again."
    )
    if done is not None:
        return done
    say(job, objective)
    if job.recipe.frozen_encoder:
        objective = _probing(objective, strategy)
    training_job = TrainingJob(config, job.layout.training, guard, objective, inputs, store)
    return Trainer(training_job, strategy).train(stop)


def _probing(objective: FineTuning, strategy: tf.distribute.Strategy) -> Probing:
    with phase(PhaseName.RESTORE):
        features, loaded = encoder_features(objective, strategy)
    same = {field.name: getattr(objective, field.name) for field in fields(objective)}
    validation = objective.validation
    with phase(PhaseName.EVALUATION):
        same["train"] = with_features(objective.train, features)
        same["validation"] = None if validation is None else with_features(validation, features)
    return Probing(**same, loaded=loaded)


def _result(
    job: TrialJob, task: Task, training: TrainingResult, scores: dict[TaskSplit, TrialScores]
) -> TrialResult:
    recipe = job.recipe
    records = task.records(TaskSplit.TRAIN).records
    return result_of(
        training,
        trial=job.trial,
        encoder=job.encoder,
        manifest=task.manifest,
        recipe=recipe,
        train_examples=len(kept_rows(records, recipe.train_fraction, job.trial.random_seed)),
        scores=scores,
    )


def _scores(
    job: TrialJob, task: Task, forward: Forward, splits: Iterable[TaskSplit]
) -> dict[TaskSplit, TrialScores]:
    folder = job.layout.root
    files = new_outputs(job.layout)
    scores = {
        split: score_split(
            forward,
            task.examples(split),
            split,
            task.manifest,
            folder=folder,
            path=f"{files}/predictions-{split}.npz",
        )
        for split in splits
        if split in task.manifest.splits
    }
    for split, score in scores.items():
        log.info(
            "%s on %d %s examples: loss %.4f  %s",
            job.trial.trial_id,
            score.examples,
            split,
            score.loss,
            "  ".join(f"{name} {value:.4f}" for name, value in score.metrics.items()),
        )
    return scores


def _commit(result: TrialResult, job: TrialJob, guard: CommitGuard) -> TrialResult:
    guard.check()
    return result if result.create(job.layout.result) else TrialResult.load(job.layout.result)
