"""Fine-tunes with PyTorch and transformers from each seed, on given batches in a given order.

    .venv-torch/bin/python -m verification.benchmarks.finetune.hugging_face_trials \\
        FOLDER [--threads 2]

Prints one JSON object per line: seed, accuracy on the test split, and seconds.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
import transformers

from verification.benchmarks.finetune import work
from verification.benchmarks.finetune.sides.hugging_face import adamw, examples

_ORDER = "order/"


def train(folder: Path, seed: int) -> npt.NDArray[np.float32]:
    """Train with a seed; return the logits on the test split."""
    recipe = json.loads((folder / work.RECIPE).read_text())
    with np.load(folder / work.ARRAYS) as stored:
        arrays = dict(stored)
    torch.manual_seed(seed)
    model = transformers.BertForSequenceClassification.from_pretrained(
        folder / work.ENCODER,
        num_labels=recipe["labels"],
        hidden_dropout_prob=recipe["hidden_dropout_prob"],
        attention_probs_dropout_prob=recipe["attention_probs_dropout_prob"],
        classifier_dropout=recipe["classifier_dropout"],
    ).train()
    parameters = list(model.parameters())
    optimizer = adamw(model, recipe)
    order = arrays[f"{_ORDER}{seed}"]
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, partial(work.rate_factor, len(order), recipe["warmup_fraction"])
    )
    train_split = examples(arrays, "train")
    for rows in order:
        optimizer.zero_grad(set_to_none=True)
        model(**{name: values[rows] for name, values in train_split.items()}).loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, recipe["clip_norm"])
        optimizer.step()
        schedule.step()
    return _logits(model.eval(), examples(arrays, "test"), recipe["eval_batch_size"])


def _logits(
    model: torch.nn.Module, split: dict[str, torch.Tensor], batch_size: int
) -> npt.NDArray[np.float32]:
    inputs = {name: values for name, values in split.items() if name != "labels"}
    count = len(split["labels"])
    with torch.no_grad():
        parts = [
            model(**{n: v[begin : begin + batch_size] for n, v in inputs.items()}).logits
            for begin in range(0, count, batch_size)
        ]
    logits: npt.NDArray[np.float32] = torch.cat(parts).numpy()
    return logits


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "folder", type=Path, help="what verification.benchmarks.finetune.prepare made"
    )
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args(argv)
    torch.set_num_threads(options.threads)
    with np.load(options.folder / work.ARRAYS) as stored:
        seeds = [int(n.removeprefix(_ORDER)) for n in stored.files if n.startswith(_ORDER)]
        labels = stored["test/labels"]
    for seed in seeds:
        begin = time.monotonic()
        right = train(options.folder, seed).argmax(axis=1) == labels
        seconds = round(time.monotonic() - begin, 1)
        print(json.dumps({"seed": seed, "accuracy": float(right.mean()), "seconds": seconds}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
