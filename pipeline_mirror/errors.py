"""Defines the errors between a store and its mirror."""

from __future__ import annotations


class MirrorError(Exception):
    """A failure to mirror one run or lineage; others can still be mirrored."""


class ServerAwayError(Exception):
    """An unavailable mirror server: nothing can be mirrored until it is back."""
