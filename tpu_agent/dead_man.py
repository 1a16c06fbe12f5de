"""Decides whether a TPU VM is forgotten: the rules of the dead man's switch, no side effects."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

LEAST_POLLS = 10
"""Polls that must agree, whatever the clock says: a VM that was frozen for hours has not seen for
hours that the lease is not renewed."""


@dataclass(frozen=True)
class Sight:
    """Result of one poll.

    ``lease`` is the content of the lease, None when there is none. ``moves`` changes with
    every step that a job reports, and with any other progress.
    """

    lease: bytes | None
    is_released: bool
    moves: Hashable
    job_runs: bool


@dataclass
class _Unchanged:
    """Number of polls, and seconds between them, for which a value has stayed unchanged."""

    value: Hashable = field(default_factory=object)
    polls: int = 0
    seconds: float = 0.0

    def see(self, value: Hashable, elapsed: float) -> None:
        if value != self.value:
            self.value, self.polls, self.seconds = value, 0, 0.0
        else:
            self.polls += 1
            self.seconds += elapsed


class DeadMan:
    """Judge of all polls so far; :attr:`reason` says why the TPU should be deleted, if it should.

    Time is measured by the VM's monotonic clock, only between two consecutive polls that succeeded:
    a store that does not answer shows neither that the TPU is still wanted nor that it is not.

    :param lease_timeout: in seconds.
    """

    def __init__(self, lease_timeout: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.reason: str | None = None
        self._timeout = lease_timeout
        self._clock = clock
        self._looked: float | None = None
        self._lease, self._work, self._tombstone = _Unchanged(), _Unchanged(), _Unchanged()

    def see(self, sight: Sight) -> None:
        """Record a poll that succeeded."""
        now = self._clock()
        elapsed = 0.0 if self._looked is None else now - self._looked
        self._looked = now
        self._lease.see(sight.lease, elapsed)
        self._work.see((sight.moves, sight.job_runs), elapsed)
        self._tombstone.see(sight.is_released, elapsed)
        self.reason = self._judge(sight)

    def miss(self) -> None:
        """Record a poll that failed."""
        self._looked = None

    def _judge(self, sight: Sight) -> str | None:
        if sight.is_released and self._is_over(self._tombstone):
            return (
                f"the TPU was released {self._tombstone.seconds:.0f} s ago and nobody has "
                "deleted it"
            )
        if not self._is_over(self._lease):
            return None
        forgotten = f"nobody has renewed its lease for {self._lease.seconds:.0f} s"
        if not sight.job_runs and self._work.polls >= LEAST_POLLS:
            return f"{forgotten} and no job runs"
        if sight.job_runs and self._is_over(self._work):
            return f"{forgotten} and its job has not moved for {self._work.seconds:.0f} s"
        return None

    def _is_over(self, unchanged: _Unchanged) -> bool:
        return unchanged.seconds >= self._timeout and unchanged.polls >= LEAST_POLLS
