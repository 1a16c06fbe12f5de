"""The report of a first day: each step, and each belief with its finding."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from verification.first_tpu.beliefs import BELIEFS, Finding
from verification.first_tpu.steps import Account, Outcome, results_by_name

_IN_WORDS = {True: "passed", False: "**failed**", None: "left out"}


def as_json(account: Account, outcomes: Sequence[Outcome], worst_cost: float) -> dict[str, Any]:
    """Return the day as one JSON object."""
    results = results_by_name(outcomes)
    return {
        "rehearsal": account.is_rehearsal,
        "account": dataclasses.asdict(account),
        "worst_cost": worst_cost,
        "steps": [dataclasses.asdict(outcome) for outcome in outcomes],
        "beliefs": [
            {"statement": one.statement, "finding": str(one.finding(results))} for one in BELIEFS
        ],
    }


def as_markdown(account: Account, outcomes: Sequence[Outcome], worst_cost: float) -> str:
    """Return the day as a page."""
    where = "in a rehearsal: the emulator, no bucket" if account.is_rehearsal else _place(account)
    lines = [
        f"# A first day with a TPU, {where}",
        "",
        f"It could cost {worst_cost:.2f} at the very most."
        if worst_cost
        else "It cost nothing: what is said of beliefs is said of the emulator.",
        "",
        "| step | | seconds | |",
        "|---|---|---|---|",
        *(
            f"| {one.name} | {_IN_WORDS[one.passed]} | {one.seconds:.0f} | {one.note} |"
            for one in outcomes
        ),
        "",
        "| belief | finding | evidence |",
        "|---|---|---|",
        *_beliefs(results_by_name(outcomes)),
        "",
    ]
    return "\n".join(lines)


def _place(account: Account) -> str:
    return f"{account.accelerator_type} in {account.project}, {account.zone}"


def _beliefs(results: Mapping[str, bool | None]) -> list[str]:
    rows = []
    for one in BELIEFS:
        finding = one.finding(results)
        shown = "**wrong**" if finding is Finding.WRONG else str(finding)
        told = "; ".join(f"`{name}` {_IN_WORDS[results.get(name)]}" for name in one.evidence)
        rows.append(f"| {one.statement} | {shown} | {told or one.settled_by} |")
    return rows
