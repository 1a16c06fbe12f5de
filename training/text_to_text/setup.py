"""Reads and checks the inputs of a T5 fine-tuning before it begins. It needs no TensorFlow."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from pydantic import JsonValue

from pipeline_config import PipelineConfig
from pipeline_config.rental_schema import TpuConfig
from pipeline_config.text_to_text import TextToTextConfig, trainer_config
from pipeline_store import uris
from pipeline_store.formats import TaskSplit, TrainingInputs
from pipeline_store.layout import StoreLayout, TrainingLayout
from trained_models.text_to_text.sizes import PAD, SOURCE, TARGET, Sizes, describe
from training.finetuning.lengths import evaluation_interval, steps_of
from training.text_to_text.rows import Rows, Tokenizer, read_sentencepiece, task_rows, trimmed
from training.text_to_text.task_text import TaskText, read_task

log = logging.getLogger("training")

# Settings that trained weights do not depend on.
_ELSEWHERE = {"tasks", "steps_per_loop", "eval_batch_size", "distribution_strategy", "num_beams"}
_ELSEWHERE |= {"length_penalty"}

SIZES, SETTINGS, TASKS = "t5.", "text_to_text.", "task."
"""Prefixes of the settings in a training's inputs: the model's sizes, the recipe, and the settings
of each task."""


@dataclass(frozen=True)
class RunFolder:
    """The folder of a fine-tuning, inside or outside of a store."""

    root: str

    @property
    def training(self) -> TrainingLayout:
        """Return the folder of checkpoints, metrics and TensorBoard events."""
        return TrainingLayout(uris.join(self.root, "training"))

    @property
    def scores(self) -> str:
        """Return the file of each task's metrics and the facts that they depend on."""
        return uris.join(self.root, "scores.json")

    @property
    def predictions(self) -> str:
        """Return the folder of JSON lines: texts with their targets and the model's outputs."""
        return uris.join(self.root, "predictions")


@dataclass(frozen=True)
class PreparedTask:
    """A task's texts, and their rows of ids."""

    texts: TaskText
    rows: dict[TaskSplit, Rows]

    @property
    def name(self) -> str:
        """Return the task's name."""
        return self.texts.task.name


@dataclass(frozen=True)
class Prepared:
    """All inputs of a training except the weights.

    :param recipe: with an absolute ``init_checkpoint``.
    :param tpu: the TPU to train on if the recipe's ``distribution_strategy`` is ``tpu``.
    """

    recipe: TextToTextConfig
    sizes: Sizes
    tokenizer: Tokenizer
    tasks: Sequence[PreparedTask]
    tpu: TpuConfig | None = None

    def split(self, split: TaskSplit) -> list[Rows]:
        """Return a split's rows of each task that has one, all of one length."""
        found = [task.rows[split] for task in self.tasks if split in task.rows]
        return trimmed(found) if found else []

    def trainer_config(self) -> PipelineConfig:
        """Return the settings of the trainer."""
        recipe = self.recipe
        examples = sum(len(rows[SOURCE]) for rows in self.split(TaskSplit.TRAIN))
        steps = steps_of(examples, recipe.global_batch_size, recipe.num_train_epochs)
        has_scores = bool(self.split(TaskSplit.VALIDATION))
        interval = evaluation_interval(
            examples,
            recipe.global_batch_size,
            recipe.evaluations_per_epoch if has_scores else 0,
            steps,
        )
        return trainer_config(
            recipe,
            train_steps=steps,
            checkpoint_interval=interval,
            has_scores=has_scores,
            tpu=self.tpu,
        )

    @property
    def warnings(self) -> list[str]:
        """Return warnings for the user to read before training."""
        return [line for task in self.tasks for line in _warnings(task, self.tokenizer)]

    @property
    def scored_sha256(self) -> str:
        """Return the hash of the rows that trained weights are scored on."""
        parts = [
            f"{task.name} {split} {_sha256(rows)}\n"
            for task in self.tasks
            for split, rows in sorted(task.rows.items())
            if split is not TaskSplit.TRAIN
        ]
        return hashlib.sha256("".join(parts).encode()).hexdigest()

    def inputs(self, config: PipelineConfig) -> TrainingInputs:
        """Return everything that the trained weights depend on, in readable form."""
        settings: dict[str, JsonValue] = {
            f"{section}.{name}": value
            for section in ("optimizer", "training")
            for name, value in config.training_settings[section].items()
        }
        own = self.recipe.model_dump(mode="json", exclude=_ELSEWHERE)
        settings |= {f"{SETTINGS}{name}": value for name, value in own.items()}
        settings |= {f"{SIZES}{name}": value for name, value in asdict(self.sizes).items()}
        of_task = {"prefix", "weight", "target", "unicode_normalization"}
        for task in self.recipe.tasks:
            learned = task.model_dump(mode="json", include=of_task)
            settings |= {f"{TASKS}{task.name}.{name}": value for name, value in learned.items()}
        records = {
            f"{task.name}/{split}": _sha256(task.rows[split])
            for task in self.tasks
            for split in (TaskSplit.TRAIN, TaskSplit.VALIDATION)
            if split in task.rows
        }
        return TrainingInputs(
            settings=settings, vocabulary_sha256=self.tokenizer.sha256, records=records
        )


def prepare(config: TextToTextConfig, folder: str) -> Prepared:
    """Read, check and tokenize all inputs; log their sizes.

    :param folder: folder of the configuration, which its paths are relative to.
    :raises UserError: model, vocabulary or files are missing or do not fit.
    :raises BadDataError: too many examples are unusable.
    """
    checkpoint = StoreLayout(folder).resolve(config.init_checkpoint)
    recipe = config.model_copy(update={"init_checkpoint": checkpoint})
    return prepare_texts(recipe, (read_task(task, folder) for task in recipe.tasks))


def prepare_texts(
    recipe: TextToTextConfig, texts: Iterable[TaskText], tpu: TpuConfig | None = None
) -> Prepared:
    """Tokenize the examples of all tasks, like :func:`prepare`.

    :param recipe: as in :class:`Prepared`.
    """
    sizes = describe(recipe.init_checkpoint)
    tokenizer = Tokenizer(read_sentencepiece(recipe.init_checkpoint), sizes)
    tasks = []
    for task in texts:
        found = PreparedTask(task, task_rows(task, recipe, tokenizer))
        _say(found)
        for line in _warnings(found, tokenizer):
            log.warning("%s", line)
        tasks.append(found)
    return Prepared(recipe, sizes, tokenizer, tasks, tpu)


def _say(task: PreparedTask) -> None:
    for split, pairs in task.texts.splits.items():
        sources, targets = (task.rows[split][name] for name in (SOURCE, TARGET))
        tokens = int((sources != PAD).sum()), int((targets != PAD).sum())
        log.info(
            "task %s: %s: %s examples, %s tokens of text and %s of targets.",
            task.name,
            split,
            f"{len(pairs):,}",
            *(f"{count:,}" for count in tokens),
        )
    for reason, count in sorted(task.texts.left_out.items()):
        log.info("task %s: %s examples are left out: %s.", task.name, f"{count:,}", reason)


def _warnings(task: PreparedTask, tokenizer: Tokenizer) -> Iterator[str]:
    for split, pairs in task.texts.splits.items():
        unwritable = sum(not tokenizer.spells(pair.target) for pair in pairs)
        if unwritable:
            yield (
                f"task {task.name}: {split}: {unwritable:,} targets have signs that the model's "
                "vocabulary cannot write, so no output can equal them."
            )


def _sha256(rows: Rows) -> str:
    digest = hashlib.sha256()
    for name in (SOURCE, TARGET):
        ids = np.ascontiguousarray(rows[name], "<i4")
        digest.update(f"{name} {ids.shape}\n".encode())
        digest.update(ids.tobytes())
    return digest.hexdigest()
