"""The functions that are compiled: the trainer's own step, and that of plain tf-models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
import tf_keras
from official.modeling.optimization.legacy_adamw import AdamWeightDecay
from official.nlp.tasks.masked_lm import MaskedLMConfig, MaskedLMTask

from pipeline_config import PipelineConfig
from preflight.compiled.errors import CheckError
from trained_models.record_sources import RowFormat, predicts_next_sentence
from training.architectures.models import (
    architecture_of,
    build_model,
    has_next_sentence_head,
    trained_variables,
)
from training.evaluation.evaluator import make_score_batch
from training.input.examples import model_inputs, parse
from training.loop.step import make_replica_step
from training.model.dropout import make_dropout_stateless
from training.optimization.optimizers import build_optimizer
from training.optimization.schedules import build_schedule

Batch = dict[str, tf.Tensor]


@dataclass(frozen=True)
class Step:
    """A function to export, and an example batch; its variables are captured."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]


def training_step(config: PipelineConfig, rows: int) -> Step:
    """Return the step that :mod:`training.loop.trainer` runs on each replica.

    :param rows: rows of the batch of one replica.
    """
    model = build_model(config)
    optimizer = build_optimizer(config, trained_variables(model, config))
    if config.model.hidden_dropout_prob or config.model.attention_probs_dropout_prob:
        make_dropout_stateless(model, config.training.random_seed, optimizer.iterations)
    step = make_replica_step(model, optimizer, config)
    return Step(step, (zero_batch(config, rows),))


def evaluation_step(config: PipelineConfig, rows: int) -> Step:
    """Return the function with which :mod:`training.evaluation.evaluator` scores a batch."""
    model = build_model(config)
    score = make_score_batch(tf.distribute.get_strategy(), model, has_next_sentence_head(model))
    batch = (zero_batch(config, rows), tf.ones([rows]))
    return Step(score, (batch,))


def plain_training_step(config: PipelineConfig, rows: int) -> Step:
    """Return the training step of tf-models' own task with its AdamW, the peer of ours.

    It has the same encoder, head, activation, batch and arithmetic. Of the task's metrics only
    those that its loss requires are kept, as the accuracy would count against it.

    :raises CheckError: the configuration has another optimizer than AdamW.
    """
    settings = config.optimizer
    if settings.type != "adamw":
        raise CheckError(
            f"optimizer.type={settings.type}: the plain step is tf-models' AdamW; compare with "
            "--set optimizer.type=adamw."
        )
    model = plain_model(config)
    optimizer = AdamWeightDecay(
        learning_rate=build_schedule(config),
        weight_decay_rate=settings.weight_decay_rate,
        beta_1=settings.beta_1,
        beta_2=settings.beta_2,
        epsilon=settings.epsilon,
        exclude_from_weight_decay=list(architecture_of(config.model).no_weight_decay),
        gradient_clip_norm=settings.clip_norm,
    )
    optimizer._create_all_weights(trained_variables(model, config))
    return Step(make_plain_step(model, optimizer), (zero_batch(config, rows),))


def make_plain_step(
    model: tf_keras.Model, optimizer: tf_keras.optimizers.legacy.Optimizer
) -> Callable[[Batch], Any]:
    """Return the step of tf-models' own task; it changes the model's variables."""
    task, metrics = _plain_task(model)

    def plain_step(batch: Batch) -> Any:
        return task.train_step(batch, model, optimizer, metrics)

    return plain_step


def plain_model(config: PipelineConfig) -> tf_keras.Model:
    """Return the configured model made of tf-models' own parts, with random weights.

    :raises CheckError: tf-models has no such architecture.
    """
    build = architecture_of(config.model).build_plain
    if build is None:
        raise CheckError(
            f"model.architecture={config.model.architecture}: tf-models has no such model to "
            "compare with; leave the plain step out."
        )
    return build(config)


def plain_evaluation_step(config: PipelineConfig, rows: int) -> Step:
    """Return the validation step of tf-models' own task."""
    model = plain_model(config)
    task, metrics = _plain_task(model)

    def plain_step(batch: Batch) -> Any:
        return task.validation_step(batch, model, metrics)

    return Step(plain_step, (zero_batch(config, rows),))


def _plain_task(
    model: tf_keras.Model,
) -> tuple[MaskedLMTask, list[tf_keras.metrics.Metric]]:
    names = ["lm_example_loss", *(["next_sentence_loss"] if has_next_sentence_head(model) else [])]
    return MaskedLMTask(MaskedLMConfig()), [tf_keras.metrics.Mean(name=name) for name in names]


def zero_batch(config: PipelineConfig, rows: int) -> Batch:
    """Return a batch of zeros with the names and shapes of the input pipeline's batches."""
    masking = config.masking
    row_format = RowFormat(
        max_seq_length=masking.max_seq_length,
        max_predictions_per_seq=masking.max_predictions_per_seq,
        masked=True,
        next_sentence=predicts_next_sentence(config),
    )

    @tf.function
    def read(serialized: tf.Tensor) -> Batch:
        return model_inputs(parse(serialized, row_format))

    # Traced but not run: there are no records here.
    outputs = read.get_concrete_function(tf.TensorSpec([rows], tf.string)).structured_outputs
    return {name: tf.zeros(value.shape, value.dtype) for name, value in outputs.items()}
