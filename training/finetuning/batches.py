"""Batches of examples that are in memory, as a function of seed and step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import tensorflow as tf

from trained_models.phases import Phase
from training.finetuning.task_data import LABELS, Examples
from training.input.data import Arrays, as_tensors, distribute
from training.input.order import Order, Rows


class StepOrder(Protocol):
    """The examples that each step reads; :class:`training.input.order.Order` is one."""

    @property
    def phase(self) -> Phase:
        """Return the phase, with the rows of a step and the last step."""
        ...

    def rows(self, step: tf.Tensor) -> Rows:
        """Return the examples of a step."""
        ...


def order_of(examples: int, *, train_steps: int, batch_size: int, seed: int) -> Order:
    """Return the order of examples: an endless list of epochs, each a permutation.

    A batch takes the next examples, across the end of an epoch if need be: every step has
    batch_size examples, and after ``n`` epochs' worth of steps each was seen at least ``n`` times.
    """
    phase = Phase("main", 0, train_steps, 0, 0, batch_size)
    return Order(phase, seed, examples)


class ExampleBatches:
    """The batches of a training, which a loop of steps takes one after the other.

    :param arrays: arrays of the examples, [N, ...] each.
    """

    def __init__(self, arrays: Arrays, order: StepOrder, strategy: tf.distribute.Strategy) -> None:
        self._arrays = arrays
        self._order = order
        self._strategy = strategy
        self._next: tuple[int, int] | None = None
        self._iterator: Iterator[Any] = iter(())

    def take(self, step: int, steps: int, skipped: int = 0) -> Iterator[Any]:
        """Return an iterator whose next batches are those of the given steps.

        The caller takes all of them.

        :param step: the first step.
        :param steps: number of steps.
        :param skipped: number of steps whose examples are skipped.
        """
        if self._next != (step, skipped):
            self._iterator = iter(self._dataset(step, skipped))
        self._next = (step + steps, skipped)
        return self._iterator

    def _dataset(self, first_step: int, skipped: int) -> Any:
        phase = self._order.phase
        arrays = as_tensors(self._arrays)

        def rows_of(step: tf.Tensor) -> tuple[tf.Tensor]:
            return (self._order.rows(step + skipped).numbers,)

        def read(numbers: tf.Tensor) -> tuple[dict[str, tf.Tensor]]:
            return ({name: tf.gather(values, numbers) for name, values in arrays.items()},)

        steps = tf.data.Dataset.range(first_step, phase.end_step).map(rows_of)
        return distribute(
            steps, phase.global_batch_size, read, self._strategy, is_read_to_the_end=False
        )


def arrays_of(examples: Examples) -> Arrays:
    """Return inputs and labels by name."""
    labels = {} if examples.labels is None else {LABELS: examples.labels}
    return examples.inputs | labels
