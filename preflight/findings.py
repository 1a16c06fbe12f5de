"""Results of checks: the typed findings from which tables, logs and refusals are made."""

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
    """The result of a check, and how to fix a problem: a command where there is one."""

    status: Status
    found: str
    fix: str = ""


@dataclass(frozen=True)
class Row:
    """A finding under the name of its check; a check of one setting has the setting's name."""

    name: str
    finding: Finding

    @property
    def line(self) -> str:
        """Return name, finding and fix in one line."""
        found, fix = self.finding.found, self.finding.fix
        text = f"{found.rstrip('.')}. Fix: {fix}" if fix else found
        return " ".join(f"{self.name}: {text}".split())


def ok(found: str) -> Finding:
    """Return the finding of a check that passed."""
    return Finding(Status.OK, found)


def warning(found: str, fix: str = "") -> Finding:
    """Return a finding that a person should know but that stops no run."""
    return Finding(Status.WARNING, found, fix)


def failed(found: str, fix: str = "") -> Finding:
    """Return the finding of a failed check: why a run cannot succeed."""
    return Finding(Status.FAILED, found, fix)


def not_checked(found: str, fix: str = "") -> Finding:
    """Return the finding of a check that could not be made, with the reason."""
    return Finding(Status.NOT_CHECKED, found, fix)


def problems(rows: Iterable[Row]) -> list[str]:
    """Return a line for each failed check, and log those that warned or were not made."""
    lines = []
    for row in rows:
        if row.finding.status is Status.FAILED:
            lines.append(row.line)
        elif row.finding.status is not Status.OK:
            logger.warning("CLOUD CHECK: %s (%s)", row.line, row.finding.status)
    return lines
