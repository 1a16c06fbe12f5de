"""Defines rows of the check and tries them: with all safeguards, and with one disabled."""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from verification.checks import Lines

_TOLD = 3
_ENOUGH = 3
"""Number of harmful tries after which a control has shown that the safeguard is needed."""
_most_bad = ContextVar("_most_bad", default=sys.maxsize)


class EnoughHarmError(Exception):
    """A control's attack has done enough harm."""

    def __init__(self, tally: Tally) -> None:
        super().__init__(f"{tally.bad} of {tally.tried} tries were bad")
        self.tally = tally


@dataclass
class Tally:
    """Counts of an attack: how often it was tried, did harm, and lost stored data."""

    tried: int = 0
    bad: int = 0
    lost: int = 0
    notes: list[str] = field(default_factory=list)
    """The first few harms."""

    def add(self, *harm: str, lost: bool = False) -> None:
        """Count one try, and the harm that it did, if any.

        :raises EnoughHarmError: this is a control that has now done enough harm.
        """
        self.tried += 1
        self.bad += bool(harm)
        self.lost += lost
        self.notes += harm[: _TOLD - len(self.notes)]
        if self.bad >= _most_bad.get():
            raise EnoughHarmError(self)


@dataclass(frozen=True)
class Row:
    """An attack that must do no harm, but does when a safeguard is disabled.

    :param attack: tries it in an empty folder a given number of times.
    :param times: number of tries.
    :param without: disables the safeguard, for the control.
    :param control_times: maximum number of tries of the control, which ends after three harms.
    """

    name: str
    attack: Callable[[Path, int], Tally]
    times: int
    without: Callable[[], AbstractContextManager[Any]]
    control_times: int = 1


@dataclass(frozen=True)
class Result:
    """The result of a row; ``notes`` has examples of harm.

    :ivar seconds: wall-clock time, with its control.
    :ivar cpu_seconds: processor time of this process and its child processes.
    """

    name: str
    tried: int
    bad: int
    lost: int
    control_bad: int
    notes: list[str]
    seconds: float = 0.0
    cpu_seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """Return whether the attack did no harm and its control did, so the check can fail."""
        return not self.bad and not self.lost and self.control_bad > 0 and self.tried > 0

    @property
    def line(self) -> str:
        """Return the row as JSON."""
        content = asdict(self)
        return json.dumps({name: value for name, value in content.items() if value != []})


def try_row(row: Row, folder: Path) -> Result:
    """Try an attack and its control, each in an empty folder."""
    (folder / "mended").mkdir(parents=True)
    (folder / "control").mkdir()
    began, cpu_began = time.monotonic(), _cpu_seconds()
    found = row.attack(folder / "mended", row.times)
    control = _control(row, folder / "control")
    return Result(
        row.name,
        found.tried,
        found.bad,
        found.lost,
        control.bad,
        found.notes,
        seconds=round(time.monotonic() - began, 1),
        cpu_seconds=round(_cpu_seconds() - cpu_began, 1),
    )


def _control(row: Row, folder: Path) -> Tally:
    before = _most_bad.set(_ENOUGH)
    try:
        with row.without():
            return row.attack(folder, row.control_times)
    except EnoughHarmError as ended:
        return ended.tally
    finally:
        _most_bad.reset(before)


def _cpu_seconds() -> float:
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


class Journal:
    """Results in a file, one per line, so that an interrupted check can resume.

    :param version: version of the checked code; results of other versions do not count.
    """

    def __init__(self, path: Path, version: str) -> None:
        self._lines = Lines(path)
        self._version = version

    def read(self) -> dict[str, Result]:
        """Return the last result of each row, by name."""
        return {
            line["result"]["name"]: Result(**line["result"])
            for line in self._lines.read()
            if line["version"] == self._version
        }

    def add(self, result: Result) -> None:
        """Append a result."""
        self._lines.add({"version": self._version, "result": asdict(result)})
