"""A model and a language so small that a run of the DAG is mostly the pipeline itself."""

from __future__ import annotations

import random
from typing import Any

from pipeline_store import uris
from pipeline_store.layout import StoreLayout

SETTINGS: dict[str, Any] = {
    "vocabulary.size": 1200,
    "model.vocab_size": 1200,
    "model.hidden_size": 32,
    "model.intermediate_size": 64,
    "model.num_hidden_layers": 1,
    "model.max_position_embeddings": 64,
    "masking.max_seq_length": 64,
    "masking.max_predictions_per_seq": 10,
    "optimizer.learning_rate": 5e-3,
    "optimizer.warmup_steps": 5,
    "training.train_steps": 60,
    "training.global_batch_size": 16,
    "training.steps_per_loop": 5,
    "training.checkpoint_interval": 10,
    "evaluation.max_records_per_set": 300,
    "promotion.min_documents": 5,
    "tpu.delete_grace_seconds": 3.0,
}
"""Laid over the preset ``smoke``: some seconds of training."""

# What a word can be follows from its place, and what it is from the noun before.
NOUNS = [f"{start}{end}" for start in "bdfglmnprst" for end in ("ako", "emu", "ila", "oro")]


def write_partition(
    store: StoreLayout, partition: str, *, seed: int, documents: int = 400, dialect: int = 0
) -> None:
    """Write a partition of two text files below ``corpus/``.

    :param seed: of the sentences.
    :param dialect: which nouns and verbs there are. A model that was trained on a dialect is always
        better at it than one that was not.
    """
    draw = random.Random(seed)  # noqa: S311 - no secret
    nouns = _nouns(dialect)
    texts = [" ".join(_sentence(draw, nouns) for _ in range(8)) for _ in range(documents)]
    half = documents // 2
    for name, chosen in (("a.txt", texts[:half]), ("b.txt", texts[half:])):
        # A blank line separates documents.
        uris.write(uris.join(store.root, "corpus", partition, name), "\n\n".join(chosen).encode())


def _nouns(dialect: int) -> list[str]:
    if not dialect:
        return NOUNS
    draw = random.Random(dialect)  # noqa: S311
    # The letters are the same in all dialects, so that no vocabulary lacks one.
    parts = ("bdfglmnprst", "aeiou", "klmr", "aeiou")
    return ["".join(draw.choice(letters) for letters in parts) for _ in NOUNS]


def _sentence(draw: random.Random, nouns: list[str]) -> str:
    first, second = (draw.choice(nouns) for _ in range(2))
    return f"the {first} {_verb(first)} every {second} that {_verb(second)}."


def _verb(noun: str) -> str:
    return f"{noun[::-1]}es"
