"""Sets up a trial: its examples, settings and objective, checked before it is trained."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import tensorflow as tf

from pipeline_config import PipelineConfig
from pipeline_config.finetuning import RecipeConfig, training_config
from pipeline_config.rental_schema import TpuConfig
from pipeline_config.training_schema import ModelConfig
from pipeline_store.formats import EncoderSource, TaskSplit, TrainingInputs, Trial
from pipeline_store.layout import StoreLayout, TrialLayout
from trained_models.errors import UserError
from training.finetuning.encoder import check_encoder, encoder_uri
from training.finetuning.finished import recipe_settings
from training.finetuning.lengths import evaluation_interval, kept_rows, steps_of
from training.finetuning.objective import FineTuning
from training.finetuning.task_data import Examples, Task
from training.importing.loading import initial_model
from training.runtime.strategies import create_strategy

log = logging.getLogger("training")


@dataclass(frozen=True)
class TrialJob:
    """The inputs of a trial.

    :param manifest_uri: URI of the task's TaskManifest.
    :param model: architecture of the encoder, and its lineage.
    :param tpu: the TPU to train on if ``finetuning.distribution_strategy`` is ``tpu``.
    :param layout: folder of the trial.
    """

    trial: Trial
    encoder: EncoderSource
    manifest_uri: str
    recipe: RecipeConfig
    model: ModelConfig
    tpu: TpuConfig
    store: StoreLayout
    layout: TrialLayout


def make_strategy(
    recipe: RecipeConfig, model: ModelConfig, tpu: TpuConfig
) -> tf.distribute.Strategy:
    """Return the distribution strategy of trials; one serves all trials of a process.

    :param tpu: the TPU to use, if the recipe's strategy is ``tpu``.
    :raises UserError: the devices it needs are missing, or a batch cannot be split evenly.
    """
    config = training_config(
        recipe,
        model,
        train_steps=1,
        checkpoint_interval=1,
        learning_rate=1.0,
        random_seed=0,
        tpu=tpu,
    )
    return create_strategy(config, [recipe.global_batch_size, recipe.eval_batch_size])


def look(job: TrialJob) -> None:
    """Check a trial and log its size; write nothing, build no model.

    :raises JobError: as :func:`train_trial` would before its first step.
    """
    objective = make_objective(job, Task.load(job.manifest_uri))
    say(job, objective)


def make_objective(job: TrialJob, task: Task) -> FineTuning:
    """Return the objective of a trial.

    :raises JobError: task, model and settings do not fit together.
    """
    _check_length(job, task)
    train = used_examples(task, job.recipe, job.trial.random_seed)
    config = trial_config(job, len(train))
    check_encoder(job.encoder, job.store, config, task.manifest.vocabulary_sha256)
    uri = encoder_uri(job.encoder, job.store)
    has_validation = TaskSplit.VALIDATION in task.manifest.splits
    return FineTuning(
        config=config,
        recipe=job.recipe,
        task=task,
        train=train,
        validation=task.examples(TaskSplit.VALIDATION) if has_validation else None,
        init_model=None if uri is None else initial_model(uri, job.store, config),
    )


def _check_length(job: TrialJob, task: Task) -> None:
    length, most = task.manifest.max_seq_length, job.model.max_position_embeddings
    if length > most:
        raise UserError(
            f"finetuning.max_seq_length: the encoder has positions for {most} tokens, and task "
            f"{task.manifest.name!r} is prepared with {length}; prepare it with {most} at most."
        )


def used_examples(task: Task, recipe: RecipeConfig, seed: int) -> Examples:
    """Return the training examples that a trial uses.

    :raises UserError: finetuning.train_fraction leaves none, or one label only.
    """
    examples = task.examples(TaskSplit.TRAIN)
    if recipe.train_fraction == 1.0:
        return examples
    used = examples.take(kept_rows(len(examples), recipe.train_fraction, seed))
    kind = task.manifest.label_kind
    few = len(used) == 0 or (kind == "classification" and len(set(used.known_labels.tolist())) < 2)
    if few:
        raise UserError(
            f"finetuning.train_fraction: {recipe.train_fraction} of the {len(examples)} training "
            f"examples of task {task.manifest.name!r} are {len(used)}, which leaves nothing to "
            "tell apart; use a larger share, or another seed."
        )
    return used


def trial_config(job: TrialJob, examples: int) -> PipelineConfig:
    """Return a trial's settings as a configuration of the trainer.

    :param examples: number of training examples that the trial uses.
    """
    recipe = job.recipe
    steps = steps_of(examples, recipe.global_batch_size, recipe.num_train_epochs)
    interval = evaluation_interval(
        examples, recipe.global_batch_size, recipe.evaluations_per_epoch, steps
    )
    return training_config(
        recipe,
        job.model,
        train_steps=steps,
        checkpoint_interval=interval,
        learning_rate=job.trial.learning_rate,
        random_seed=job.trial.random_seed,
        tpu=job.tpu,
    )


def trial_inputs(job: TrialJob, task: Task, config: PipelineConfig) -> TrainingInputs:
    """Return everything that the trained weights depend on, in readable form."""
    manifest = task.manifest
    settings = {
        f"{section}.{name}": value
        for section, values in config.training_settings.items()
        for name, value in values.items()
        if section != "masking"
    }
    settings |= recipe_settings(job.recipe)
    settings |= {
        "task.name": manifest.name,
        "task.kind": manifest.label_kind,
        "task.labels": manifest.labels,
        "task.max_seq_length": manifest.max_seq_length,
        "task.compared_by": manifest.compared_by,
        "encoder.uri": job.encoder.uri,
        "encoder.files_sha256": job.encoder.files_sha256,
    }
    return TrainingInputs(
        settings=settings,
        vocabulary_sha256=manifest.vocabulary_sha256,
        records={
            split: manifest.splits[split].data.sha256
            for split in (TaskSplit.TRAIN, TaskSplit.VALIDATION)
            if split in manifest.splits
        },
    )


def say(job: TrialJob, objective: FineTuning) -> None:
    """Log a trial's examples and steps."""
    settings = objective.config.training
    log.info(
        "Trial %s: %s of %s examples, %d steps of %d, scored every %d.",
        job.trial.trial_id,
        f"{len(objective.train):,}",
        f"{objective.task.records(TaskSplit.TRAIN).records:,}",
        settings.steps,
        settings.global_batch_size,
        settings.checkpoint_interval,
    )
