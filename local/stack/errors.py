"""The error type of the local stack."""

from __future__ import annotations


class StackError(RuntimeError):
    """The stack cannot start, answer or stop; the message says what to do."""
