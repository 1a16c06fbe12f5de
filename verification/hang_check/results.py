"""Results of the trials: stored while the check runs, and counted at the end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from verification.checks import Lines

NEEDED_CONTROL_ALARMS = 25 / 30
"""Minimum share of paused trainings that count as hung with half the limits, so the check can fail.
"""


@dataclass(frozen=True)
class Result:
    """The result of one trial; ``kind`` is hang, healthy or control."""

    kind: str
    name: str
    passed: bool
    problems: list[str]
    numbers: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str]:
        """Return the key of the trial."""
        return self.kind, self.name


class Journal:
    """Results in a file, one per line, so that an interrupted check can resume.

    Only results of one version of the code, and of one factor on the limits, count.
    """

    def __init__(self, path: Path, version: str) -> None:
        self._lines = Lines(path)
        self._version = version

    def read(self) -> list[Result]:
        """Return the results, oldest first."""
        found = self._lines.read()
        return [Result(**one) for one in found if one.pop("version") == self._version]

    def add(self, result: Result) -> None:
        """Append a result."""
        self._lines.add({"version": self._version, **asdict(result)})


def summary(results: Iterable[Result]) -> dict[str, int]:
    """Return the last line of the check."""
    by_kind: dict[str, list[Result]] = {"hang": [], "healthy": [], "control": []}
    for result in {one.key: one for one in results}.values():
        by_kind[result.kind].append(result)
    return {
        "hangs": len(by_kind["hang"]),
        "found": sum(one.passed for one in by_kind["hang"]),
        "healthy_runs": len(by_kind["healthy"]),
        "false_alarms": sum(not one.passed for one in by_kind["healthy"]),
        "control_alarms": sum(one.numbers["alarms"] > 0 for one in by_kind["control"]),
    }


def has_passed(numbers: dict[str, int], controls: Sequence[Any]) -> bool:
    """Return whether the check has passed."""
    return (
        numbers["found"] == numbers["hangs"]
        and numbers["false_alarms"] == 0
        and numbers["control_alarms"] >= NEEDED_CONTROL_ALARMS * len(controls)
    )
