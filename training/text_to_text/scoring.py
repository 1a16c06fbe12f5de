"""Decodes a fine-tuned T5 model's outputs for the texts of its tasks, and scores them."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from pipeline_config.text_to_text import TextMetric
from pipeline_store import uris
from pipeline_store.formats import TaskSplit
from trained_models.text_to_text import metrics
from trained_models.text_to_text.sizes import SOURCE
from training.architectures.t5.text_to_text import TextToText
from training.model.forward import make_forward
from training.text_to_text.decoding import decode
from training.text_to_text.setup import Prepared, PreparedTask, RunFolder

log = logging.getLogger("training")

SCORED = (TaskSplit.VALIDATION, TaskSplit.TEST)


class Written(NamedTuple):
    """A model's outputs for the texts of a task's split."""

    task: PreparedTask
    split: TaskSplit
    outputs: list[str]

    @property
    def lines(self) -> Iterator[dict[str, str]]:
        """Yield the texts with their targets, their file and line, and the outputs."""
        for pair, output in zip(self.task.texts.splits[self.split], self.outputs, strict=True):
            text = {"task": self.task.name, "text": pair.text, "target": pair.target}
            yield {**text, "place": pair.place, "output": output}

    def measured(self) -> dict[TextMetric, metrics.Measured]:
        """Return the task's metrics, and log them."""
        texts = self.task.texts
        kind, pairs = texts.task.target, texts.splits[self.split]
        labels = texts.labels if kind == "label" else []
        found = metrics.scores(kind, self.outputs, [pair.target for pair in pairs], labels)
        log.info(
            "task %s on %s %s examples: %s",
            self.task.name,
            f"{len(pairs):,}",
            self.split,
            "  ".join(
                f"{name} {v.value:.4f} ({v.low:.4f} to {v.high:.4f})" for name, v in found.items()
            ),
        )
        return found


def write_texts(
    model: TextToText,
    prepared: Prepared,
    strategy: tf.distribute.Strategy,
    splits: Collection[TaskSplit] = SCORED,
) -> Iterator[Written]:
    """Yield a model's outputs for the texts of each task and split."""
    recipe = prepared.recipe

    def texts(batch: dict[str, tf.Tensor]) -> tf.Tensor:
        return decode(
            model,
            batch[SOURCE],
            recipe.max_target_length,
            beams=recipe.num_beams,
            length_penalty=recipe.length_penalty,
        )

    forward = make_forward(texts, strategy, recipe.eval_batch_size)
    for task in prepared.tasks:
        for split in splits:
            if split in task.rows:
                ids = np.asarray(forward({SOURCE: task.rows[split][SOURCE]})).astype(np.int32)
                yield Written(task, split, prepared.tokenizer.decode(ids))


def score(
    model: TextToText,
    prepared: Prepared,
    strategy: tf.distribute.Strategy,
    folder: RunFolder,
) -> dict[str, Any]:
    """Decode validation and test texts of all tasks; write predictions; return the scores.

    :returns: by task and split: number of examples, metrics with their intervals, and the file of
        the predictions, relative to the run.
    """
    found: dict[str, Any] = {}
    for written in write_texts(model, prepared, strategy):
        place = uris.join(folder.predictions, f"{written.task.name}-{written.split}.jsonl")
        uris.write(place, json_lines(written.lines))
        found.setdefault(written.task.name, {})[str(written.split)] = {
            "examples": len(written.outputs),
            "metrics": {name: value._asdict() for name, value in written.measured().items()},
            "predictions": place.removeprefix(uris.join(folder.root, "")),
        }
    return found


def json_lines(items: Iterable[dict[str, str]]) -> bytes:
    """Return objects as lines of JSON."""
    return "".join(json.dumps(item, ensure_ascii=False) + "\n" for item in items).encode()
