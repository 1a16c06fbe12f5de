"""What a row of the check is, and how it is tried: with the mends, and with one switched off."""

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
"""Harms, after which a control has shown that the attack does some without the mend."""
_most_bad = ContextVar("_most_bad", default=sys.maxsize)


class EnoughHarmError(Exception):
    """An attack has done as much harm as is wanted of it."""

    def __init__(self, tally: Tally) -> None:
        super().__init__(f"{tally.bad} of {tally.tried} tries were bad")
        self.tally = tally


@dataclass
class Tally:
    """What became of an attack: how often it was tried, did harm, and lost what was stored."""

    tried: int = 0
    bad: int = 0
    lost: int = 0
    notes: list[str] = field(default_factory=list)
    """What harm was done, the first times."""

    def add(self, *harm: str, lost: bool = False) -> None:
        """Count one try, and the harm that it did, if any.

        :raises EnoughHarmError: this is a control, which ends with it.
        """
        self.tried += 1
        self.bad += bool(harm)
        self.lost += lost
        self.notes += harm[: _TOLD - len(self.notes)]
        if self.bad >= _most_bad.get():
            raise EnoughHarmError(self)


@dataclass(frozen=True)
class Row:
    """An attack that must do no harm, and that does when a mend is switched off.

    :param attack: tries it in an empty folder, as often as it is told.
    :param times: how often.
    :param without: switches the mend off, for the control.
    :param control_times: how often the control is tried at most; it ends after three harms.
    """

    name: str
    attack: Callable[[Path, int], Tally]
    times: int
    without: Callable[[], AbstractContextManager[Any]]
    control_times: int = 1


@dataclass(frozen=True)
class Result:
    """A row's line. ``notes`` has examples of what was bad.

    :ivar seconds: that it took, with its control.
    :ivar cpu_seconds: of the processor, in this process and all that it has waited for.
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
        """Return whether nothing was bad, and the control was: a check that cannot fail is none."""
        return not self.bad and not self.lost and self.control_bad > 0 and self.tried > 0

    @property
    def line(self) -> str:
        """Return the row as JSON."""
        content = asdict(self)
        return json.dumps({name: value for name, value in content.items() if value != []})


def try_row(row: Row, folder: Path) -> Result:
    """Try an attack and its control, in an empty folder each."""
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
    """Results in a file, one a line, so that an interrupted check goes on.

    :param version: of the code that is checked; results of other code do not count.
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
