"""A document as it was read."""

from __future__ import annotations

from typing import NamedTuple


class FoundDocument(NamedTuple):
    """A document's text, and the group of records that it belongs to, if any."""

    text: str
    group: str | None = None
