"""The kinds of errors, and where `docs/operate/errors.md` explains one that a text tells of."""

from __future__ import annotations

import re
from enum import StrEnum

from corpus.labelled.labels import ExampleProblem
from corpus.text.drops import DropReason
from pipeline_alerts.causes import page_address

DOCUMENT = "docs/operate/errors.md"


class FailureKind(StrEnum):
    """Why a TPU task failed; every message begins with it, in brackets."""

    STOCKOUT = "stockout"
    QUOTA = "quota"
    PERMISSION = "permission"
    INVALID_REQUEST = "invalid-request"
    CONFLICT = "conflict"
    PREEMPTION = "preemption"
    BUDGET = "budget"
    USER_ERROR = "user-error"
    JOB = "job"
    RELEASED = "released"
    INFRASTRUCTURE = "infrastructure"


_IN_BRACKETS = re.compile(rf"\[({'|'.join(FailureKind)})\]")
# Those that no sentence has by chance, as `empty` or `duplicate`.
_INPUT = re.compile(
    rf"\b({'|'.join(reason for reason in (*DropReason, *ExampleProblem) if '_' in reason)})\b"
)


def error_anchor(text: str) -> str | None:
    """Return the anchor on the page of errors for what a text tells of; None: for nothing there."""
    found = _IN_BRACKETS.search(text) or _INPUT.search(text)
    return found[1] if found else None


def error_section(text: str, docs_url: str = "") -> str | None:
    """Return where an error that a text tells of is explained; None: nowhere.

    :param docs_url: as in :func:`pipeline_alerts.causes.runbook`.
    """
    anchor = error_anchor(text)
    return anchor and f"{page_address(DOCUMENT, docs_url)}#{anchor}"
