"""The file of results: a line of JSON for the settings, then one for each measured model.

Only whole lines are appended to it, so that a killed sweep can resume from it.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

from verification.benchmarks.update_sweep.grid import Arm, Cell

START = "start"
"""The model from which all cells start, measured without training."""
DOMAIN_LOSS, OLD_LOSS, RECALL, ACCURACY = "domain loss", "old-text loss", "recall@1", "accuracy"
LOSSES = {DOMAIN_LOSS, OLD_LOSS}
"""Measures for which less is better; the others are shares, for which more is better."""

Settings = dict[str, Any]


class ResultsError(ValueError):
    """An error: the file is from another sweep, is in use, or is not a file of results."""


@dataclass(frozen=True)
class Measured:
    """One measure of a model, by held-out document or test example, [N].

    For ``losses``, less is better: sums over a document's masked tokens in nats, or 1 for an item
    that was not found or not answered correctly; ``weights`` are the numbers of tokens, or 1.
    """

    losses: list[float]
    weights: list[float]


Measures = dict[str, Measured]


@dataclass(frozen=True)
class Row:
    """A measured model; ``cell`` is None for the start."""

    cell: Cell | None
    measures: Measures
    seconds: float = 0.0

    @property
    def name(self) -> str:
        """Return the cell's name."""
        return START if self.cell is None else self.cell.name

    @property
    def seed(self) -> int | None:
        """Return the cell's seed."""
        return None if self.cell is None else self.cell.seed

    def value(self, measure: str) -> float:
        """Return a mean loss, or the share of items that were found or answered correctly."""
        one = self.measures[measure]
        mean = sum(one.losses) / sum(one.weights)
        return mean if measure in LOSSES else 1 - mean

    @property
    def values(self) -> dict[str, float]:
        """Return all values, rounded for readers."""
        return {name: round(self.value(name), 4) for name in self.measures}

    def as_line(self) -> str:
        """Return the row as a line of JSON."""
        found: dict[str, Any] = {"name": self.name, "seconds": round(self.seconds, 1)}
        if self.cell is not None:
            found |= {"arm": asdict(self.cell.arm), "seed": self.cell.seed}
        found["values"] = self.values
        found["measures"] = {name: asdict(one) for name, one in self.measures.items()}
        return json.dumps(found)

    @classmethod
    def of_line(cls, line: str) -> Row:
        """Return the row of a line that :meth:`as_line` made."""
        found = json.loads(line)
        cell = Cell(Arm(**found["arm"]), found["seed"]) if "arm" in found else None
        measures = {name: Measured(**one) for name, one in found["measures"].items()}
        return cls(cell, measures, found["seconds"])


class Results:
    """An open file of results, to which no other process appends."""

    def __init__(self, file: TextIO, rows: list[Row]) -> None:
        """Use an open file and the rows that it has."""
        self._file = file
        self.rows = {row.name: row for row in rows}

    def add(self, row: Row) -> None:
        """Write a result durably, so that it survives a power failure."""
        _write(self._file, row.as_line())
        self.rows[row.name] = row


def read(path: Path) -> tuple[Settings, list[Row]]:
    """Return the settings and the results.

    A last line that a kill cut off is left out.

    :raises ResultsError: the file is not from a sweep.
    :raises FileNotFoundError: there is no file.
    """
    whole, _, _ = path.read_text().rpartition("\n")
    try:
        first, *others = whole.split("\n")
        return json.loads(first)["settings"], [Row.of_line(line) for line in others]
    except (ValueError, KeyError, TypeError) as error:
        raise ResultsError(
            f"{path} is no file of a sweep's results ({error!r}). Name another --state-dir."
        ) from error


@contextmanager
def opened(path: Path, settings: Settings) -> Iterator[Results]:
    """Yield the results of a file opened for appending; create it if it is missing.

    :raises ResultsError: it has other settings, or another process appends to it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ResultsError(f"{path} is in use: a sweep that adds to it is running.") from error
        whole, _, _ = path.read_bytes().rpartition(b"\n")
        os.ftruncate(file.fileno(), len(whole) + bool(whole))
        if not whole:
            _write(file, json.dumps({"settings": settings}))
        found, rows = read(path)
        # As JSON returns it, where a tuple is a list.
        _require_same(path, found, json.loads(json.dumps(settings)))
        yield Results(file, rows)


def _write(file: TextIO, line: str) -> None:
    file.write(line + "\n")
    file.flush()
    os.fsync(file.fileno())


def _require_same(path: Path, found: Settings, asked: Settings) -> None:
    differing = [
        f"{name} is {found.get(name)} there and {asked.get(name)} now"
        for name in sorted(found.keys() | asked.keys())
        if found.get(name) != asked.get(name)
    ]
    if differing:
        raise ResultsError(
            f"{path} has results of other settings, which cannot be compared with new ones: "
            f"{'; '.join(differing)}. Name another --state-dir."
        )
