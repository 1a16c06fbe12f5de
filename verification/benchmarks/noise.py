"""Detects rows that other work on the machine disturbed: measures again, then marks and fails."""

from __future__ import annotations

import datetime
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict

from rich.console import Console
from rich.table import Table

from verification.benchmarks.commands import say
from verification.benchmarks.results import Bench, Load, Result, Row, rounded, this_machine

# If rounds of the same work differ by more than this factor, they measured something else.
MAX_SPREAD = 1.5
ATTEMPTS = 2
_SECONDS_BETWEEN_LOOKS = 2.0
_COLUMNS = ("name", "value", "unit", "ratio", "best_ratio", "cpu_ratio", "spread", "peer")

Measure = Callable[[], Iterable[Row]]


def spread(seconds: Sequence[float]) -> float | None:
    """Return the ratio of the longest round to the shortest; None if there is only one."""
    return max(seconds) / min(seconds) if len(seconds) > 1 else None


def largest(*spreads: float | None) -> float | None:
    """Return the largest of the known spreads; None if none is known."""
    return max((found for found in spreads if found is not None), default=None)


def is_disturbed(row: Row) -> bool:
    """Return whether the rounds of a row spread too much for its value to mean anything."""
    return row.spread is not None and row.spread > MAX_SPREAD


class LoadWatch:
    """The load of the machine from the start of a measurement to its end."""

    def __init__(self) -> None:
        self.before = self.during = _load()

    def look(self) -> None:
        """Record the load."""
        self.during = max(self.during, _load())

    def found(self) -> Load:
        """Return the load seen until now."""
        self.look()
        return Load(before=self.before, during=self.during, after=_load())


@contextmanager
def watching() -> Iterator[LoadWatch]:
    """Yield a watch that records the load every two seconds, in a thread of this process."""
    watch, ended = LoadWatch(), threading.Event()

    def look() -> None:
        while not ended.wait(_SECONDS_BETWEEN_LOOKS):
            watch.look()

    thread = threading.Thread(target=look, daemon=True, name="load-watch")
    thread.start()
    try:
        yield watch
    finally:
        ended.set()
        thread.join()


def measure(benchmark: Bench, measure_rows: Measure, forget: Callable[[], None]) -> list[Result]:
    """Return results of rows that are measured together; measure again if one is disturbed.

    :param forget: makes the next call of ``measure_rows`` measure again.
    """
    for attempt in range(1, ATTEMPTS + 1):
        with watching() as watch:
            rows = list(measure_rows())
            load = watch.found()
        noisy = [row.name for row in rows if is_disturbed(row)]
        if not noisy or attempt == ATTEMPTS:
            break
        say(f"{', '.join(noisy)}: rounds spread by more than {MAX_SPREAD} x; measured again")
        forget()
    return [_result(benchmark, row, load, attempt) for row in rows]


def _result(benchmark: Bench, row: Row, load: Load, attempts: int) -> Result:
    return Result(
        benchmark=benchmark,
        disturbed=is_disturbed(row),
        attempts=attempts,
        load=load,
        date=datetime.datetime.now(datetime.UTC).date(),
        machine=this_machine(),
        **rounded(asdict(row)),
    )


def report(results: Iterable[Result]) -> int:
    """Print a table and the disturbed rows; return the exit status, 1 if a row is disturbed."""
    found = list(results)
    table = Table(*_COLUMNS)
    for result in found:
        cells = [getattr(result, column) for column in _COLUMNS]
        table.add_row(*("" if cell is None else str(cell) for cell in cells))
    Console(stderr=True).print(table)
    disturbed = [result for result in found if result.disturbed]
    for result in disturbed:
        say(
            f"{result.name}: disturbed, its rounds spread by {result.spread} x in "
            f"{result.attempts} attempts, at a load of up to {result.load.during}. This is no "
            "result: measure it again on a quiet machine."
        )
    return 1 if disturbed else 0


def _load() -> float:
    return round(os.getloadavg()[0], 2)
