"""What is in the folder of a measurement, for both sides; nothing but the standard library."""

from __future__ import annotations

# A store with a prepared task, and the URI of its manifest.
STORE = "store"
MANIFEST = "manifest"
# Arrays by name: "<split>/<feature>", "<split>/labels", and "order/<seed>": which training examples
# each step reads, [steps, batch].
ARRAYS = "arrays.npz"
# The fine-tuning's settings, names as in RecipeConfig, and the number of labels.
RECIPE = "recipe.json"
# The encoder as a folder of Hugging Face's.
ENCODER = "hugging_face"
# Of AdamW, as our configuration has it by default.
EPSILON = 1e-6
NO_DECAY = ("bias", "LayerNorm.weight")


def rate_factor(steps: int, warmup_fraction: float, step: int) -> float:
    """Return the share of the peak rate at a step: up on a line, down to 0 on another, as ours.

    :param steps: of the whole training.
    :param step: from 0.
    """
    warmup = round(warmup_fraction * steps)
    if step < warmup:
        return (step + 1) / warmup
    return (steps - step) / (steps - warmup)
