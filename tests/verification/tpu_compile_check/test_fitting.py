"""The search for the largest batch: right, and never endless."""

from __future__ import annotations

import pytest

from verification.tpu_compile_check.check import largest_fitting


class Memory:
    """Fits up to a number of rows, and counts how often it is asked."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.asked: list[int] = []

    def fits(self, rows: int) -> bool:
        self.asked.append(rows)
        return rows <= self.limit


@pytest.mark.parametrize("limit", [8, 256, 383, 384, 1000, 2040])
def test_exact_to_a_multiple_of_eight(limit: int) -> None:
    memory = Memory(limit)
    assert largest_fitting(memory.fits, 2048, max_compiles=20) == limit // 8 * 8
    assert len(memory.asked) == len(set(memory.asked)), "nothing is compiled twice"
    assert all(rows % 8 == 0 for rows in memory.asked)


def test_with_few_compiles_the_answer_still_fits() -> None:
    memory = Memory(383)
    assert largest_fitting(memory.fits, 2048, max_compiles=4) == 256
    assert len(memory.asked) == 4


@pytest.mark.parametrize(("limit", "compiles"), [(0, 50), (4, 50), (8, 2), (2000, 0)])
def test_nothing_found(limit: int, compiles: int) -> None:
    memory = Memory(limit)
    assert largest_fitting(memory.fits, 2048, compiles) is None
    assert len(memory.asked) <= compiles
