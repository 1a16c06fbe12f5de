"""Names of the files in a measurement's folder, for both sides; only the standard library."""

from __future__ import annotations

# A store with a prepared task, and the URI of its manifest.
STORE = "store"
MANIFEST = "manifest"
# Arrays by name: "<split>/<feature>", "<split>/labels", and "order/<seed>": the training examples
# that each step reads, [steps, batch].
ARRAYS = "arrays.npz"
# The fine-tuning's settings, names as in RecipeConfig, and the number of labels.
RECIPE = "recipe.json"
# The encoder as a Hugging Face folder.
ENCODER = "hugging_face"
# The epsilon of AdamW; the default of our configuration.
EPSILON = 1e-6
NO_DECAY = ("bias", "LayerNorm.weight")


def rate_factor(steps: int, warmup_fraction: float, step: int) -> float:
    """Return the share of the peak rate at a step: a linear rise, then a linear fall to 0, as ours.

    :param steps: number of steps of the whole training.
    :param step: number of the step, from 0.
    """
    warmup = round(warmup_fraction * steps)
    if step < warmup:
        return (step + 1) / warmup
    return (steps - step) / (steps - warmup)
