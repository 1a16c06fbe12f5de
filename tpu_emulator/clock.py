"""The clock of the emulated service, which may differ from that of its clients."""

from __future__ import annotations

import time


class Clock:
    """Every timestamp that the API answers with, and the deadlines of queueing policies."""

    def __init__(self, skew: float) -> None:
        """Takes how many seconds it is fast; slow if negative."""
        self._skew = skew

    def now(self) -> float:
        """Seconds since the epoch, as the service believes."""
        return time.time() + self._skew
