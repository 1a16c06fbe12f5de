"""Writes the inputs of our fine-tuning for another program: rows, their order, the recipe.

python -m verification.text_to_text_check.rows CONFIG.toml FOLDER
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from pipeline_config.text_to_text import TextToTextConfig, parse_text_to_text
from pipeline_store.formats import TaskSplit
from trained_models.phases import Phase
from trained_models.text_to_text.sizes import SOURCE, TARGET
from training.text_to_text.mixture import Mixture
from training.text_to_text.rows import joined
from training.text_to_text.setup import prepare

THREADS = 2
_OPTIMIZER = ("learning_rate", "warmup_steps", "beta_1", "beta_2", "epsilon", "clip_norm")


def write(config: Path, folder: Path) -> None:
    """Write ``rows.npz`` and ``recipe.json``."""
    import tensorflow as tf

    recipe = parse_text_to_text(config.read_bytes(), str(config), TextToTextConfig)
    prepared = prepare(recipe, str(config.parent))
    settings = prepared.trainer_config()
    steps, size = settings.training.steps, settings.training.global_batch_size
    train = prepared.split(TaskSplit.TRAIN)
    mixture = Mixture(
        Phase("main", 0, steps, 0, 0, size),
        settings.training.random_seed,
        [len(rows[SOURCE]) for rows in train],
        [task.weight for task in recipe.tasks],
    )
    order = [mixture.rows(tf.constant(step, tf.int64)).numbers.numpy() for step in range(steps)]
    rows = joined(train)
    with (folder / "rows.npz").open("wb") as file:
        np.savez(
            file,
            allow_pickle=False,
            source=rows[SOURCE],
            target=rows[TARGET],
            order=np.stack(order),
            test=joined(prepared.split(TaskSplit.TEST))[SOURCE],
        )
    content = {name: getattr(settings.optimizer, name) for name in _OPTIMIZER}
    content |= {"random_seed": recipe.random_seed, "threads": THREADS}
    content |= {"max_target_length": recipe.max_target_length}
    (folder / "recipe.json").write_text(json.dumps(content))


if __name__ == "__main__":
    write(Path(sys.argv[1]), Path(sys.argv[2]))
