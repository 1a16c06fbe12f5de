"""The recipe of the steps that are timed."""

from __future__ import annotations

from pipeline_config.finetuning import RecipeConfig
from verification.benchmarks.train.shapes import LENGTH, ROWS


def speed_recipe(dropout: float) -> RecipeConfig:
    """Return the recipe; what is not named here is the default."""
    return RecipeConfig(
        max_seq_length=LENGTH,
        global_batch_size=ROWS,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        classifier_dropout=dropout,
        distribution_strategy="one_device",
    )
