"""Rows that other work has disturbed: measured again, then marked, and the command fails."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from verification.benchmarks import noise
from verification.benchmarks.noise import MAX_SPREAD, largest, measure, report, spread
from verification.benchmarks.results import Row

ROW = Row("a_row", 2.0, "tokens/s", "peer", 1.5, spread=MAX_SPREAD)
NOISY = replace(ROW, spread=MAX_SPREAD + 0.01)


class Rounds:
    """What a benchmark finds, from one attempt to the next."""

    def __init__(self, *found: list[Row]) -> None:
        self._found = iter(found)
        self.forgotten = 0

    def rows(self) -> Iterator[Row]:
        yield from next(self._found)

    def forget(self) -> None:
        self.forgotten += 1


def test_a_quiet_row_is_measured_once() -> None:
    rounds = Rounds([ROW, replace(ROW, name="a_share", spread=None)])
    found = measure("data", rounds.rows, rounds.forget)
    assert [(row.name, row.disturbed, row.attempts) for row in found] == [
        ("a_row", False, 1),
        ("a_share", False, 1),
    ]
    assert rounds.forgotten == 0
    assert report(found) == 0


def test_a_disturbed_row_is_measured_again_from_the_start() -> None:
    rounds = Rounds([NOISY], [replace(ROW, value=3.0)])
    (found,) = measure("train", rounds.rows, rounds.forget)
    assert (found.value, found.disturbed, found.attempts) == (3.0, False, 2)
    assert rounds.forgotten == 1


def test_a_row_that_stays_disturbed_is_marked_and_fails_the_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rounds = Rounds([NOISY], [NOISY])
    found = measure("data", rounds.rows, rounds.forget)
    assert found[0].disturbed
    assert report(found) == 1
    said = capsys.readouterr().err
    assert "a_row: disturbed" in said
    assert "quiet machine" in said


def test_the_load_is_that_before_during_and_after(monkeypatch: pytest.MonkeyPatch) -> None:
    loads = iter([1.0, 7.0, 2.5])
    monkeypatch.setattr(noise.os, "getloadavg", lambda: (next(loads), 0.0, 0.0))
    rounds = Rounds([ROW])
    (found,) = measure("data", rounds.rows, rounds.forget)
    assert (found.load.before, found.load.during, found.load.after) == (1.0, 7.0, 2.5)


def test_spread_is_the_longest_round_over_the_shortest() -> None:
    assert spread([2.0, 1.0, 3.0]) == 3.0
    assert spread([2.0]) is None
    assert largest(None, 1.5, 1.2) == 1.5
    assert largest(None) is None
