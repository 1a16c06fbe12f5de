"""The objective of fine-tuning: model, learning rate of each layer, batches, scores."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import tensorflow as tf
import tf_keras

from pipeline_config import PipelineConfig
from pipeline_config.finetuning import RecipeConfig
from pipeline_store.formats import TaskManifest, ValidationScore
from trained_models.architectures.architecture import architecture_of
from trained_models.downstream import metrics
from trained_models.flops import TRAINED
from training.finetuning.batches import ExampleBatches, arrays_of, order_of
from training.finetuning.losses import ClassWeights, balanced_weights, example_losses
from training.finetuning.model import Classifier, build_classifier
from training.finetuning.scoring import logits_of
from training.finetuning.step import ClassifierMetrics, make_replica_step
from training.finetuning.task_data import LABELS, Examples, Task
from training.importing.loading import InitialModel
from training.loop.objective import LoopScores
from training.loop.step import Batch, TrainLoop, compile_loop
from training.model import checkpoints
from training.model.starts import Initial
from training.optimization.optimizers import build_optimizer


@dataclass(frozen=True)
class FineTuning:
    """The :class:`training.loop.objective.Objective` of a classifier and its encoder.

    :param config: the trial's, :func:`pipeline_config.finetuning.training_config`.
    :param train: the training examples that are used.
    :param validation: examples that checkpoints are scored on; None: they are not scored.
    """

    config: PipelineConfig
    recipe: RecipeConfig
    task: Task
    train: Examples
    validation: Examples | None
    init_model: InitialModel | None

    @property
    def manifest(self) -> TaskManifest:
        """Return the task's manifest."""
        return self.task.manifest

    def build_model(self) -> tf_keras.Model:
        """Return the model with all its variables."""
        return build_classifier(self.config, self.task.outputs, self.recipe.classifier_dropout)

    def build_optimizer(self, model: tf_keras.Model) -> tf_keras.optimizers.legacy.Optimizer:
        """Return the optimizer with all its slots."""
        decay = self.recipe.layer_decay
        factors = None if decay == 1.0 else rate_factors(model, decay)
        return build_optimizer(self.config, model.trainable_variables, factors)

    def load_initial(
        self, model: Classifier, optimizer: tf_keras.optimizers.legacy.Optimizer
    ) -> Initial | None:
        """Set the encoder to ``init_model``; the classifier keeps its random weights."""
        return self.load_encoder(model)

    def load_encoder(self, model: Classifier) -> Initial | None:
        """Set a model's encoder to ``init_model``, if there is one."""
        if self.init_model is None:
            return None
        weights = checkpoints.load_encoder(model.encoder_network, self.init_model)
        return Initial(self.init_model.uri, weights)

    def make_loop(
        self,
        strategy: tf.distribute.Strategy,
        model: tf_keras.Model,
        optimizer: tf_keras.optimizers.legacy.Optimizer,
    ) -> TrainLoop[ClassifierMetrics]:
        """Return the compiled loop of steps."""
        step = make_replica_step(
            model,
            optimizer,
            self.losses(),
            self.config.optimizer.clip_norm,
        )
        return compile_loop(strategy, step, ClassifierMetrics)

    def losses(self) -> Callable[[tf.Tensor, Batch], tf.Tensor]:
        """Return the loss of every example, [R], as a function of logits and their batch."""
        kind, found = self.manifest.label_kind, self.class_weights()
        weights = None if found is None else tf.constant(found)
        return lambda logits, batch: example_losses(kind, logits, batch[LABELS], weights)

    def class_weights(self) -> ClassWeights | None:
        """Return the weights of labels; None: all count the same."""
        kind = self.manifest.label_kind
        if self.recipe.class_weights == "none" or kind == "regression":
            return None
        return balanced_weights(kind, self.train, self.task.outputs)

    def batches(self, strategy: tf.distribute.Strategy) -> ExampleBatches:
        """Return the batches that the loop takes."""
        training = self.config.training
        order = order_of(
            len(self.train),
            train_steps=training.steps,
            batch_size=training.global_batch_size,
            seed=training.random_seed,
        )
        return ExampleBatches(arrays_of(self.train), order, strategy)

    def scorer(
        self, strategy: tf.distribute.Strategy, model: tf_keras.Model
    ) -> Callable[[], ValidationScore] | None:
        """Return a function that scores the model on the validation split; None: there is none."""
        examples = self.validation
        if examples is None:
            return None
        forward = logits_of(model, strategy, self.recipe.eval_batch_size)
        kind = self.manifest.label_kind

        def score() -> ValidationScore:
            outputs, labels = forward(examples), examples.known_labels
            return ValidationScore(
                loss=float(metrics.example_losses(kind, labels, outputs).mean()),
                metrics=metrics.scores(kind, labels, outputs),
                compared_by=self.manifest.compared_by,
                examples=len(examples),
            )

        return score

    def loop_scores(self, sums: ClassifierMetrics) -> LoopScores:
        """Return the mean over examples."""
        return LoopScores(float(sums.loss_sum) / float(sums.examples))

    def step_flops(self, step: int) -> int:
        """Return the model FLOPs of a step; all are alike."""
        model, length = self.config.model, self.manifest.max_seq_length
        row = architecture_of(model).classifier_flops(model, length, self.task.outputs)
        return TRAINED * self.config.training.global_batch_size * row

    def doubt(self, loss: float) -> str | None:
        """Return a warning if the loss of a classification is far above that of guessing."""
        chance = math.log(max(self.task.outputs, 2))
        if self.manifest.label_kind == "regression" or loss <= 2 * chance:
            return None
        return (
            f"The loss {loss:.4f} is more than twice that of guessing ({chance:.4f}): this "
            "training diverged. Lower finetuning.learning_rates, or raise "
            "finetuning.warmup_fraction."
        )


def rate_factors(model: Classifier, decay: float) -> dict[str, float]:
    """Return the factor on the learning rate of every trained variable, by its name.

    1 for pooler and classifier, ``decay`` for the highest layer, and so on down: ``decay ** (n +
    1)`` for the embeddings below ``n`` layers (ELECTRA, arXiv 2003.10555, appendix).
    """
    encoder = model.encoder_network
    layers = encoder.transformer_layers
    factors = {v.name: decay ** (len(layers) + 1) for v in encoder.trainable_variables}
    for number, layer in enumerate(layers):
        factors |= {v.name: decay ** (len(layers) - number) for v in layer.trainable_variables}
    above = [*model.pooler_layer.trainable_variables, *model.classifier.trainable_variables]
    return factors | {v.name: 1.0 for v in above}
