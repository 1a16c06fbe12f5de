"""Computes the number of a trial's examples and steps, and its evaluation interval."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import numpy.typing as npt


def kept_rows(examples: int, fraction: float, seed: int) -> npt.NDArray[np.int64]:
    """Return the numbers of the examples to use, ascending: exactly floor(examples * fraction).

    They are the first ones of a permutation by the seed, so a larger fraction includes the examples
    of a smaller one.

    :param fraction: taken as the decimal number that it is written as: 0.29 of 100 is 29.
    """
    kept = math.floor(examples * Fraction(str(fraction)))
    return np.sort(np.random.default_rng(seed).permutation(examples)[:kept])


def steps_of(examples: int, batch_size: int, epochs: float) -> int:
    """Return the steps of a trial: enough that every example is seen in each whole epoch.

    The last batch of the last epoch is filled up with the beginning of the next one.
    """
    return max(math.ceil(examples * Fraction(str(epochs)) / batch_size), 1)


def evaluation_interval(
    examples: int, batch_size: int, evaluations_per_epoch: int, train_steps: int
) -> int:
    """Return the number of steps between scored and saved checkpoints; the last step has one.

    :param evaluations_per_epoch: 0: only the last checkpoint.
    """
    if not evaluations_per_epoch:
        return train_steps
    interval = round(examples / batch_size / evaluations_per_epoch)
    return min(max(interval, 1), train_steps)
