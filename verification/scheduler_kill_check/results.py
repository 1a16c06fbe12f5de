"""Results of the kills: stored while the check runs, and judged at the end."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from verification.checks import Lines

LIMIT_SECONDS = 90.0
"""Maximum time after the kill for which a run may stand still and a TPU be idle."""
PROMOTED = "promoted"
FROZEN, BROKEN = "frozen", "broken"
Key = tuple[str, int, bool]


@dataclass(frozen=True)
class Result:
    """The result of one run whose scheduler was killed. Durations are seconds."""

    run_id: str | None
    """None: the trial broke off."""
    moment: str
    seed: int
    mended: bool
    delay: float
    """From the beginning of the moment to the kill, as drawn by the seed."""
    held_runs: bool
    """Whether the scheduler held rows of runs when it was killed."""
    interrupted: list[str]
    """Tasks that were queued or running at the kill."""
    decided_seconds: float | None
    """From the kill until a scheduler had processed the run again; None: given up."""
    resumed_seconds: float | None
    """From the kill until, in addition, all interrupted tasks had continued; None: given up."""
    idle_seconds: float
    """Longest time for which a ready TPU was idle."""
    state: str
    """Final state of the run; ``frozen`` if the check had to end it, ``broken`` if the check broke
    off before the end."""
    outcome: str | None
    nodes_left: int
    problems: list[str] = field(default_factory=list)

    @property
    def key(self) -> Key:
        """Return the key of the kill: moment, seed, and whether the safeguards were on."""
        return self.moment, self.seed, self.mended

    @property
    def frozen(self) -> bool:
        """Return whether no scheduler processed the run within the limit, or it never ended."""
        if self.state == BROKEN:
            return False
        looked_at = self.decided_seconds is not None and self.decided_seconds <= LIMIT_SECONDS
        return not looked_at or self.state == FROZEN

    @property
    def passed(self) -> bool:
        """Return whether there are no problems."""
        return not self.problems


def problems(
    *, resumed: float | None, idle: float, state: str, outcome: str | None, nodes_left: int
) -> list[str]:
    """Return the problems of a disturbed run; see :class:`Result`."""
    found = []
    if resumed is None or resumed > LIMIT_SECONDS:
        when = "did not" if resumed is None else f"took {resumed:.0f} s to"
        found.append(f"the run {when} go on; {LIMIT_SECONDS:.0f} s are allowed")
    if idle > LIMIT_SECONDS:
        found.append(f"a TPU had nothing to do for {idle:.0f} s")
    if (state, outcome) != ("success", PROMOTED):
        found.append(f"the run is {state} with outcome {outcome}, not success and {PROMOTED}")
    if nodes_left:
        found.append(f"{nodes_left} TPUs are left")
    return found


def broken_off(moment: str, seed: int, *, mended: bool, delay: float, error: Exception) -> Result:
    """Return the result of a trial that broke off, which counts as failed."""
    return Result(
        run_id=None,
        moment=moment,
        seed=seed,
        mended=mended,
        delay=delay,
        held_runs=False,
        interrupted=[],
        decided_seconds=None,
        resumed_seconds=None,
        idle_seconds=0.0,
        state=BROKEN,
        outcome=None,
        nodes_left=0,
        problems=[f"the check broke off: {type(error).__name__}: {error}"],
    )


class Journal:
    """Results in a file, one per line, so that an interrupted check can resume.

    All are kept; only those of one version of the code are read.

    :param version: version of the checked code.
    """

    def __init__(self, path: Path, version: str) -> None:
        self._file = Lines(path)
        self._version = version

    def read(self) -> list[Result]:
        """Return the results of this version, oldest first; a kill can have several."""
        return [Result(**line) for version, line in self._lines() if version == self._version]

    def others(self) -> int:
        """Return the number of results of other versions."""
        return sum(version != self._version for version, _ in self._lines())

    def add(self, result: Result) -> None:
        """Append a result."""
        self._file.add({"version": self._version, **asdict(result)})

    def _lines(self) -> Iterator[tuple[str | None, dict[str, Any]]]:
        """Yield the version of each line, if it has one, and the rest."""
        for line in self._file.read():
            yield line.pop("version", None), line


def to_do(wanted: Iterable[Key], results: Iterable[Result]) -> list[Key]:
    """Return the kills that have no result, or whose last try did not pass."""
    last = {one.key: one for one in results}
    return [key for key in wanted if key not in last or not last[key].passed]


def summary(results: Iterable[Result], **more: Any) -> dict[str, Any]:
    """Return the numbers that show whether runs continue.

    Each try counts as a separate kill: a failure is reported even if a later try passed.
    """
    results = list(results)
    resumed = [one.resumed_seconds for one in results if one.resumed_seconds is not None]
    return {
        "kills": len(results),
        "held_runs": sum(one.held_runs for one in results),
        "frozen": sum(one.frozen for one in results),
        "resumed_median_seconds": round(statistics.median(resumed), 1) if resumed else None,
        "resumed_max_seconds": round(max(resumed), 1) if resumed else None,
        "idle_max_seconds": round(max((one.idle_seconds for one in results), default=0.0), 1),
        "nodes_left": sum(one.nodes_left for one in results),
        # Each once, in the order of their first failures.
        "failed": list(
            dict.fromkeys(f"{one.moment}/{one.seed}" for one in results if not one.passed)
        ),
        **more,
    }
