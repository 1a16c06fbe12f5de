"""Judges whether a job hangs: the rules alone, without any effect."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline_store.formats import JobLimits, JobPhase, PhaseName

TIMES_SLOWEST = 6.0
LEAST_TIMES_SLOWEST = 2.0


@dataclass(frozen=True)
class Standing:
    """For how many seconds nothing has moved in a phase; ``limit`` None: as long as it likes."""

    phase: JobPhase
    still: float
    limit: float | None

    @property
    def is_hang(self) -> bool:
        """Return whether that is longer than it may be."""
        return self.limit is not None and self.still > self.limit


class Judge:
    """Sees the phases of one start of a job, one after the other.

    A limit follows from the phase: of loops it is the floor or, if that is longer, 6 times the
    slowest of the last ones, but no more than the first one has, which compiles, unless that is
    less than twice the slowest; of all others a stated one. A phase that moves has it anew.
    """

    def __init__(self, limits: JobLimits) -> None:
        self._limits = limits
        self._phase: JobPhase | None = None
        self._since = 0.0

    def see(self, phase: JobPhase, now: float) -> Standing:
        """Take note of what the job does, and return how it stands.

        :param now: in seconds, by a clock that counts what is held against the job alone.
        """
        if phase != self._phase:
            self._phase, self._since = phase, now
        return Standing(phase, max(0.0, now - self._since), self._limit(phase))

    def _limit(self, phase: JobPhase) -> float | None:
        if phase.name is PhaseName.LOOP:
            slowest = phase.slowest_loop_seconds or 0.0
            several = TIMES_SLOWEST * slowest
            first = self._limits.phase_seconds.get(PhaseName.FIRST_LOOP)
            if first is not None:
                several = min(several, max(first, LEAST_TIMES_SLOWEST * slowest))
            return max(self._limits.loop_floor_seconds, several)
        return self._limits.phase_seconds.get(phase.name)
