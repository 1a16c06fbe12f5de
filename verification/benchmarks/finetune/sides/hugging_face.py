"""Trains Hugging Face's BertForSequenceClassification in PyTorch, with PyTorch's fused AdamW."""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from typing import Any

import numpy as np
import torch
import transformers

from verification.benchmarks.finetune import work
from verification.benchmarks.train.shapes import SHAPES, VOCABULARY_SIZE
from verification.benchmarks.train.sides import serving
from verification.benchmarks.train.sides.hugging_face import profiled


class HuggingFace:
    """A classifier, its optimizer, and batches in memory."""

    def __init__(self, options: argparse.Namespace) -> None:
        torch.set_num_threads(options.threads)
        torch.manual_seed(1)
        recipe = json.loads((options.work / work.RECIPE).read_text())
        size = SHAPES[options.shape]
        self._model = transformers.BertForSequenceClassification(
            transformers.BertConfig(
                vocab_size=VOCABULARY_SIZE,
                hidden_size=size.hidden,
                num_hidden_layers=size.layers,
                num_attention_heads=size.heads,
                intermediate_size=size.inner,
                hidden_dropout_prob=options.dropout,
                attention_probs_dropout_prob=options.dropout,
                classifier_dropout=options.dropout,
                num_labels=recipe["labels"],
            )
        ).train()
        self._clip_norm = recipe["clip_norm"]
        self._parameters = list(self._model.parameters())
        self._optimizer = adamw(self._model, recipe)
        self._loss = torch.compile(self._cross_entropy) if options.compile else self._cross_entropy
        self._batches = itertools.cycle(_batches(options))
        self.about: dict[str, Any] = {
            "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
            "parameters": sum(p.numel() for p in self._parameters),
        }

    def run(self, steps: int) -> dict[str, Any]:
        """Train; return the loss of the last step."""
        for _ in range(steps):
            self._optimizer.zero_grad(set_to_none=True)
            loss = self._loss(next(self._batches))
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self._parameters, self._clip_norm)
            self._optimizer.step()
        return {"loss": loss.item()}

    def _cross_entropy(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        return self._model(**batch).loss

    def profile(self, steps: int) -> dict[str, float]:
        """Return the milliseconds of a step by PyTorch operator, without those it calls."""
        return profiled(self.run, steps)


def adamw(model: torch.nn.Module, recipe: dict[str, Any]) -> torch.optim.Optimizer:
    """Return the optimizer; biases and LayerNorm have no weight decay."""
    named = list(model.named_parameters())
    groups = [
        {
            "params": [p for name, p in named if not name.endswith(work.NO_DECAY)],
            "weight_decay": recipe["weight_decay_rate"],
        },
        {"params": [p for name, p in named if name.endswith(work.NO_DECAY)], "weight_decay": 0.0},
    ]
    (rate,) = recipe["learning_rates"]
    return torch.optim.AdamW(groups, lr=rate, eps=work.EPSILON, fused=True)


def examples(arrays: dict[str, Any], split: str) -> dict[str, torch.Tensor]:
    """Return a split as inputs of the model."""
    names = {
        "input_ids": "input_word_ids",
        "attention_mask": "input_mask",
        "token_type_ids": "input_type_ids",
        "labels": "labels",
    }
    return {
        name: torch.from_numpy(arrays[f"{split}/{ours}"].astype(np.int64))
        for name, ours in names.items()
    }


def _batches(options: argparse.Namespace) -> list[dict[str, torch.Tensor]]:
    with np.load(options.work / work.ARRAYS) as stored:
        arrays = dict(stored)
    train = examples(arrays, "train")
    (order,) = [value for name, value in arrays.items() if name.startswith("order/")]
    return [{name: value[rows] for name, value in train.items()} for rows in order]


if __name__ == "__main__":
    sys.exit(serving.main(HuggingFace))
