"""Runs the trials of a T5 fine-tuning: each trains all tasks of a mixture, from a seed, at a rate.

:mod:`training.finetuning.trial` does the same for classifiers.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import tensorflow as tf

from pipeline_config import FinetuningConfig, PipelineConfig
from pipeline_store import uris
from pipeline_store.formats import (
    EncoderSource,
    FileDigest,
    MetricInterval,
    PhaseName,
    TaskManifest,
    TaskSplit,
    TrainingInputs,
    TrainingResult,
    Trial,
    TrialScores,
    ValidationScore,
)
from pipeline_store.layout import StoreLayout, TrainingLayout, TrialLayout
from trained_models.checkpoint_store import CheckpointStore
from trained_models.commit import CommitGuard
from trained_models.errors import PreemptedError
from trained_models.finished import finished_training
from trained_models.text_to_text.sizes import SOURCE
from training.architectures.models import named_variables
from training.architectures.t5.text_to_text import TextToText
from training.finetuning.finished import new_outputs, result_of
from training.loop.trainer import Trainer, TrainingJob
from training.model.checkpoints import load_ours
from training.runtime.job import StopRequest
from training.runtime.phases import phase
from training.runtime.strategies import create_strategy
from training.text_to_text.objective import TextToTextTuning, make_objective
from training.text_to_text.preparation import load_prepared
from training.text_to_text.rows import joined
from training.text_to_text.scoring import json_lines, write_texts
from training.text_to_text.setup import Prepared

log = logging.getLogger("training")


def strategy_of(prepared: Prepared, config: PipelineConfig) -> tf.distribute.Strategy:
    """Return the distribution strategy of a training.

    :param config: :meth:`training.text_to_text.setup.Prepared.trainer_config`.
    :raises UserError: the devices it needs are missing, or a batch cannot be split evenly.
    """
    recipe = prepared.recipe
    return create_strategy(config, [recipe.global_batch_size, recipe.eval_batch_size])


@dataclass(frozen=True)
class Tuning:
    """A training of a T5, and the folder of its files.

    :param config: :meth:`training.text_to_text.setup.Prepared.trainer_config`.
    """

    prepared: Prepared
    config: PipelineConfig
    layout: TrainingLayout
    inputs: TrainingInputs
    store: CheckpointStore

    @classmethod
    def of(cls, prepared: Prepared, layout: TrainingLayout, guard: CommitGuard) -> Tuning:
        """Return the training of prepared tasks."""
        config = prepared.trainer_config()
        inputs = prepared.inputs(config)
        data_sha256 = hashlib.sha256(inputs.to_bytes()).hexdigest()
        store = CheckpointStore(layout, guard, config, inputs=inputs, data_sha256=data_sha256)
        return cls(prepared, config, layout, inputs, store)

    def finished(self, remedy: str) -> TrainingResult | None:
        """Return the result of the training if it is finished.

        :param remedy: what to do to train again, for the message.
        :raises UserError: it is finished, but from other inputs.
        """
        return finished_training(self.layout, self.store, remedy)

    def train(
        self, strategy: tf.distribute.Strategy, guard: CommitGuard, stop: StopRequest
    ) -> TrainingResult:
        """Train to the end.

        :raises PreemptedError: a stop was requested; a checkpoint is saved, and the same call
            resumes from it.
        """
        objective = make_objective(self.prepared, self.config)
        job = TrainingJob(self.config, self.layout, guard, objective, self.inputs, self.store)
        return Trainer(job, strategy).train(stop)

    def load(self, strategy: tf.distribute.Strategy) -> TextToText:
        """Return the trained model."""
        with strategy.scope():
            model = make_objective(self.prepared, self.config).build_model()
        load_ours(named_variables(model), self.layout.root)
        return model


@dataclass(frozen=True)
class TextTrial:
    """The inputs of a trial.

    :param manifest_uri: URI of the mixture's TaskManifest.
    :param layout: folder of the trial.
    """

    trial: Trial
    encoder: EncoderSource
    manifest_uri: str
    config: FinetuningConfig
    store: StoreLayout
    layout: TrialLayout

    def prepared(self) -> Prepared:
        """Return the prepared tasks that it is trained and scored on."""
        return load_prepared(
            self.store,
            self.manifest_uri,
            self.config,
            learning_rate=self.trial.learning_rate,
            random_seed=self.trial.random_seed,
        )


def do_trials(
    jobs: Sequence[TextTrial],
    guard: CommitGuard,
    stop: StopRequest,
    splits: Collection[TaskSplit],
    *,
    dry_run: bool,
) -> None:
    """Run trials one after the other.

    :param splits: splits to score trained models on.
    :param dry_run: check and log the trials, train and write nothing.
    :raises PreemptedError: a stop was requested; the same call continues.
    :raises JobError: see :mod:`trained_models.errors`.
    """
    strategy: tf.distribute.Strategy | None = None
    for job in jobs:
        if stop.requested:
            raise PreemptedError(f"stopped before {job.trial.trial_id}; the same command goes on.")
        tuning = Tuning.of(job.prepared(), job.layout.training, guard)
        settings = tuning.config.training
        log.info(
            "Trial %s: %d steps of %d, scored every %d.",
            job.trial.trial_id,
            settings.steps,
            settings.global_batch_size,
            settings.checkpoint_interval,
        )
        if dry_run:
            continue
        # One strategy serves all trials of a process.
        strategy = strategy or strategy_of(tuning.prepared, tuning.config)
        done = tuning.finished("Delete the trial's folder to train it again.")
        done = done or tuning.train(strategy, guard, stop)
        with phase(PhaseName.EVALUATION):
            scores = dict(_scores(job, tuning, strategy, splits))
        guard.check()
        result_of(
            done,
            trial=job.trial,
            encoder=job.encoder,
            manifest=TaskManifest.load(job.manifest_uri),
            recipe=job.config.finetuning,
            train_examples=sum(len(r[SOURCE]) for r in tuning.prepared.split(TaskSplit.TRAIN)),
            scores=scores,
        ).create(job.layout.result)


def _scores(
    job: TextTrial,
    tuning: Tuning,
    strategy: tf.distribute.Strategy,
    splits: Collection[TaskSplit],
) -> Iterator[tuple[TaskSplit, TrialScores]]:
    prepared, model = tuning.prepared, tuning.load(strategy)
    objective = make_objective(prepared, tuning.config)
    folder = job.layout.root
    files = new_outputs(job.layout)
    for split in splits:
        found = list(write_texts(model, prepared, strategy, [split]))
        if not found:
            continue
        measured = {
            f"{written.task.name}.{name}": value
            for written in found
            for name, value in written.measured().items()
        }
        told = _token_scores(objective, prepared, split, strategy, model)
        content = json_lines(line for written in found for line in written.lines)
        path = f"{files}/predictions-{split}.jsonl"
        uris.write(uris.join(folder, path), content)
        yield (
            split,
            TrialScores(
                examples=told.examples,
                loss=told.loss,
                metrics={name: value.value for name, value in measured.items()} | told.metrics,
                intervals={
                    name: MetricInterval(low=value.low, high=value.high)
                    for name, value in measured.items()
                },
                predictions=FileDigest.of(path, content),
            ),
        )


def _token_scores(
    objective: TextToTextTuning,
    prepared: Prepared,
    split: TaskSplit,
    strategy: tf.distribute.Strategy,
    model: TextToText,
) -> ValidationScore:
    rows = joined(prepared.split(split))
    score = replace(objective, validation=rows).scorer(strategy, model)
    assert score is not None  # noqa: S101 - there are rows
    return score()
