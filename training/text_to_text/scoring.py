"""What a fine-tuned T5 model writes for the texts of its tasks, and how good that is."""

from __future__ import annotations

import json
import logging
from typing import Any

import numpy as np
import tensorflow as tf

from pipeline_store import uris
from pipeline_store.formats import TaskSplit
from trained_models.text_to_text import metrics
from trained_models.text_to_text.sizes import SOURCE
from training.model.forward import make_forward
from training.text_to_text.decoding import decode
from training.text_to_text.model import TextToText
from training.text_to_text.rows import Ids, Tokenizer
from training.text_to_text.setup import Prepared, PreparedTask, RunFolder

log = logging.getLogger("training")

SCORED = (TaskSplit.VALIDATION, TaskSplit.TEST)


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
    found: dict[str, Any] = {}
    for task in prepared.tasks:
        for split in SCORED:
            if split in task.rows:
                ids = np.asarray(forward({SOURCE: task.rows[split][SOURCE]})).astype(np.int32)
                scores = _split_scores(task, split, ids, prepared.tokenizer, folder)
                found.setdefault(task.name, {})[str(split)] = scores
    return found


def _split_scores(
    task: PreparedTask, split: TaskSplit, ids: Ids, tokenizer: Tokenizer, folder: RunFolder
) -> dict[str, Any]:
    pairs, outputs = task.texts.splits[split], tokenizer.decode(ids)
    lines = [
        {**pair._asdict(), "output": output} for pair, output in zip(pairs, outputs, strict=True)
    ]
    place = uris.join(folder.predictions, f"{task.name}-{split}.jsonl")
    content = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    uris.write(place, content.encode())
    kind = task.texts.task.target
    labels = task.texts.labels if kind == "label" else []
    found = metrics.scores(kind, outputs, [pair.target for pair in pairs], labels)
    log.info(
        "task %s on %s %s examples: %s",
        task.name,
        f"{len(pairs):,}",
        split,
        "  ".join(
            f"{name} {v.value:.4f} ({v.low:.4f} to {v.high:.4f})" for name, v in found.items()
        ),
    )
    return {
        "examples": len(pairs),
        "metrics": {name: value._asdict() for name, value in found.items()},
        "predictions": place.removeprefix(uris.join(folder.root, "")),
    }
