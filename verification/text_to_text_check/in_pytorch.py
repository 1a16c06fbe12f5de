"""Fine-tunes a T5 folder with PyTorch and transformers, on given rows in a given order.

``python in_pytorch.py FOLDER ROWS.npz RECIPE.json IDS.npy`` runs in an environment that has PyTorch
but nothing of this project. It writes the greedy ids of the test texts, [N, T], and prints the
seconds that the training took, and the loss of its last step.
"""

from __future__ import annotations

import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import T5ForConditionalGeneration

_PAD = 0
_NO_TARGET = -100
_ROWS = 128

Arrays = dict[str, npt.NDArray[Any]]


def rate_factor(steps: int, warmup: int, step: int) -> float:
    """Return the share of the peak rate at a step: linear warm-up, then linear decay to 0.

    :param step: counted from 0.
    """
    if step < warmup:
        return (step + 1) / warmup
    return (steps - step) / (steps - warmup)


def train(model: T5ForConditionalGeneration, rows: Arrays, recipe: dict[str, Any]) -> float:
    """Train a model on the batches of ``order``, [steps, batch]; return the last one's loss."""
    parameters = list(model.parameters())
    optimizer = torch.optim.Adam(
        parameters,
        lr=recipe["learning_rate"],
        betas=(recipe["beta_1"], recipe["beta_2"]),
        eps=recipe["epsilon"],
    )
    order = rows["order"]
    factor = partial(rate_factor, len(order), recipe["warmup_steps"])
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    loss = torch.tensor(torch.nan)
    for batch in order:
        source = torch.tensor(rows["source"][batch]).long()
        target = torch.tensor(rows["target"][batch]).long()
        optimizer.zero_grad(set_to_none=True)
        labels = target.masked_fill(target == _PAD, _NO_TARGET)
        mask = (source != _PAD).long()
        loss = model(input_ids=source, attention_mask=mask, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, recipe["clip_norm"])
        optimizer.step()
        schedule.step()
    return loss.item()


def greedy(
    model: T5ForConditionalGeneration, source: npt.NDArray[Any], longest: int
) -> npt.NDArray[np.int32]:
    """Return the ids that the model generates greedily for texts, [N, longest]."""
    ids = np.zeros((len(source), longest), np.int32)
    for begin in range(0, len(source), _ROWS):
        rows = slice(begin, begin + _ROWS)
        texts = torch.tensor(source[rows]).long()
        part = model.generate(
            input_ids=texts,
            attention_mask=(texts != _PAD).long(),
            max_new_tokens=longest,
            num_beams=1,
            do_sample=False,
        ).numpy()[:, 1:]
        ids[rows, : part.shape[1]] = part
    return ids


def main() -> None:
    """Train, and write the generated ids."""
    folder, stored, settings, output = map(Path, sys.argv[1:])
    with np.load(stored) as found:
        rows = dict(found)
    recipe = json.loads(settings.read_text())
    torch.manual_seed(recipe["random_seed"])
    torch.set_num_threads(recipe["threads"])
    model = T5ForConditionalGeneration.from_pretrained(folder, dropout_rate=0.0).train()
    began = time.monotonic()
    loss = train(model, rows, recipe)
    print(json.dumps({"seconds": round(time.monotonic() - began, 1), "loss": loss}))
    with torch.no_grad():
        np.save(output, greedy(model.eval(), rows["test"], recipe["max_target_length"]))


if __name__ == "__main__":
    main()
