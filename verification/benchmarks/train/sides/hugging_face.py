"""Trains Hugging Face's BertForMaskedLM in PyTorch, as fast as possible without new kernels.

The head is applied only to the masked positions. The model's own ``forward`` would compute the
vocabulary at every position, and be half as fast. The optimizer is PyTorch's fused AdamW.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import transformers

from verification.benchmarks.train import shapes
from verification.benchmarks.train.sides import serving

_NO_DECAY = ("bias", "LayerNorm.weight")


class HuggingFace:
    """A model, its optimizer, and batches in memory."""

    def __init__(self, options: argparse.Namespace) -> None:
        torch.set_num_threads(options.threads)
        torch.manual_seed(1)
        self._model = _model(options).train()
        self._parameters = list(self._model.parameters())
        self._optimizer = _adamw(self._model)
        self._bfloat16 = options.dtype == "bfloat16"
        self._loss = (
            torch.compile(self._masked_lm_loss) if options.compile else self._masked_lm_loss
        )
        self._batches = itertools.cycle(_batches(options))
        self.about: dict[str, Any] = {
            "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
            "parameters": sum(p.numel() for p in self._parameters),
        }

    def run(self, steps: int) -> dict[str, Any]:
        """Train; return the loss of the last step."""
        for _ in range(steps):
            loss = self._step(next(self._batches))
        return {"loss": loss.item()}

    def _step(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        self._optimizer.zero_grad(set_to_none=True)
        # Autocast covers only the forward pass, as PyTorch's documentation recommends.
        with torch.autocast("cpu", torch.bfloat16, enabled=self._bfloat16):
            loss = self._loss(batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._parameters, shapes.CLIP_NORM)
        self._optimizer.step()
        return loss.detach()

    def _masked_lm_loss(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        encoded = self._model.bert(
            input_ids=batch["input_word_ids"],
            attention_mask=batch["input_mask"],
            token_type_ids=batch["input_type_ids"],
        ).last_hidden_state
        rows = torch.arange(encoded.shape[0])[:, None]
        logits = self._model.cls(encoded[rows, batch["masked_lm_positions"]])
        losses = torch.nn.functional.cross_entropy(
            logits.float().flatten(0, 1), batch["masked_lm_ids"].flatten(), reduction="none"
        )
        weights = batch["masked_lm_weights"].flatten()
        return (losses * weights).sum() / weights.sum()

    def profile(self, steps: int) -> dict[str, float]:
        """Return the milliseconds of a step by PyTorch operator, without those it calls."""
        return profiled(self.run, steps)


def profiled(run: Callable[[int], object], steps: int) -> dict[str, float]:
    """Return the milliseconds of a step by PyTorch operator, without those it calls."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities) as profiler:
        begin = time.perf_counter()
        run(steps)
        wall = time.perf_counter() - begin
    found = {
        event.key: event.self_cpu_time_total / 1e3 / steps for event in profiler.key_averages()
    }
    return {"wall clock of a step": wall * 1e3 / steps} | found


def _model(options: argparse.Namespace) -> transformers.BertForMaskedLM:
    shape = shapes.SHAPES[options.shape]
    return transformers.BertForMaskedLM(
        transformers.BertConfig(
            vocab_size=shapes.VOCABULARY_SIZE,
            hidden_size=shape.hidden,
            num_hidden_layers=shape.layers,
            num_attention_heads=shape.heads,
            intermediate_size=shape.inner,
            hidden_dropout_prob=options.dropout,
            attention_probs_dropout_prob=options.dropout,
        )
    )


def _adamw(model: transformers.BertForMaskedLM) -> torch.optim.Optimizer:
    named = list(model.named_parameters())
    decayed = [p for name, p in named if not name.endswith(_NO_DECAY)]
    others = [p for name, p in named if name.endswith(_NO_DECAY)]
    groups = [
        {"params": decayed, "weight_decay": shapes.WEIGHT_DECAY},
        {"params": others, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=shapes.LEARNING_RATE, eps=shapes.EPSILON, fused=True)


def _batches(options: argparse.Namespace) -> list[dict[str, torch.Tensor]]:
    with np.load(options.work / shapes.BATCHES) as stored:
        arrays = dict(stored)
    tensors = {
        name: torch.from_numpy(value if value.dtype == np.float32 else value.astype(np.int64))
        for name, value in arrays.items()
    }
    count = len(tensors["input_word_ids"])
    return [{name: value[number] for name, value in tensors.items()} for number in range(count)]


if __name__ == "__main__":
    sys.exit(serving.main(HuggingFace))
