"""Single parts of a running stack can be killed, halted and started again."""

from __future__ import annotations

import pytest

from local.stack.breaking import Breaker
from local.stack.paths import StackError
from local.stack.settings import TENSORBOARD
from verification.leak_matrix.session import Session

# Slow: it has a stack of its own. What `make test` runs of the matrix breaks less.
pytestmark = [pytest.mark.stack, pytest.mark.slow]


def _state(session: Session) -> tuple[str, int | None]:
    part = next(part for part in session.stack.status().parts if part.name == TENSORBOARD)
    return part.state, part.pid


def test_what_is_killed_comes_back_and_what_is_halted_does_not(opened: Session) -> None:
    breaker = Breaker(opened.stack)
    _, first = _state(opened)
    breaker.kill(TENSORBOARD)
    breaker.wait_ready([TENSORBOARD])
    _, second = _state(opened)
    assert second not in (None, first)

    breaker.halt([TENSORBOARD])
    assert _state(opened) == ("STOPPED", None)
    with pytest.raises(StackError, match="does not run"):
        breaker.kill(TENSORBOARD)

    breaker.start([TENSORBOARD])
    state, third = _state(opened)
    assert state == "RUNNING"
    assert third not in (None, second)


def test_unknown_parts_are_refused(opened: Session) -> None:
    with pytest.raises(StackError, match="No part is called 'nonsense'"):
        Breaker(opened.stack).stop("nonsense")
