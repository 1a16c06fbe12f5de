"""The pretraining step (loss, gradients, update) for any number of replicas, and the step loop.

Losses, counts and gradients are summed over all replicas and then divided by counts of the whole
batch, before anything is clipped, so the learning rate means the same on one device and on a slice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

import tensorflow as tf
import tf_keras

from pipeline_config import PipelineConfig
from pipeline_config.rules import training_batches
from trained_models.errors import UserError
from training.architectures.models import has_next_sentence_head, trained_variables
from training.architectures.one_pass import elementwise_in_one_pass
from training.model.dropout import part_of_batch
from training.model.losses import masked_lm_losses, next_sentence_scores
from training.runtime.strategies import on_replicas

Batch = dict[str, tf.Tensor]


class StepMetrics(NamedTuple):
    """Sums over all replicas of one step, or over the steps of a loop; scalars.

    ``loss_sum`` is the masked-LM loss. The three fields of next-sentence prediction are 0 without
    it; ``pairs`` counts the rows that have a label. ``input_wait_seconds`` is the time in which
    steps waited for a batch; only the loop measures it, a step has 0.
    """

    loss_sum: tf.Tensor
    masked_tokens: tf.Tensor
    tokens: tf.Tensor
    gradient_norm: tf.Tensor
    next_sentence_loss_sum: tf.Tensor
    next_sentence_correct: tf.Tensor
    pairs: tf.Tensor
    input_wait_seconds: tf.Tensor


class Sums(NamedTuple):
    """Sums over some rows, and the gradients of the optimized loss for each trained variable.

    The sums are the masked-LM loss and, with next-sentence prediction, its loss and its number of
    correct predictions.
    """

    sums: list[tf.Tensor]
    gradients: list[tf.Tensor]


Metrics = TypeVar("Metrics")
TrainLoop = Callable[[Iterator[tuple[Batch]], tf.Tensor], Metrics]


def make_replica_step(
    model: tf_keras.Model,
    optimizer: tf_keras.optimizers.legacy.Optimizer,
    config: PipelineConfig,
) -> Callable[[Batch], StepMetrics]:
    """Return the step of one replica; it runs inside ``strategy.run``.

    The loss is the mean masked-LM loss over masked tokens plus, as in BERT, the mean next-sentence
    loss over rows if the model has that head. With training.gradient_accumulation_steps the
    replica's share of the batch is computed in that many parts, one after the other: activations
    need the memory of one part.
    """
    variables = trained_variables(model, config)
    with_next_sentence = has_next_sentence_head(model)
    parts = config.training.gradient_accumulation_steps

    def differentiate(batch: Batch, masked: tf.Tensor, rows: tf.Tensor) -> Sums:
        """Return sums over these rows, and the gradients of their part in the global mean."""
        # Nothing else is watched: the backward pass ends above frozen layers.
        with elementwise_in_one_pass():
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(variables)
                outputs = model(batch, training=True)
                losses = masked_lm_losses(outputs["mlm_logits"], batch["masked_lm_ids"])
                sums = [tf.reduce_sum(losses * batch["masked_lm_weights"])]
                # Without a single prediction gradients are zero; that must not divide by zero.
                loss = sums[0] / tf.maximum(masked, 1.0)
                if with_next_sentence:
                    scores = next_sentence_scores(outputs, batch)
                    sums += [tf.reduce_sum(scores.losses), tf.reduce_sum(scores.correct)]
                    loss += sums[1] / rows
            return Sums(sums, tape.gradient(loss, variables))

    def differentiate_in_parts(batch: Batch, masked: tf.Tensor, rows: tf.Tensor) -> Sums:
        split = {name: _split(value, parts) for name, value in batch.items()}

        def add_part(number: tf.Tensor, totals: Sums) -> tuple[tf.Tensor, Sums]:
            with part_of_batch(number, parts):
                part = {name: values[number] for name, values in split.items()}
                new = differentiate(part, masked, rows)
            return number + 1, tf.nest.map_structure(tf.add, totals, new)

        zeros = Sums(
            [tf.constant(0.0)] * (3 if with_next_sentence else 1),
            [tf.zeros(variable.shape) for variable in variables],
        )
        # A loop in the program, not a longer program: XLA frees a part's memory before the next.
        _, totals = tf.while_loop(
            lambda number, _: number < parts,
            add_part,
            (tf.constant(0), zeros),
            parallel_iterations=1,
        )
        return totals

    def replica_step(batch: Batch) -> StepMetrics:
        replicas = tf.distribute.get_replica_context()
        weights = batch["masked_lm_weights"]
        rows = tf.cast(tf.shape(weights)[0], tf.float32)
        masked, rows = replicas.all_reduce("SUM", [tf.reduce_sum(weights), rows])
        compute = differentiate if parts == 1 else differentiate_in_parts
        sums, gradients = compute(batch, masked, rows)
        gradients = replicas.all_reduce("SUM", gradients)
        sums = replicas.all_reduce("SUM", sums)
        tokens = replicas.all_reduce("SUM", tf.reduce_sum(batch["input_mask"]))

        norm = apply_summed(optimizer, gradients, variables, config.optimizer.clip_norm)
        zero = tf.constant(0.0)
        loss_sum, *next_sentence = sums
        losses, correct = next_sentence or (zero, zero)
        pairs = rows if with_next_sentence else zero
        return StepMetrics(loss_sum, masked, tokens, norm, losses, correct, pairs, zero)

    return replica_step


def apply_summed(
    optimizer: tf_keras.optimizers.legacy.Optimizer,
    gradients: list[tf.Tensor],
    variables: list[tf.Variable],
    clip_norm: float,
) -> tf.Tensor:
    """Clip gradients that are summed over all replicas, apply them, return their global norm."""
    gradients, norm = tf.clip_by_global_norm(gradients, clip_norm)
    optimizer.apply_gradients(
        zip(gradients, variables, strict=True), experimental_aggregate_gradients=False
    )
    return norm


def _split(values: tf.Tensor, parts: int) -> tf.Tensor:
    """Return the rows in equal parts, [parts, R / parts, ...]."""
    rows, *others = values.shape
    return tf.reshape(values, [parts, rows // parts, *others])


def make_train_loop(
    strategy: tf.distribute.Strategy,
    model: tf_keras.Model,
    optimizer: tf_keras.optimizers.legacy.Optimizer,
    config: PipelineConfig,
) -> TrainLoop[StepMetrics]:
    """Return a compiled function that runs a number of steps and returns the sums over them.

    :raises UserError: a replica's share of a batch cannot be split into the parts of
        training.gradient_accumulation_steps.
    """
    _check_parts(config, strategy.num_replicas_in_sync)
    return compile_loop(strategy, make_replica_step(model, optimizer, config), StepMetrics)


def compile_loop(
    strategy: tf.distribute.Strategy,
    replica_step: Callable[[Batch], Metrics],
    metrics_type: type[Metrics],
) -> TrainLoop[Metrics]:
    """Return a compiled function that runs a number of steps and returns the sums over them.

    :param metrics_type: named tuple of scalars, ``tokens`` and ``input_wait_seconds`` among them.
    """
    named_tuple: Any = metrics_type

    @tf.function
    def train_loop(iterator: Iterator[tuple[Batch]], steps: tf.Tensor) -> Metrics:
        zeros = dict.fromkeys(named_tuple._fields, tf.constant(0.0))
        zeros["tokens"] = tf.constant(0, tf.int64)
        zeros["input_wait_seconds"] = tf.constant(0.0, tf.float64)
        totals = named_tuple(**zeros)
        idle = _time()
        with tf.control_dependencies([idle]):
            steps = tf.identity(steps)
        for _ in tf.range(steps):
            batch = next(iterator)
            # Input that is ready before the previous step is done costs nothing.
            wait = tf.maximum(_time(after=batch) - idle, 0.0)
            metrics = strategy.run(replica_step, args=on_replicas(strategy, batch))
            # All replicas return the same sums, so the first one speaks for all.
            first = named_tuple(
                *(strategy.experimental_local_results(value)[0] for value in metrics)
            )
            idle = _time(after=first)
            totals = tf.nest.map_structure(
                lambda total, new: total + tf.cast(new, total.dtype),
                totals,
                first._replace(input_wait_seconds=wait),
            )
        return totals

    return train_loop


def _check_parts(config: PipelineConfig, replicas: int) -> None:
    parts = config.training.gradient_accumulation_steps
    for name, rows in training_batches(config):
        if rows % (replicas * parts):
            raise UserError(
                f"{name}: {rows} rows cannot be split evenly over {replicas} replicas with "
                f"training.gradient_accumulation_steps={parts} parts each; use a multiple of "
                f"{replicas * parts}."
            )


def _time(after: Any = ()) -> tf.Tensor:
    """Return the time when all of these tensors are computed: host clock, seconds, float64."""
    tensors = tf.nest.flatten(after, expand_composites=True)
    with tf.device("/cpu:0"), tf.control_dependencies(tensors):
        # Not tf.timestamp, which refuses to run when ops have to be deterministic.
        return tf.ensure_shape(tf.numpy_function(time.monotonic, [], tf.float64), [])
