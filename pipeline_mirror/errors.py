"""What can go wrong between a store and its mirror."""

from __future__ import annotations


class MirrorError(Exception):
    """One run or line of models cannot be mirrored; others can."""


class ServerAwayError(Exception):
    """The mirror cannot be asked, so nothing can be done until it is back."""
