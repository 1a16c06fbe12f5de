"""The shape of the models, and how they are pretrained and fine-tuned."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from local.demo.tasks.modules import Use
from verification.text_to_text_check.texts import FIRST_LINE, PACKAGE, RESTORE, TextTask

SHAPE = "t5_tiny"
"""T5 1.0 with ``d_model`` 128, two layers on either side, 4 heads of 32, ``d_ff`` 512, and 4,096
tokens."""

_VOCABULARY = 4096

PRETRAINING: dict[str, Any] = {
    "model.architecture": "t5",
    "model.hidden_act": "relu",
    "model.vocab_size": _VOCABULARY,
    "model.num_attention_heads": 4,
    "model.attention_head_size": 32,
    "model.hidden_dropout_prob": 0.0,
    "vocabulary.kind": "t5",
    "vocabulary.size": _VOCABULARY,
    "vocabulary.do_lower_case": False,
    "masking.unit": "sentinel",
    "masking.packing": "full_sentences",
    "masking.max_seq_length": 64,
    # 9 hidden tokens of 62, 3 sentinels and the end.
    "masking.max_predictions_per_seq": 13,
    "optimizer.learning_rate": 3e-3,
    "promotion.export_formats": ["hugging_face"],
}
"""Overrides of the preset ``smoke``, which defines hidden size, layers and feed-forward size."""

SECONDS = 180.0
"""Maximum seconds of a training on two idle cores."""

SOURCE_TOKENS = {PACKAGE: 80, FIRST_LINE: 80, RESTORE: 40}
TARGET_TOKENS = {PACKAGE: 8, FIRST_LINE: 32, RESTORE: 40}


@dataclass(frozen=True)
class Amount:
    """The amount of training.

    :param pretraining_steps: steps of 32 rows.
    :param steps: steps of a fine-tuning, of 32 examples.
    """

    pretraining_steps: int
    steps: int


WHOLE, QUICK = Amount(2000, 1000), Amount(20, 4)
BATCH = 32
LEARNING_RATE = 1e-3


def description(task: TextTask, examples: Path, *, start: Path, seed: int, amount: Amount) -> str:
    """Return the configuration of a fine-tuning, as ``training.finetune_text_to_text`` takes it.

    Without dropout: the library transformers drops single values where T5's own code, and ours,
    drop the same ones at all positions of a row. One checkpoint, at the end, so that there is no
    selection.

    :param examples: folder of :func:`verification.text_to_text_check.texts.write`.
    :param start: Hugging Face folder.
    """
    count = len(task.splits[Use.TRAIN])
    common: dict[str, Any] = {
        "init_checkpoint": str(start),
        "max_source_length": SOURCE_TOKENS[task.name],
        "max_target_length": TARGET_TOKENS[task.name],
        # Rounded down: any more would be a step more.
        "num_train_epochs": math.floor(amount.steps * BATCH / count * 1e4) / 1e4,
        "global_batch_size": BATCH,
        "learning_rate": LEARNING_RATE,
        "random_seed": seed,
        "dropout_rate": 0.0,
        "evaluations_per_epoch": 0,
    }
    own: dict[str, Any] = {
        "name": task.name,
        "target": task.target,
        "train": str(examples / "train.jsonl"),
        "test": str(examples / "test.jsonl"),
        "validation_fraction": 0.0,
    }
    return "".join([*_lines(common), "\n[[tasks]]\n", *_lines(own)])


def _lines(settings: dict[str, Any]) -> list[str]:
    # For strings and numbers JSON's syntax is also TOML's.
    return [f"{name} = {json.dumps(value)}\n" for name, value in settings.items()]
