"""How a TPU VM asks for its own deletion: cases that switch and both boot scripts have to pass."""

from __future__ import annotations

from typing import NamedTuple


class Case(NamedTuple):
    """What the service answers in turn, and what is asked of it before the next try."""

    is_queued: bool
    answers: tuple[int, ...]
    asked: tuple[str, ...]


QUEUED, NODE = "queued resource", "node"

CASES = (
    Case(True, (200,), (QUEUED,)),
    Case(True, (404, 200), (QUEUED, NODE)),
    Case(True, (404, 404), (QUEUED, NODE)),
    Case(True, (403, 200), (QUEUED, NODE)),
    Case(True, (409, 403), (QUEUED, NODE)),
    Case(True, (500, 200), (QUEUED, NODE)),
    Case(False, (200,), (NODE,)),
    Case(False, (403,), (NODE,)),
)
