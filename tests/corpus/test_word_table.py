from __future__ import annotations

import numpy as np
import pytest

from corpus.tokens.word_table import WordTable


def draw(width: int, count: int, seed: int = 0) -> np.ndarray:
    """Return different keys."""
    keys = np.random.default_rng(seed).integers(1, 2**63, (width, count)).astype(np.uint64)
    keys[0] = keys[0] // np.uint64(1 << 40) * np.uint64(1 << 40) + np.arange(count, dtype=np.uint64)
    return keys


@pytest.mark.parametrize("width", [1, 4])
def test_everything_put_in_is_found_and_nothing_else(width: int) -> None:
    table = WordTable(width)
    keys = draw(width, 30_000)
    for begin in range(0, 20_000, 777):
        part = np.arange(begin, min(begin + 777, 20_000))
        table.insert(keys[:, part], part.astype(np.int32))
    assert len(table) == 20_000
    expected = np.where(np.arange(30_000) < 20_000, np.arange(30_000), -1)
    np.testing.assert_array_equal(table.find(keys), expected)


def test_table_grows_and_stays_at_most_half_full() -> None:
    table = WordTable(1)
    first = table.capacity
    keys = draw(1, first)
    table.insert(keys[:, : first // 2], np.arange(first // 2, dtype=np.int32))
    assert table.capacity == first
    table.insert(keys[:, first // 2 :], np.arange(first // 2, first, dtype=np.int32))
    assert table.capacity == 2 * first
    np.testing.assert_array_equal(table.find(keys), np.arange(first))


def test_a_key_is_compared_in_every_part() -> None:
    table = WordTable(4)
    key = np.array([[1], [2], [3], [4]], np.uint64)
    table.insert(key, np.array([7], np.int32))
    assert table.find(key).tolist() == [7]
    for part in range(4):
        other = key.copy()
        other[part] += np.uint64(1)
        assert table.find(other).tolist() == [-1]


def test_equal_keys_may_be_asked_for_at_once() -> None:
    table = WordTable(1)
    table.insert(np.array([[5]], np.uint64), np.array([9], np.int32))
    asked = np.array([[5, 6, 5, 0, 5]], np.uint64)
    assert table.find(asked).tolist() == [9, -1, 9, -1, 9]


def test_nothing_is_found_in_an_empty_table_and_nothing_may_be_asked() -> None:
    table = WordTable(4)
    assert table.find(draw(4, 10)).tolist() == [-1] * 10
    assert table.find(np.empty((4, 0), np.uint64)).tolist() == []
    table.insert(np.empty((4, 0), np.uint64), np.empty(0, np.int32))
    assert len(table) == 0


def test_colliding_keys_are_never_mixed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    # All keys begin their search at the same slot, so the table gives up after some of them.
    monkeypatch.setattr(
        WordTable, "_first_slots", lambda self, keys: np.zeros(keys.shape[1], np.int64)
    )
    table = WordTable(1)
    keys = draw(1, 200)
    table.insert(keys, np.arange(200, dtype=np.int32))
    found = table.find(keys)
    assert 32 <= (found >= 0).sum() == len(table) < 200
    np.testing.assert_array_equal(found[found >= 0], np.arange(200)[found >= 0])


def test_the_end_of_the_table_continues_at_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    table = WordTable(1)
    last = table.capacity - 1
    monkeypatch.setattr(
        WordTable, "_first_slots", lambda self, keys: np.full(keys.shape[1], last, np.int64)
    )
    keys = draw(1, 5)
    table.insert(keys, np.arange(5, dtype=np.int32))
    assert table.find(keys).tolist() == [0, 1, 2, 3, 4]
