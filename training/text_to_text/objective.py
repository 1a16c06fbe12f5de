"""The objective of fine-tuning a T5 model: step, batches, scores.

The loss is the cross-entropy of the targets' tokens, ``</s>`` included: the sum over the global
batch divided by their number, regardless of replica and task. Pads do not count.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tf_keras

from pipeline_config import PipelineConfig
from pipeline_config.text_to_text import TOKEN_ACCURACY, TextToTextConfig
from pipeline_store.formats import TaskSplit, ValidationScore
from trained_models.flops import TRAINED
from trained_models.loaded_weights import LoadedWeights
from trained_models.phases import Phase
from trained_models.text_to_text.sizes import PAD, SOURCE, TARGET, Sizes, forward_flops
from trained_models.text_to_text.weights import read_weights
from training.architectures.one_pass import elementwise_in_one_pass
from training.architectures.t5.text_to_text import NO_WEIGHT_DECAY, TextToText
from training.finetuning.batches import ExampleBatches
from training.loop.objective import LoopScores
from training.loop.step import Batch, TrainLoop, apply_summed, compile_loop
from training.model.forward import make_forward
from training.model.losses import masked_lm_losses
from training.model.starts import Initial
from training.optimization.optimizers import build_optimizer
from training.text_to_text.mixture import Mixture
from training.text_to_text.rows import Rows, joined
from training.text_to_text.setup import Prepared


class TextToTextMetrics(NamedTuple):
    """Sums over all replicas of one step, or over the steps of a loop; scalars.

    ``tokens`` are those of texts and targets. ``input_wait_seconds`` as in
    :class:`training.loop.step.StepMetrics`.
    """

    loss_sum: tf.Tensor
    target_tokens: tf.Tensor
    tokens: tf.Tensor
    gradient_norm: tf.Tensor
    input_wait_seconds: tf.Tensor


def make_replica_step(
    model: TextToText, optimizer: tf_keras.optimizers.legacy.Optimizer, clip_norm: float
) -> Callable[[Batch], TextToTextMetrics]:
    """Return the step of one replica; it runs inside ``strategy.run``."""
    variables = model.trainable_variables

    def replica_step(batch: Batch) -> TextToTextMetrics:
        replicas = tf.distribute.get_replica_context()
        counts = tf.cast(tf.not_equal(batch[TARGET], PAD), tf.float32)
        target_tokens = replicas.all_reduce("SUM", tf.reduce_sum(counts))
        with elementwise_in_one_pass():
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(variables)
                logits = model(batch, training=True)
                losses = masked_lm_losses(logits, batch[TARGET])
                loss_sum = tf.reduce_sum(losses * counts)
                loss = loss_sum / target_tokens
            gradients = [tf.convert_to_tensor(g) for g in tape.gradient(loss, variables)]
        gradients = replicas.all_reduce("SUM", gradients)
        loss_sum = replicas.all_reduce("SUM", loss_sum)
        real = [tf.math.count_nonzero(batch[name], dtype=tf.int32) for name in (SOURCE, TARGET)]
        tokens = replicas.all_reduce("SUM", tf.add_n(real))
        norm = apply_summed(optimizer, gradients, variables, clip_norm)
        return TextToTextMetrics(loss_sum, target_tokens, tokens, norm, tf.constant(0.0))

    return replica_step


@dataclass(frozen=True)
class TextToTextTuning:
    """The :class:`training.loop.objective.Objective` of a T5 model.

    :param config: :func:`pipeline_config.text_to_text.trainer_config`.
    :param train: training rows of each task, all of one length.
    :param validation: validation rows of all tasks; None: checkpoints are not scored.
    """

    config: PipelineConfig
    recipe: TextToTextConfig
    sizes: Sizes
    train: Sequence[Rows]
    validation: Rows | None

    def build_model(self) -> TextToText:
        """Return the model with all its variables."""
        training = self.config.training
        return TextToText(self.sizes, self.recipe.dropout_rate, training.mixed_precision_dtype)

    def build_optimizer(self, model: tf_keras.Model) -> tf_keras.optimizers.legacy.Optimizer:
        """Return the optimizer with all its slots."""
        variables = model.trainable_variables
        return build_optimizer(self.config, variables, no_weight_decay=NO_WEIGHT_DECAY)

    def load_initial(
        self, model: TextToText, optimizer: tf_keras.optimizers.legacy.Optimizer
    ) -> Initial:
        """Load all weights from the folder that fine-tuning starts from."""
        uri = self.recipe.init_checkpoint
        values = read_weights(uri, self.sizes)
        model.set_weights_by_name(values)
        return Initial(uri, LoadedWeights(sorted(values), [], [], []))

    def make_loop(
        self,
        strategy: tf.distribute.Strategy,
        model: TextToText,
        optimizer: tf_keras.optimizers.legacy.Optimizer,
    ) -> TrainLoop[TextToTextMetrics]:
        """Return the compiled loop of steps."""
        step = make_replica_step(model, optimizer, self.config.optimizer.clip_norm)
        return compile_loop(strategy, step, TextToTextMetrics)

    def batches(self, strategy: tf.distribute.Strategy) -> ExampleBatches:
        """Return the batches that the loop takes."""
        training = self.config.training
        phase = Phase("main", 0, training.steps, 0, 0, training.global_batch_size)
        weights = [task.weight for task in self.recipe.tasks]
        counts = [len(rows[SOURCE]) for rows in self.train]
        mixture = Mixture(phase, training.random_seed, counts, weights)
        return ExampleBatches(joined(self.train), mixture, strategy)

    def scorer(
        self, strategy: tf.distribute.Strategy, model: TextToText
    ) -> Callable[[], ValidationScore] | None:
        """Return a function that scores the model on validation rows; None: there are none.

        Checkpoints are compared by :data:`pipeline_config.text_to_text.TOKEN_ACCURACY`.
        """
        rows = self.validation
        if rows is None:
            return None
        forward = make_forward(_sums_of(model), strategy, self.recipe.eval_batch_size)

        def score() -> ValidationScore:
            loss, correct, tokens = forward(rows).sum(axis=0, dtype=np.float64)
            return ValidationScore(
                loss=float(loss / tokens),
                metrics={TOKEN_ACCURACY: float(correct / tokens)},
                compared_by=TOKEN_ACCURACY,
                examples=len(rows[SOURCE]),
            )

        return score

    def loop_scores(self, sums: TextToTextMetrics) -> LoopScores:
        """Return the mean over the targets' tokens."""
        return LoopScores(float(sums.loss_sum) / float(sums.target_tokens))

    def step_flops(self, step: int) -> int:
        """Return the model FLOPs of a step; all are alike."""
        source, target = (self.train[0][name].shape[1] for name in (SOURCE, TARGET))
        rows = self.config.training.global_batch_size
        return TRAINED * rows * forward_flops(self.sizes, source, target)

    def doubt(self, loss: float) -> str | None:
        """Return a warning if the loss is far above that of guessing."""
        chance = math.log(self.sizes.vocab_size)
        if loss <= 1.5 * chance:
            return None
        return (
            f"The loss {loss:.4f} is far above that of guessing ({chance:.4f}): this training "
            "diverged. Lower learning_rate, or raise warmup_fraction."
        )


def make_objective(prepared: Prepared, config: PipelineConfig) -> TextToTextTuning:
    """Return the objective of a fine-tuning.

    :param config: :meth:`training.text_to_text.setup.Prepared.trainer_config`.
    """
    validation = prepared.split(TaskSplit.VALIDATION)
    return TextToTextTuning(
        config,
        prepared.recipe,
        prepared.sizes,
        prepared.split(TaskSplit.TRAIN),
        joined(validation) if validation else None,
    )


def _sums_of(model: TextToText) -> Callable[[dict[str, tf.Tensor]], tf.Tensor]:
    """Return a function from rows to each row's loss, correct tokens and tokens, [R, 3]."""

    def sums(batch: dict[str, tf.Tensor]) -> tf.Tensor:
        targets = batch[TARGET]
        logits = model(batch, training=False)
        counts = tf.cast(tf.not_equal(targets, PAD), tf.float32)
        right = tf.equal(tf.argmax(logits, axis=-1, output_type=targets.dtype), targets)
        parts = (masked_lm_losses(logits, targets) * counts, tf.cast(right, tf.float32) * counts)
        return tf.stack([tf.reduce_sum(part, axis=1) for part in (*parts, counts)], axis=1)

    return sums
