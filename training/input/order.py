"""Maps a step to the records it reads: a pure function, so that no position has to be saved.

There are up to two pools: new records, and with them, by ``training.replay_fraction``, records of
earlier partitions. Each pool is an endless list of epochs, each a permutation of all its records.
A batch takes the next rows of both; how many of each follows from the step alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, NamedTuple

import tensorflow as tf

from trained_models.phases import Phase

Pool = Literal["new", "replay"]

# Rounds of the cipher behind the permutation. tf.random.experimental.index_shuffle uses 4, with
# which the lists of two epochs, or of two seeds, are nearly the same; with 8 they are unrelated.
ROUNDS = 8
# The first word of the permutations' keys, of which only the lowest 8 bits count for few records.
# Each list of epochs has its own word, so it is shuffled independently of the others.
_FIRST_WORDS: dict[tuple[str, Pool], int] = {
    ("main", "new"): 498247692,
    ("main", "replay"): 0x2F6B13A9,
    ("extra", "new"): 0x61C88647,
    ("extra", "replay"): 0x1B56C4E9,
}
# Fractions of at most six decimal digits stay exact.
_LARGEST_DENOMINATOR = 1_000_000


class Rows(NamedTuple):
    """The records of one step, int64 [global_batch_size] each.

    ``numbers`` count the new records first, then the replayed ones. ``epochs`` are the number of
    earlier passes through the row's pool, starting from ``first_epoch``.
    """

    numbers: tf.Tensor
    epochs: tf.Tensor


@dataclass(frozen=True)
class Order:
    """The order of the records of one phase.

    ``new_records`` and ``replay_records`` are the sizes of the pools; without records to replay,
    all rows are new whatever ``replay_fraction`` says. ``first_epoch`` is the epoch that both begin
    with.
    """

    phase: Phase
    seed: int
    new_records: int
    replay_records: int = 0
    replay_fraction: float = 0.0
    first_epoch: int = 0

    @property
    def replay_share(self) -> Fraction:
        """Return the share of rows that are replayed, exactly as the decimal in the settings."""
        if not self.replay_records:
            return Fraction(0)
        return Fraction(str(self.replay_fraction)).limit_denominator(_LARGEST_DENOMINATOR)

    def rows(self, step: tf.Tensor) -> Rows:
        """Return the records of a step.

        Row ``i`` of the phase is replayed if ``floor((i + 1) * f)`` is more than ``floor(i * f)``.
        Thus the first ``n`` steps of ``B`` rows replay ``floor(n * B * f)`` rows, spread evenly
        over each batch and the replicas.

        :param step: int64 scalar, at least ``phase.first_step``; there is no upper limit.
        """
        batch = self.phase.global_batch_size
        row = (step - self.phase.first_step) * batch + tf.range(batch, dtype=tf.int64)
        share = self.replay_share
        replayed = floor_product(row, share)
        first = self.first_epoch
        new = self.permuted(row - replayed + first * self.new_records, "new")
        if not share:
            return new
        old = self.permuted(replayed + first * self.replay_records, "replay")
        is_replay = floor_product(row + 1, share) > replayed
        return Rows(
            numbers=tf.where(is_replay, self.new_records + old.numbers, new.numbers),
            epochs=tf.where(is_replay, old.epochs, new.epochs),
        )

    def permuted(self, positions: tf.Tensor, pool: Pool) -> Rows:
        """Return the rows at these positions of a pool's endless list of epochs.

        :param positions: int64 [N], from 0.
        """
        size = self.new_records if pool == "new" else self.replay_records
        epochs, within = positions // size, positions % size
        key = tf.constant([[_FIRST_WORDS[self.phase.name, pool], self.seed, 0]], tf.int64)
        numbers = tf.raw_ops.RandomIndexShuffle(
            index=within,
            seed=key + epochs[:, tf.newaxis] * tf.constant([[0, 0, 1]], tf.int64),
            max_index=tf.constant(size - 1, tf.int64),
            rounds=ROUNDS,
        )
        return Rows(tf.ensure_shape(numbers, positions.shape), epochs)


def floor_product(rows: tf.Tensor, share: Fraction) -> tf.Tensor:
    """Return ``floor(rows * share)``, without the overflow of the plain product."""
    whole, rest = rows // share.denominator, rows % share.denominator
    return whole * share.numerator + rest * share.numerator // share.denominator
