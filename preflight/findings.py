"""What a check found: the typed result that tables, logs and refusals are made of."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

logger = logging.getLogger(__name__)


class Status(StrEnum):
    """How a check ended. Only ``failed`` refuses a run."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    NOT_CHECKED = "not checked"


@dataclass(frozen=True)
class Finding:
    """What a check found, and what mends it: a command where there is one."""

    status: Status
    found: str
    fix: str = ""


@dataclass(frozen=True)
class Row:
    """A finding under the name of its check, which is that of a setting where it is about one."""

    name: str
    finding: Finding

    @property
    def line(self) -> str:
        """Return all of it in one line."""
        found, fix = self.finding.found, self.finding.fix
        text = f"{found.rstrip('.')}. Fix: {fix}" if fix else found
        return " ".join(f"{self.name}: {text}".split())


def ok(found: str) -> Finding:
    """Return that all is well."""
    return Finding(Status.OK, found)


def warning(found: str, fix: str = "") -> Finding:
    """Return what a person should know and what stops no run."""
    return Finding(Status.WARNING, found, fix)


def failed(found: str, fix: str = "") -> Finding:
    """Return why a run cannot succeed."""
    return Finding(Status.FAILED, found, fix)


def not_checked(found: str, fix: str = "") -> Finding:
    """Return why nobody can tell."""
    return Finding(Status.NOT_CHECKED, found, fix)


def problems(rows: Iterable[Row]) -> list[str]:
    """Return a line for each check that failed, and log what else is not as it should be."""
    lines = []
    for row in rows:
        if row.finding.status is Status.FAILED:
            lines.append(row.line)
        elif row.finding.status is not Status.OK:
            logger.warning("CLOUD CHECK: %s (%s)", row.line, row.finding.status)
    return lines
