"""The order of records: what each step reads, and from which pool."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.training.corpora import tiny_config
from trained_models.phases import Phase, phase_of, phases
from training.input.data import shares_of
from training.input.order import Order, Rows

MAIN = phases(tiny_config())[0]
CURRICULUM = {
    "masking__extra_max_seq_length": 32,
    "masking__extra_max_predictions_per_seq": 6,
    "training__extra_steps_fraction": 0.25,
    "training__extra_global_batch_size": 4,
}
# As a person would write them. Of some, such as 0.29, multiples are not what the product of floats
# is rounded down to.
FRACTIONS = st.sampled_from([0.0, 0.001, 0.1, 0.25, 0.29, 0.333333, 0.5, 0.57, 0.9])


def phase(batch: int, *, name: str = "main", first_step: int = 0) -> Phase:
    return Phase(name, first_step, 10**6, 16, 4, batch)  # type: ignore[arg-type]


def rows(order: Order, first_step: int, end_step: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the record numbers and the epochs of some steps, put together."""
    steps = tf.data.Dataset.range(first_step, end_step).map(lambda step: tuple(order.rows(step)))
    parts = list(steps.as_numpy_iterator())
    numbers, epochs = (np.concatenate(column) for column in zip(*parts, strict=True))
    return numbers, epochs


@st.composite
def orders(draw: st.DrawFn) -> Order:
    fraction = draw(FRACTIONS)
    first_step = draw(st.sampled_from([0, 17]))
    name = draw(st.sampled_from(["main", "extra"]))
    return Order(
        phase=phase(draw(st.integers(1, 24)), name=name, first_step=first_step),
        seed=draw(st.integers(0, 2**31 - 1)),
        new_records=draw(st.integers(1, 90)),
        replay_records=draw(st.integers(0, 40)),
        replay_fraction=fraction,
    )


@settings(max_examples=40, deadline=None)
@given(order=orders(), steps=st.integers(1, 12))
def test_every_epoch_of_every_pool_is_a_permutation(order: Order, steps: int) -> None:
    first = order.phase.first_step
    numbers, epochs = rows(order, first, first + steps)
    is_replay = numbers >= order.new_records
    pools = {
        order.new_records: (numbers[~is_replay], epochs[~is_replay]),
        order.replay_records: (numbers[is_replay] - order.new_records, epochs[is_replay]),
    }
    for size, (drawn, seen) in pools.items():
        for epoch, group in itertools.groupby(zip(seen, drawn, strict=True), lambda pair: pair[0]):
            records = [number for _, number in group]
            assert len(set(records)) == len(records)
            # All but the last epoch are complete.
            assert epoch == seen[-1] or sorted(records) == list(range(size))
        np.testing.assert_array_equal(seen, np.arange(len(seen)) // max(size, 1))


@settings(max_examples=40, deadline=None)
@given(order=orders(), step=st.integers(0, 40))
def test_each_step_replays_its_exact_share(order: Order, step: int) -> None:
    first = order.phase.first_step
    numbers, _ = rows(order, first + step, first + step + 1)
    written = Fraction(str(order.replay_fraction)) if order.replay_records else Fraction(0)
    before, after = (
        math.floor(number * order.phase.global_batch_size * written) for number in (step, step + 1)
    )
    assert (numbers >= order.new_records).sum() == after - before


@settings(max_examples=25, deadline=None)
@given(order=orders(), step=st.integers(0, 30), steps=st.integers(1, 5))
def test_a_step_reads_the_same_wherever_reading_begins(order: Order, step: int, steps: int) -> None:
    first, batch = order.phase.first_step, order.phase.global_batch_size
    everything = rows(order, first, first + step + steps)
    resumed = rows(order, first + step, first + step + steps)
    for whole, part in zip(everything, resumed, strict=True):
        np.testing.assert_array_equal(whole[step * batch :], part)


@settings(max_examples=12, deadline=None)
@given(order=orders(), hosts=st.integers(1, 4), local=st.integers(1, 4), share=st.integers(1, 3))
def test_hosts_and_replicas_together_read_exactly_the_global_batch(
    order: Order, hosts: int, local: int, share: int
) -> None:
    batch, first = hosts * local * share, order.phase.first_step
    order = Order(
        phase=phase(batch, first_step=first),
        seed=order.seed,
        new_records=order.new_records,
        replay_records=order.replay_records,
        replay_fraction=order.replay_fraction,
    )
    steps = tf.data.Dataset.range(first, first + 3).map(lambda step: tuple(order.rows(step)))
    by_host = [
        list(shares_of(steps, batch, lambda *drawn: drawn, context))
        for context in (tf.distribute.InputContext(hosts, h, hosts * local) for h in range(hosts))
    ]
    # A host gives to its replicas in turn.
    shares = [
        by_host[host][step * local + replica]
        for step, host, replica in itertools.product(range(3), range(hosts), range(local))
    ]
    assert {len(numbers) for numbers, _ in shares} == {share}
    for column, expected in enumerate(rows(order, first, first + 3)):
        together = np.concatenate([drawn[column].numpy() for drawn in shares])
        np.testing.assert_array_equal(together, expected)


@pytest.mark.parametrize("fraction", [0.1, 0.5])
def test_pools_do_not_depend_on_each_other(fraction: float) -> None:
    def pools(new: int, replay: int) -> tuple[list[int], list[int]]:
        order = Order(phase(8), 1, new, replay, fraction)
        numbers, _ = rows(order, 0, 40)
        is_replay = numbers >= new
        return list(numbers[~is_replay]), list(numbers[is_replay] - new)

    alone, _ = rows(Order(phase(8), 1, 50), 0, 40)
    new, old = pools(50, 30)
    assert new == list(alone[: len(new)])
    assert pools(50, 7)[0] == new
    assert pools(23, 30)[1] == old


def test_rows_go_on_with_the_epoch_that_they_begin_with() -> None:
    def drawn(first: int) -> tuple[np.ndarray, np.ndarray]:
        order = Order(phase(8), 1, 50, 20, 0.5, first_epoch=first)
        return rows(order, 0, 15)

    # 60 rows of each pool: three epochs of the replayed one, more than one of the new one.
    (numbers, epochs), (later, later_epochs) = drawn(0), drawn(2)
    is_replay = numbers >= 50
    assert sorted(set(epochs[is_replay])) == [0, 1, 2]
    assert sorted(set(later_epochs[is_replay])) == [2, 3, 4]
    # The third epoch of the one is the first of the other; new rows have other epochs, too.
    np.testing.assert_array_equal(numbers[is_replay][40:], later[is_replay][:20])
    assert sorted(set(epochs[~is_replay])) == [0, 1]
    assert sorted(set(later_epochs[~is_replay])) == [2, 3]
    assert sorted(later[~is_replay][:50]) == list(range(50))
    assert list(later[~is_replay][:50]) != list(numbers[~is_replay][:50])
    # As many as there can be.
    huge = Order(phase(8), 1, 10**9, 10**9, 0.5, first_epoch=10**8)
    assert rows(huge, 0, 1)[1].max() == 10**8


def test_new_rows_alone_go_on_with_it_too() -> None:
    def drawn(first: int) -> tuple[np.ndarray, np.ndarray]:
        return rows(Order(phase(8), 1, 50, first_epoch=first), 0, 15)

    (numbers, epochs), (later, later_epochs) = drawn(0), drawn(2)
    assert sorted(set(epochs)) == [0, 1, 2]
    assert sorted(set(later_epochs)) == [2, 3, 4]
    np.testing.assert_array_equal(numbers[100:], later[:20])


def test_rows_to_replay_are_spread_evenly() -> None:
    numbers, _ = rows(Order(phase(64), 1, 1000, 500, 0.125), 0, 2)
    by_replica = (numbers >= 1000).reshape(16, 8)
    assert (by_replica.sum(axis=1) == 1).all()


@pytest.mark.parametrize("size", [4096, 50_000])
def test_lists_of_epochs_are_shuffled_independently(size: int) -> None:
    orders = [
        Order(phase(size, name="main"), 1, size),
        Order(phase(size, name="extra"), 1, size),
    ]
    replay = Order(phase(2 * size), 1, size, size, 0.5)
    numbers, _ = rows(replay, 0, 1)
    columns = [rows(order, 0, 1)[0] for order in orders] + [numbers[numbers >= size] - size]
    correlations = np.corrcoef(np.array(columns))[np.triu_indices(3, k=1)]
    assert abs(correlations).max() < 0.1


@pytest.mark.parametrize(("batch", "records"), [(7, 50), (8, 8), (16, 5), (3, 1), (1, 4)])
def test_epochs_of_one_pool_follow_each_other(batch: int, records: int) -> None:
    numbers, epochs = rows(Order(phase(batch), 5, records, 0, 0.3), 0, 30)
    np.testing.assert_array_equal(epochs, np.arange(30 * batch) // records)
    for epoch in range(30 * batch // records):
        assert sorted(numbers[epochs == epoch]) == list(range(records))


@pytest.mark.parametrize("records", [1 << 12, 1 << 16])
def test_epochs_and_seeds_have_unrelated_orders(records: int) -> None:
    first, second = rows(Order(phase(records), 5, records), 0, 2)[0].reshape(2, records)
    other = rows(Order(phase(records), 6, records), 0, 1)[0]
    for order in (second, other, np.arange(records)):
        # Four standard deviations of what two random orders have.
        assert abs(np.corrcoef(first, order)[0, 1]) < 4 / records**0.5


def test_order_depends_on_the_seed() -> None:
    first, second = (rows(Order(phase(8), seed, 100), 3, 4)[0] for seed in (1, 2))
    assert (first != second).any()


def test_late_steps_of_large_pools_do_not_overflow() -> None:
    order = Order(phase(65536), 1, 10**10, 10**9, 0.999999)
    last: Rows = order.rows(tf.constant(2 * 10**8, tf.int64))
    begin = 2 * 10**8 * 65536
    replayed = [(begin + place) * 999_999 // 10**6 for place in (0, 65536)]
    is_replay = last.numbers.numpy() >= 10**10
    assert is_replay.sum() == replayed[1] - replayed[0]
    assert set(last.epochs.numpy()[is_replay]) == {replayed[0] // 10**9}


def test_one_phase_is_all_steps() -> None:
    assert phases(tiny_config()) == (Phase("main", 0, 12, 16, 4, 8),)


def test_long_rows_are_the_last_steps() -> None:
    config = tiny_config(**CURRICULUM)
    main, extra = phases(config)
    assert main == Phase("main", 0, 9, 16, 4, 8)
    assert extra == Phase("extra", 9, 12, 32, 6, 4)
    assert [phase_of(config, step).name for step in (0, 8, 9, 11)] == ["main"] * 2 + ["extra"] * 2


def test_prepared_long_rows_that_no_step_asks_for_are_no_phase() -> None:
    config = tiny_config(**CURRICULUM | {"training__extra_steps_fraction": 0.0})
    assert phases(config) == (MAIN,)
