"""Defines the kinds of errors, and finds the section of `docs/operate/errors.md` for a text."""

from __future__ import annotations

import re
from enum import StrEnum

from corpus.labelled.labels import ExampleProblem
from corpus.text.drops import DropReason
from pipeline_alerts.causes import page_address

DOCUMENT = "docs/operate/errors.md"


class FailureKind(StrEnum):
    """The kind of a TPU task's failure; every message begins with it, in brackets."""

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
# Only names that do not occur in sentences by chance, as `empty` or `duplicate` do.
_INPUT = re.compile(
    rf"\b({'|'.join(reason for reason in (*DropReason, *ExampleProblem) if '_' in reason)})\b"
)


def error_anchor(text: str) -> str | None:
    """Return the anchor, on the page of errors, of the error in a text; None: there is none."""
    found = _IN_BRACKETS.search(text) or _INPUT.search(text)
    return found[1] if found else None


def error_section(text: str, docs_url: str = "") -> str | None:
    """Return the address of the explanation of the error in a text; None: there is none.

    :param docs_url: see :func:`pipeline_alerts.causes.runbook`.
    """
    anchor = error_anchor(text)
    return anchor and f"{page_address(DOCUMENT, docs_url)}#{anchor}"
