"""Reads the compiler's own cycle estimate from the schedule it prints. Standard library only.

The TPU compiler writes ``estimated_cycles`` next to every fusion in the scheduled HLO. Their sum,
with loops counted as often as they run, is its estimate for the program; copies that overlap with
computation have no estimate.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_COMPUTATION = re.compile(r"^(ENTRY )?%(?P<name>[^\s(]+) \(")
_INSTRUCTION = re.compile(r"^\s+(ROOT )?%\S+ = ")
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
_LOOP = re.compile(r"\bwhile\(.*condition=%([^\s,]+), body=%([^\s,]+)")
_BRANCHES = re.compile(r"\bconditional\(.*branch_computations=\{([^}]*)\}")
_TRUE_FALSE = re.compile(
    r"\bconditional\(.*true_computation=%([^\s,]+), false_computation=%([^\s,]+)"
)
_CALL = re.compile(r"\b(?:call|async-start)\(.*(?:to_apply|calls)=%([^\s,]+)")


@dataclass(frozen=True)
class Estimate:
    """Cycles of one run of a program on one device.

    ``unknown_loops``: number of loops whose trip count the compiler does not know; each counts as
    one trip, so the estimate is too low by the others.
    """

    cycles: int
    unknown_loops: int


@dataclass
class _Computation:
    cycles: int = 0
    unknown_loops: int = 0
    calls: list[tuple[int, list[str]]] = field(default_factory=list)
    """(trip count, the alternative computations, of which the most expensive counts)."""


def estimate(schedule: str) -> Estimate:
    """Return the sum of the estimates of a scheduled HLO module in text form.

    :raises ValueError: the text has no entry computation, or no estimates: another compiler.
    """
    computations, entry = _parse(schedule)
    if entry is None or not any(part.cycles for part in computations.values()):
        raise ValueError(
            "The schedule has no estimated_cycles; this is not what the pinned libtpu prints."
        )
    return _total(entry, computations)


def _parse(schedule: str) -> tuple[dict[str, _Computation], str | None]:
    computations: dict[str, _Computation] = {}
    entry, current = None, _Computation()
    for line in schedule.splitlines():
        if header := _COMPUTATION.match(line):
            current = computations[header["name"]] = _Computation()
            entry = header["name"] if line.startswith("ENTRY") else entry
        elif _INSTRUCTION.match(line):
            _read(line, current)
    return computations, entry


def _read(line: str, computation: _Computation) -> None:
    if cycles := _CYCLES.search(line):
        computation.cycles += int(cycles[1])
    if loop := _LOOP.search(line):
        trips = _TRIPS.search(line)
        computation.unknown_loops += trips is None
        turns = int(trips[1]) if trips else 1
        computation.calls += [(turns, [name]) for name in loop.groups()]
    elif branches := _BRANCHES.search(line):
        computation.calls.append((1, [name.strip(" %") for name in branches[1].split(",")]))
    elif choice := _TRUE_FALSE.search(line):
        computation.calls.append((1, list(choice.groups())))
    elif call := _CALL.search(line):
        computation.calls.append((1, [call[1]]))


def _total(name: str, computations: dict[str, _Computation]) -> Estimate:
    # A fusion's own computation is not followed: its estimate is given at the fusion.
    part = computations[name]
    cycles, unknown = part.cycles, part.unknown_loops
    for turns, names in part.calls:
        found = [_total(called, computations) for called in names]
        cycles += turns * max(one.cycles for one in found)
        unknown += max(one.unknown_loops for one in found)
    return Estimate(cycles, unknown)
