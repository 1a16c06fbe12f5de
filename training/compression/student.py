"""Trains a student: a classifier of fewer layers that learns from its parent's logits and labels.

Logits are learned at a temperature, as in Hinton, Vinyals and Dean (arXiv 1503.02531).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
import tf_keras

from pipeline_config.compression import CompressionConfig
from pipeline_config.finetuning import RecipeConfig
from pipeline_config.rental_schema import TpuConfig
from pipeline_config.task import TaskKind
from pipeline_store.formats import EncoderSource, TaskSplit, TrialResult, TrialScores
from pipeline_store.layout import StoreLayout, TrialLayout
from trained_models import artifacts
from trained_models.checkpoint_store import CheckpointStore
from trained_models.commit import CommitGuard
from trained_models.compression.layers import kept_layers, renamed
from trained_models.compression.records import STUDENT_SETTINGS
from trained_models.errors import UserError
from trained_models.finished import finished_training
from trained_models.loaded_weights import LoadedWeights
from training.architectures.models import named_variables
from training.finetuning.batches import ExampleBatches, arrays_of, order_of
from training.finetuning.encoder import model_settings
from training.finetuning.exporting.chosen import ChosenTrial
from training.finetuning.exporting.exporter import TextModel
from training.finetuning.finished import new_outputs, result_of
from training.finetuning.losses import example_losses
from training.finetuning.model import Classifier
from training.finetuning.objective import FineTuning
from training.finetuning.scoring import score_split
from training.finetuning.setup import TrialJob, trial_config, trial_inputs, used_examples
from training.finetuning.task_data import LABELS, Examples, Task
from training.finetuning.trained import load_trained
from training.loop.step import Batch
from training.loop.trainer import Trainer, TrainingJob
from training.model.starts import Initial
from training.runtime.job import StopRequest

TEACHER, HAS_LABEL = "teacher_logits", "has_label"


@dataclass(frozen=True)
class Distillation(FineTuning):
    """The objective of a student.

    :param parent: classifier that the student takes its layers from.
    :param parent_uri: URI of the parent's training, for the record.
    :param teacher_logits: float32 [N + U, L], first those of labeled, then of unlabeled examples.
    :param unlabelled: U examples; None: there are none.
    """

    compression: CompressionConfig
    parent: Classifier
    parent_uri: str
    parent_layers: int
    teacher_logits: npt.NDArray[np.float32]
    unlabelled: Examples | None

    def load_initial(
        self, model: Classifier, optimizer: tf_keras.optimizers.legacy.Optimizer
    ) -> Initial:
        """Set all weights to the parent's, with only the kept layers."""
        kept = kept_layers(self.parent_layers, self.compression.layers)
        source = renamed(named_variables(self.parent), kept)
        variables = named_variables(model)
        for name, variable in variables.items():
            variable.assign(source[name])
        dropped = sorted(named_variables(self.parent).keys() - variables.keys())
        weights = LoadedWeights(
            loaded=sorted(variables),
            new=[],
            dropped=dropped,
            mismatched=[],
            allowed=frozenset(dropped),
            notes=(f"Layers {', '.join(map(str, kept))} of {self.parent_layers}.",),
        )
        return Initial(self.parent_uri, weights)

    def batches(self, strategy: tf.distribute.Strategy) -> ExampleBatches:
        """Return batches of labeled and unlabeled examples, mixed, with the parent's logits."""
        training = self.config.training
        arrays: dict[str, npt.NDArray[Any]] = dict(arrays_of(self.train))
        has_label = np.ones(len(self.train), np.float32)
        if self.unlabelled is not None:
            more, count = self.unlabelled.inputs, len(self.unlabelled)
            labels = arrays[LABELS]
            nothing = np.zeros((count, *labels.shape[1:]), labels.dtype)
            arrays = {
                name: np.concatenate([values, nothing if name == LABELS else more[name]])
                for name, values in arrays.items()
            }
            has_label = np.concatenate([has_label, np.zeros(count, np.float32)])
        order = order_of(
            len(has_label),
            train_steps=training.steps,
            batch_size=training.global_batch_size,
            seed=training.random_seed,
        )
        arrays |= {TEACHER: self.teacher_logits, HAS_LABEL: has_label}
        return ExampleBatches(arrays, order, strategy)

    def losses(self) -> Callable[[tf.Tensor, Batch], tf.Tensor]:
        """Return a function to every example's loss, mixed from labels and parent's logits."""
        kind, found = self.manifest.label_kind, self.class_weights()
        weights = None if found is None else tf.constant(found)
        settings = self.compression

        def mixed(logits: tf.Tensor, batch: Batch) -> tf.Tensor:
            own = example_losses(kind, logits, batch[LABELS], weights)
            copied = copying_losses(kind, logits, batch[TEACHER], settings.temperature)
            share = settings.teacher_weight
            labelled = (1.0 - share) * own + share * copied
            return tf.where(batch[HAS_LABEL] > 0, labelled, copied)

        return mixed


def copying_losses(
    kind: TaskKind, logits: tf.Tensor, teacher: tf.Tensor, temperature: float
) -> tf.Tensor:
    """Return the loss of every example's logits against the teacher's, [R].

    It is the cross-entropy at temperature T, times T squared so that gradients keep their size;
    with several labels the mean over them; for a regression the squared difference.

    :param logits: float32 [R, L], like ``teacher``.
    """
    if kind == "regression":
        return tf.square(logits[:, 0] - teacher[:, 0])
    soft, own = teacher / temperature, logits / temperature
    if kind == "multi_label":
        each = tf.nn.sigmoid_cross_entropy_with_logits(tf.sigmoid(soft), own)
        return temperature**2 * tf.reduce_mean(each, axis=1)
    return -(temperature**2) * tf.reduce_sum(tf.nn.softmax(soft) * tf.nn.log_softmax(own), axis=1)


def train_student(
    parent: TextModel,
    job: TrialJob,
    settings: CompressionConfig,
    *,
    strategy: tf.distribute.Strategy,
    guard: CommitGuard,
    stop: StopRequest,
) -> ChosenTrial:
    """Train a student to the end and score it, skipping completed steps.

    :param job: the parent's trial with the student's sizes, recipe and folder.
    :raises PreemptedError: a stop was requested; the same call continues.
    :raises UserError: the folder has another student.
    """
    task = Task.load(job.manifest_uri)
    objective = _objective(parent, job, task, settings, strategy)
    inputs = trial_inputs(job, task, objective.config)
    own = settings.model_dump(mode="json", include=set(STUDENT_SETTINGS))
    inputs = inputs.model_copy(
        update={
            "settings": inputs.settings | {f"compression.{name}": own[name] for name in own},
            "records": inputs.records | (_predict_records(task) if settings.use_unlabeled else {}),
        }
    )
    store = CheckpointStore(
        job.layout.training,
        guard,
        objective.config,
        inputs=inputs,
        data_sha256=hashlib.sha256(inputs.to_bytes()).hexdigest(),
    )
    hint = f"Delete {job.layout.root} to train another student."
    training = finished_training(job.layout.training, store, hint)
    if training is None:
        training_job = TrainingJob(
            objective.config, job.layout.training, guard, objective, inputs, store
        )
        training = Trainer(training_job, strategy).train(stop)
    result = TrialResult.load_or_none(job.layout.result)
    if result is None:
        trained = load_trained(job.layout, job.recipe, job.encoder, job.store, strategy)
        forward = trained.forward(strategy, job.recipe.eval_batch_size)
        outputs = new_outputs(job.layout)
        scores: dict[TaskSplit, TrialScores] = {
            split: score_split(
                forward,
                task.examples(split),
                split,
                task.manifest,
                folder=job.layout.root,
                path=f"{outputs}/predictions-{split}.npz",
            )
            for split in (TaskSplit.VALIDATION, TaskSplit.TEST)
            if split in task.manifest.splits
        }
        result = result_of(
            training,
            trial=job.trial,
            encoder=job.encoder,
            manifest=task.manifest,
            recipe=job.recipe,
            train_examples=len(objective.teacher_logits),
            scores=scores,
        )
        guard.check()
        result.create(job.layout.result)
    return ChosenTrial(
        job.layout, TrialResult.load(job.layout.result), job.manifest_uri, task.manifest
    )


def student_job(
    parent: ChosenTrial, layout: TrialLayout, store: StoreLayout, settings: CompressionConfig
) -> TrialJob:
    """Return a student's trial: the parent's recipe and seed, with its own size, epochs and rate.

    :raises UserError: the student would not have fewer layers than its parent.
    """
    files = artifacts.model_files(parent.layout.training.root)
    model = model_settings(artifacts.load_inputs(files))
    if settings.layers >= model.num_hidden_layers:
        raise UserError(
            f"compression.layers: {settings.layers}, and the parent {parent.result.trial.trial_id} "
            f"has {model.num_hidden_layers}, so nothing would get smaller; give a smaller number, "
            "or make a child without the step student."
        )
    recipe = RecipeConfig.model_validate(
        parent.result.settings
        | {
            "num_train_epochs": settings.num_train_epochs,
            "learning_rates": [settings.learning_rate],
            "distribution_strategy": "one_device",
        }
    )
    trial = parent.result.trial.model_copy(update={"learning_rate": settings.learning_rate})
    uri = parent.layout.training.root.removeprefix(f"{store.root}/")
    return TrialJob(
        trial=trial,
        encoder=EncoderSource(uri=uri, version_id=None, files_sha256=files.sha256),
        manifest_uri=parent.manifest_uri,
        recipe=recipe,
        model=model.model_copy(update={"num_hidden_layers": settings.layers}),
        tpu=TpuConfig(),
        store=store,
        layout=layout,
    )


def _objective(
    parent: TextModel,
    job: TrialJob,
    task: Task,
    settings: CompressionConfig,
    strategy: tf.distribute.Strategy,
) -> Distillation:
    train = used_examples(task, job.recipe, job.trial.random_seed)
    unlabelled = unlabelled_examples(task) if settings.use_unlabeled else None
    forward = parent.trained.forward(strategy, job.recipe.eval_batch_size)
    logits = [forward(one) for one in (train, unlabelled) if one is not None]
    has_validation = TaskSplit.VALIDATION in task.manifest.splits
    model = parent.trained.model
    if not isinstance(model, Classifier):
        raise TypeError(f"{type(model).__name__} has no layers to take")
    teacher = np.concatenate(logits)
    return Distillation(
        config=trial_config(job, len(teacher)),
        recipe=job.recipe,
        task=task,
        train=train,
        validation=task.examples(TaskSplit.VALIDATION) if has_validation else None,
        init_model=None,
        compression=settings,
        parent=model,
        parent_uri=str(job.encoder.uri),
        parent_layers=parent.trained.config.model.num_hidden_layers,
        teacher_logits=teacher,
        unlabelled=unlabelled,
    )


def unlabelled_examples(task: Task) -> Examples | None:
    """Return the examples of a task's ``predict`` files; None: there are none."""
    records = task.manifest.splits.get(TaskSplit.PREDICT)
    return None if records is None or not records.records else task.examples(TaskSplit.PREDICT)


def _predict_records(task: Task) -> dict[str, str]:
    records = task.manifest.splits.get(TaskSplit.PREDICT)
    return {} if records is None else {TaskSplit.PREDICT: records.data.sha256}
