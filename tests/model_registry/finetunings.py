"""Fine-tuning runs as their tasks leave them in the store, without training anything."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from model_registry import finetuning_plans, outcomes
from pipeline_config import FinetuningConfig, load_finetuning_preset, with_overrides
from pipeline_store import identity, uris
from pipeline_store.formats import (
    CheckpointManifest,
    EncoderSource,
    FileDigest,
    FinetuningPlan,
    FinetuningReport,
    OutcomeKind,
    RunRecord,
    TaskManifest,
    TaskRecords,
    TaskSplit,
    TrainingResult,
    Trial,
    TrialResult,
)
from pipeline_store.layout import RunLayout, StoreLayout
from tests.model_registry.runs import NOW, TOKEN, sha256

TASKS = ("weather",)


def prepare(store: StoreLayout, task: str, key: str = "a" * 16) -> str:
    """Write a prepared task and return its manifest."""
    folder = store.task(task)
    uris.write(folder.description, b"")
    uris.write(uris.join(folder.preparation(key), "try-1", "train.tfrecord"), b"records")
    return write_manifest(store, task, key)


def records(count: int) -> TaskRecords:
    """Return the record of a split of so many examples."""
    digest = FileDigest(path="p", bytes=1, sha256="0" * 64)
    return TaskRecords(
        data=digest, index=digest, sources=digest, records=count, labels={}, truncated=0, tokens=0
    )


def write_manifest(store: StoreLayout, task: str, key: str = "a" * 16, **examples: int) -> str:
    """Write the commit of a prepared task and return its place.

    :param examples: by split.
    """
    uri = store.task(task).manifest(key)
    TaskManifest(
        name=task,
        key=key,
        task={},
        task_kind="classification",
        compared_by="accuracy",
        labels=["rain", "sun"],
        vocabulary_sha256="v",
        max_seq_length=128,
        inputs={},
        splits={TaskSplit(split): records(count) for split, count in examples.items()},
        dropped={},
        dead_letter=None,
        warnings=[],
    ).write(uri)
    return uri


def write_trained(run: RunLayout, trial: Trial, encoder: EncoderSource, step: int = 10) -> None:
    """Write what a finished trial leaves: a checkpoint, and the results."""
    layout = run.trial(trial.trial_id)
    data = f"weights of {trial.trial_id} in {run.root.rpartition('/')[2]}".encode()
    uris.write(uris.join(layout.training.attempt_files(TOKEN), "model.index"), data)
    path = f"attempts/{TOKEN}/model.index"
    CheckpointManifest(
        step=step,
        holder_token=TOKEN,
        prefix=f"attempts/{TOKEN}/model",
        files=[FileDigest(path=path, bytes=len(data), sha256=sha256(data))],
        config_sha256="c",
        data_sha256="d",
        random_seed=trial.random_seed,
        loss=0.5,
        tokens=1000,
        seconds=1.0,
        resumed_from=[],
        created=NOW,
    ).write(layout.training.checkpoint(step))
    TrainingResult(
        train_steps=step,
        tokens=1000,
        final_loss=0.5,
        checkpoint=f"checkpoints/{step:010d}.json",
        weights_sha256="w",
        seconds=1.0,
        resumed_from=[],
    ).write(layout.training.result)
    TrialResult(
        trial=trial,
        task_manifest_sha256="m",
        encoder=encoder,
        settings={},
        train_examples=160,
        train_steps=step,
        train_steps_total=step,
        train_loss=0.5,
        weights_sha256="w",
        resumed_from=[],
        seconds=1.0,
        examples_per_second=160.0,
        scores={},
    ).write(layout.result)
    uris.write(uris.join(layout.attempt_files("u"), "predictions-test.npz"), b"outputs")


class FinetuningRun:
    """A fine-tuning run of the model in use that is planned.

    :param tpus: that it rents.
    :param settings: by ``section.name``.
    """

    def __init__(
        self,
        store: StoreLayout,
        name: str,
        *,
        tasks: Sequence[str] = TASKS,
        key: str = "a" * 16,
        **settings: object,
    ) -> None:
        self.store = store
        self.key = identity.run_key("bert_finetuning", name)
        self.run: RunLayout = store.run(self.key)
        wanted = {"finetuning.tasks": list(tasks)} | {
            setting.replace("__", "."): value for setting, value in settings.items()
        }
        config = with_overrides(load_finetuning_preset("finetuning_smoke"), wanted)
        version = finetuning_plans.chosen_version(store, config).version_id
        self.config: FinetuningConfig = with_overrides(config, {"encoder.version": version})
        uris.write(self.run.config, self.config.to_bytes())
        RunRecord(
            run_key=self.key,
            dag_id="bert_finetuning",
            run_id=name,
            partition="",
            lineage_id=self.config.encoder.lineage_id,
            config_sha256=self.config.sha256,
            created=NOW,
        ).write(self.run.record)
        manifests = {task: prepare(store, task, key) for task in tasks}
        self.plan: FinetuningPlan = finetuning_plans.make_plan(
            store, self.run, self.config, manifests
        )
        count = len(self.plan.shares(self.config.finetuning.parallel_tpus))
        self.rentals = finetuning_plans.make_rentals(store, self.run, count)

    def train(self, step: int = 10) -> None:
        """Write a checkpoint and a result of every trial."""
        for trial in self.plan.trials:
            write_trained(self.run, trial, self.plan.models[trial.model], step)

    def end(self, created: datetime = NOW) -> None:
        """Write what the run came to, and how it ended."""
        FinetuningReport(
            run_key=self.key,
            models=self.plan.models,
            tasks=[],
            comparisons=[],
            created=created,
        ).write(self.run.training_summary)
        uris.write(self.run.training_page, b"<html>")
        for folder in self.rentals:
            outcomes.record(folder, OutcomeKind.COMPLETED, "done", written_by="report")
