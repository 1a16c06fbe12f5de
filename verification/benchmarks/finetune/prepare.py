"""Writes the input of both sides: the examples of a prepared task as arrays, and their order.

    python -m verification.benchmarks.finetune.prepare FOLDER --recipe JSON --steps N --seeds 1,2,3

The folder already has the URI of the task's manifest.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from pipeline_config.command_line import command_parser
from pipeline_config.finetuning import RecipeConfig
from pipeline_store.formats import TaskSplit
from training.finetuning.batches import order_of
from training.finetuning.lengths import steps_of
from training.finetuning.task_data import Task
from verification.benchmarks.finetune import work


def write(folder: Path, recipe: RecipeConfig, steps: int | None) -> None:
    """Write the recipe and the arrays.

    :param steps: number of steps that the order covers; None: all steps of the recipe.
    """
    task = Task.load((folder / work.MANIFEST).read_text())
    arrays: dict[str, npt.NDArray[Any]] = {}
    for split in (TaskSplit.TRAIN, TaskSplit.TEST):
        examples = task.examples(split)
        arrays |= {f"{split}/{name}": values for name, values in examples.inputs.items()}
        arrays[f"{split}/labels"] = np.asarray(examples.labels)
    count, size = len(arrays["train/labels"]), recipe.global_batch_size
    wanted = steps or steps_of(count, size, recipe.num_train_epochs)
    for seed in recipe.random_seeds:
        order = order_of(count, train_steps=wanted, batch_size=size, seed=seed)
        rows = [order.rows(tf.constant(step, tf.int64)).numbers.numpy() for step in range(wanted)]
        arrays[f"order/{seed}"] = np.stack(rows)
    np.savez(folder / work.ARRAYS, allow_pickle=False, **arrays)
    content = json.loads(recipe.model_dump_json()) | {"labels": task.outputs}
    (folder / work.RECIPE).write_text(json.dumps(content))


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = command_parser("verification.benchmarks.finetune.prepare", __doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--recipe", type=RecipeConfig.model_validate_json, required=True)
    parser.add_argument("--steps", type=int, help="default: as many as the recipe has")
    options = parser.parse_args(argv)
    write(options.folder, options.recipe, options.steps)
    return 0


if __name__ == "__main__":
    sys.exit(main())
