"""Writes a T5 with random weights and the sizes and vocabulary of another one.

python -m verification.text_to_text_check.random_start LIKE FOLDER SEED
"""

from __future__ import annotations

import sys
from pathlib import Path

from trained_models.text_to_text.sizes import describe
from training.architectures.t5.model import random_weights
from training.text_to_text.folder import vocabulary_files, write_folder


def write(like: str, folder: Path, seed: int) -> None:
    """Write the initial weights of a pretraining with this seed.

    :param like: Hugging Face folder of the other model.
    :param folder: an empty folder.
    """
    sizes = describe(like)
    values = random_weights(sizes, seed)
    write_folder(folder, sizes, values, dropout_rate=0.0, files=vocabulary_files(like))


if __name__ == "__main__":
    write(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
