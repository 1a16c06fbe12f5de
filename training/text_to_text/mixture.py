"""Maps a step to the examples it reads of several tasks: a pure function of the step.

Each task has its share by weight of the first ``n`` rows, rounded down or up; each task is an
endless list of epochs of its own, each a permutation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import tensorflow as tf

from trained_models.phases import Phase
from training.input.order import Order, Rows, floor_product

# Weights of at most six decimal digits stay exact.
_LARGEST_DENOMINATOR = 1_000_000


@dataclass(frozen=True)
class Mixture:
    """The order of the examples of several tasks, which are stored one task after the other.

    :param phase: defines the number of rows of a step.
    :param seed: seed of all permutations.
    :param counts: number of examples by task.
    :param weights: weights of the tasks; only their ratios matter.
    """

    phase: Phase
    seed: int
    counts: Sequence[int]
    weights: Sequence[float]

    def rows(self, step: tf.Tensor) -> Rows:
        """Return the examples of a step, like :meth:`training.input.order.Order.rows`.

        Rows are assigned to one task after the other: of the rows left for it and the tasks after
        it, a task with share ``f`` gets row ``i`` if ``floor((i + 1) * f)`` is more than
        ``floor(i * f)``.

        :param step: int64 scalar, from 0.
        """
        size = self.phase.global_batch_size
        left = step * size + tf.range(size, dtype=tf.int64)
        is_open = tf.ones([size], tf.bool)
        numbers, epochs = tf.zeros([size], tf.int64), tf.zeros([size], tf.int64)
        first, weights = 0, [Fraction(str(weight)) for weight in self.weights]
        for task, count in enumerate(self.counts):
            share = weights[task] / sum(weights[task:])
            share = share.limit_denominator(_LARGEST_DENOMINATOR)
            before = floor_product(left, share)
            is_mine = is_open & (floor_product(left + 1, share) > before)
            # Each task has its own seed: tasks of equal size would otherwise have the same order.
            mine = Order(self.phase, self.seed + task, count).permuted(before, "new")
            numbers = tf.where(is_mine, first + mine.numbers, numbers)
            epochs = tf.where(is_mine, mine.epochs, epochs)
            is_open &= ~is_mine
            left -= before
            first += count
        return Rows(numbers, epochs)
