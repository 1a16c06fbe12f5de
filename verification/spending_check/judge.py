"""The rules that a bill must obey, and forgeries that break them on purpose."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pipeline_store.formats import SpentOn
from verification.chaos.audit import TraceEvent
from verification.spending_check.events import (
    Process,
    only_loops,
    overlap,
    processes,
    span,
    step_seconds,
    unfinished_saves,
)

Json = dict[str, Any]

SUM_TOLERANCE = 0.005
UNATTRIBUTED = 0.02
SHARE_TOLERANCE = 0.01
"""Tolerance as a share of the training's time: one percentage point."""
CENT = 0.005
INTERVAL_SHARE = 0.1
"""One checkpoint interval as a share of a training's steps."""
SEEN = 1.5 * SHARE_TOLERANCE
"""Share of a training that must be detected if it is counted twice, whatever the other errors."""
NOTICE_SECONDS = 0.5
"""Time for which a trainer that was killed in a step may be dead before its agent reports it."""

COMPARED = {
    SpentOn.STEP: "step",
    SpentOn.LOST_STEPS: "wasted_progress_from_disruption",
    SpentOn.SAVE: "unproductive_checkpoint_save_time",
    SpentOn.RESTORE: "unproductive_checkpoint_restore_time",
    SpentOn.COMPILE: "program_startup",
    SpentOn.PROGRAM_STARTUP: "training_prep",
}
"""Our names and the calculator's. It calls the time before a process's first step preparation, and
the extra time of the first step startup."""


@dataclass
class Verdict:
    """The problems of a bill, and its deviations."""

    problems: list[str] = field(default_factory=list)
    numbers: Json = field(default_factory=dict)

    def expect(self, holds: bool, problem: str) -> None:
        """Record a problem unless a condition holds."""
        if not holds:
            self.problems.append(problem)


def training_of(evidence: Json) -> list[Process]:
    """Return the starts of the trainer, as far as the store can know them."""
    return processes(TraceEvent(**event) for event in evidence["trace"])


def judge(evidence: Json, oracle: Json) -> Verdict:
    """Judge a run's bill.

    :param oracle: the calculator's seconds by name for the same training.
    """
    verdict = Verdict()
    _judge_sums(evidence, verdict)
    _judge_totals(evidence, verdict)
    _judge_shares(evidence, oracle, verdict)
    return verdict


def _judge_sums(evidence: Json, verdict: Verdict) -> None:
    worst = 0.0
    for entry in evidence["entries"]:
        off = abs(sum(entry["seconds"].values()) - entry["billed_seconds"])
        share = off / entry["billed_seconds"]
        worst = max(worst, share)
        name = f"g{entry['generation']}-a{entry['attempt']}"
        verdict.expect(
            share <= SUM_TOLERANCE,
            f"{name}: the phases sum up to {off:.2f} s more or less than is billed",
        )
    unknown = _chip_seconds(evidence, SpentOn.UNATTRIBUTED) / max(_billed(evidence), 1e-9)
    verdict.expect(unknown <= UNATTRIBUTED, f"{unknown:.1%} of the bill are unattributed")
    verdict.numbers |= {"sum_off": round(worst, 5), "unattributed": round(unknown, 5)}


def _judge_totals(evidence: Json, verdict: Verdict) -> None:
    billed, service = _billed(evidence), evidence["service_chip_seconds"]
    totals = evidence["totals"]
    names = [(entry["generation"], entry["attempt"]) for entry in evidence["entries"]]
    verdict.expect(len(names) == len(set(names)), "an attempt is billed twice")
    verdict.expect(
        abs(totals["chip_seconds"] - billed) <= SUM_TOLERANCE
        and abs(totals["cost"] - sum(entry["cost"] for entry in evidence["entries"])) < CENT,
        f"the totals over runs, {totals}, are not those of the ledgers",
    )
    verdict.expect(
        billed >= service * (1 - SUM_TOLERANCE),
        f"the ledgers have {billed:.1f} chip-seconds, the service has billed {service:.1f}",
    )
    verdict.numbers |= {"billed": round(billed, 1), "service": round(service, 1)}


def _judge_shares(evidence: Json, oracle: Json, verdict: Verdict) -> None:
    found = training_of(evidence)
    length = span(found)
    if not length or overlap(found):
        # The calculator supports only one training at a time.
        verdict.numbers["compared"] = False
        return
    untold = {SpentOn.COMPILE: only_loops(found), SpentOn.SAVE: unfinished_saves(found)}
    worst = ""
    largest = 0.0
    for name, theirs in COMPARED.items():
        ours = sum(entry["seconds"].get(name, 0.0) for entry in evidence["entries"])
        if name is SpentOn.PROGRAM_STARTUP:
            if any(process.at("restore") is None for process in found):
                # It ended while starting: its trace does not separate the start from the end.
                continue
            ours -= evidence["other_startup"]
        expected = oracle.get(theirs, 0.0) + untold.get(name, 0.0)
        off = (ours - expected) / length
        if abs(off) > abs(largest):
            largest, worst = off, str(name)
        verdict.expect(
            abs(off) <= SHARE_TOLERANCE,
            f"{name}: {ours:.2f} s, the calculator has {expected:.2f} s, of a training of "
            f"{length:.1f} s",
        )
    done = sum(
        entry["seconds"].get(name, 0.0)
        for entry in evidence["entries"]
        for name in (SpentOn.STEP, SpentOn.LOST_STEPS, SpentOn.COMPILE)
    )
    traced = step_seconds(found)
    # The step in progress when a trainer ended is in the bill but not in the trace.
    unfinished = sum(process.events[-1].event == "begin" for process in found)
    slack = SHARE_TOLERANCE * length
    verdict.expect(
        traced - slack <= done <= traced + slack + NOTICE_SECONDS * unfinished,
        f"steps of {done:.2f} s are billed, kept and lost; those of {traced:.2f} s were done",
    )
    verdict.numbers |= {
        "compared": True,
        "seconds": round(length, 2),
        "share_off": round(largest, 5),
        "of": worst,
        "lost_seconds": round(oracle.get(COMPARED[SpentOn.LOST_STEPS], 0.0), 2),
    }


def _billed(evidence: Json) -> float:
    return float(sum(entry["chip_seconds"] for entry in evidence["entries"]))


def _chip_seconds(evidence: Json, name: SpentOn) -> float:
    return float(
        sum(entry["seconds"].get(name, 0.0) * entry["chips"] for entry in evidence["entries"])
    )


def _phase_twice(evidence: Json) -> None:
    """Count an attempt's longest phase twice."""
    entry = max(evidence["entries"], key=lambda entry: float(entry["billed_seconds"]))
    name = max(entry["seconds"], key=entry["seconds"].__getitem__)
    entry["seconds"][name] *= 2


def _attempt_twice(evidence: Json) -> None:
    """Put an attempt into the ledger and the totals twice."""
    entry = copy.deepcopy(evidence["entries"][0])
    evidence["entries"].append(entry)
    evidence["totals"]["chip_seconds"] += entry["chip_seconds"]
    evidence["totals"]["cost"] += entry["cost"]


def _interval_twice(evidence: Json) -> None:
    """Count a checkpoint interval of steps twice, and correct the sum in an uncompared category."""
    entry = max(evidence["entries"], key=lambda entry: float(entry["seconds"].get("step", 0.0)))
    again = entry["seconds"]["step"] * INTERVAL_SHARE
    entry["seconds"]["step"] += again
    entry["seconds"]["deletion"] = entry["seconds"].get("deletion", 0.0) - again


def _lost_as_kept(evidence: Json) -> None:
    """Count lost steps as steps too, and correct the sum in an uncompared category."""
    for entry in evidence["entries"]:
        seconds = entry["seconds"]
        lost = seconds.get(SpentOn.LOST_STEPS, 0.0)
        seconds[SpentOn.STEP] = seconds.get(SpentOn.STEP, 0.0) + lost
        seconds[SpentOn.DELETION] = seconds.get(SpentOn.DELETION, 0.0) - lost


def _total_twice(evidence: Json) -> None:
    """Count a retried teardown's ledger twice in the totals over runs."""
    for name in evidence["totals"]:
        evidence["totals"][name] *= 2


FORGERIES: dict[str, Callable[[Json], None]] = {
    "a phase twice": _phase_twice,
    "an attempt twice": _attempt_twice,
    "a checkpoint interval of steps twice": _interval_twice,
    "lost steps as kept ones": _lost_as_kept,
    "a ledger twice": _total_twice,
}


def forged(evidence: Json, name: str) -> Json:
    """Return a copy of the evidence in which something is counted twice."""
    changed = copy.deepcopy(evidence)
    FORGERIES[name](changed)
    return changed


def can_forge(evidence: Json, name: str) -> bool:
    """Return whether a run has enough of what is to be counted twice for it to be detected."""
    if not evidence["entries"]:
        return False
    found = training_of(evidence)
    if name in ("a checkpoint interval of steps twice", "lost steps as kept ones"):
        kept = max(entry["seconds"].get(SpentOn.STEP, 0.0) for entry in evidence["entries"])
        lost = sum(entry["seconds"].get(SpentOn.LOST_STEPS, 0.0) for entry in evidence["entries"])
        twice = lost if name == "lost steps as kept ones" else kept * INTERVAL_SHARE
        return not overlap(found) and span(found) > 0 and twice > SEEN * span(found)
    return True
