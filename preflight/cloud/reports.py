"""Formats findings for people, for programs, and for the documentation."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from preflight.cloud.catalogue import (
    ACCOUNT_CHECKS,
    AIRFLOW_CHECK,
    INSTALLATION_CHECKS,
    STORE_CHECKS,
    TPU_CHECKS,
    Check,
)
from preflight.findings import Row, Status


def table(rows: Sequence[Row]) -> str:
    """Return a table with a row for each check, its fix below it, and a summary line."""
    width = max(len(row.name) for row in rows)
    lines = []
    for row in rows:
        found, status = " ".join(row.finding.found.split()), row.finding.status
        # Uppercase, to be found at a glance and by grep.
        mark = status.upper() if status is Status.FAILED else status
        lines.append(f"{mark:<11}  {row.name:<{width}}  {found}")
        if row.finding.fix:
            lines.append(f"{'':<11}  {'':<{width}}  fix: {row.finding.fix}")
    counts = Counter(row.finding.status for row in rows)
    lines.append(", ".join(f"{counts[status]} {status}" for status in Status if counts[status]))
    return "\n".join(lines) + "\n"


def as_json(project_id: str, rows: Iterable[Row]) -> str:
    """Return the findings as JSON: ``project`` and a list ``checks``."""
    checks = [
        {
            "check": row.name,
            "status": row.finding.status,
            "found": row.finding.found,
            "fix": row.finding.fix,
        }
        for row in rows
    ]
    return json.dumps({"project": project_id, "checks": checks}, indent=2) + "\n"


def documentation() -> str:
    """Return the table of all checks as in docs/operate/preflight.md."""
    lines = ["| check | looks for | made by the validate task |", "|---|---|---|"]
    groups: tuple[tuple[str, Iterable[Check[Any]]], ...] = (
        ("no", INSTALLATION_CHECKS),
        ("yes", [AIRFLOW_CHECK]),
        ("yes, with credentials", ACCOUNT_CHECKS),
        ("yes", STORE_CHECKS),
        ("yes", TPU_CHECKS),
    )
    for by_validate, checks in groups:
        for check in checks:
            name = f"`{check.name}`" if "." in check.name else check.name
            lines.append(f"| {name} | {check.about} | {by_validate} |")
    return "\n".join(lines) + "\n"
