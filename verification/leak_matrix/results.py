"""Results of the scenarios: stored while the matrix runs, shown as a table, and summarized."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from verification.checks import Lines

MATRIX, CONTROL = "matrix", "control"


@dataclass(frozen=True)
class Result:
    """The result of one scenario."""

    id: str
    title: str
    kind: str
    """matrix or control: the kind of DAG that was tested."""
    without: str
    expected: str
    cleaned_by: str
    deletions: list[str]
    """Who deleted, in order."""
    seconds: float | None
    """From the end of the disturbance until nothing was left; None: something was left."""
    bound: float
    nodes_left: int
    state: str | None
    """The state in which the run ended."""
    problems: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Return whether everything is as the scenario expects; a control may leave anything."""
        return not self.problems


class Journal:
    """Results in a file, one per line, so that an interrupted matrix can resume."""

    def __init__(self, path: Path) -> None:
        self._lines = Lines(path)

    def read(self) -> dict[tuple[str, str, str], Result]:
        """Return the newest result of each scenario, by id, kind and the layer left out."""
        found = (Result(**line) for line in self._lines.read())
        return {(result.id, result.kind, result.without): result for result in found}

    def add(self, result: Result) -> None:
        """Append a result."""
        self._lines.add(asdict(result))


def table(results: Iterable[Result]) -> str:
    """Return the results as lines of text."""
    rows = [("SCENARIO", "CLEANED UP BY", "SECONDS", "LEFT", "RUN", "")]
    for result in results:
        name = result.id if result.kind == MATRIX else f"{result.id} (control)"
        rows.append(
            (
                name,
                result.cleaned_by,
                "-" if result.seconds is None else f"{result.seconds:.0f}",
                str(result.nodes_left),
                result.state or "-",
                result.title if result.passed else "; ".join(result.problems),
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    return "\n".join(
        " ".join(
            [*(f"{cell:<{width}}" for cell, width in zip(row[:5], widths, strict=True)), row[5]]
        ).rstrip()
        for row in rows
    )


def summary(results: Iterable[Result], **more: Any) -> dict[str, Any]:
    """Return the numbers that show whether the matrix has passed."""
    results = list(results)
    own = [result for result in results if result.kind == MATRIX]
    controls = [result for result in results if result.kind == CONTROL]
    return {
        "scenarios": len(own),
        "nodes_left": sum(result.nodes_left for result in own),
        "control_nodes_left": sum(result.nodes_left for result in controls),
        "control_scenarios": len(controls),
        "control_scenarios_that_leak": sum(1 for result in controls if result.nodes_left),
        "failed": [result.id for result in results if not result.passed],
        **more,
    }
