"""The holder of a run: the one attempt whose jobs may commit, and the one task that has it in hand.

Whoever works with an attempt first makes itself its holder, before anything is asked for. So a task
that is cancelled late can see that another one has taken over, and leaves the TPU alone.
"""

from __future__ import annotations

from pipeline_store.formats import Attempt, Holder
from pipeline_store.layout import RunLayout
from tpu_lifecycle.reservation import ReleasedError, SupersededError

CANCELLED = "cancelled"
"""Token of a holder whose attempt was cancelled: no job has it, so none can commit."""


class CancelledAttemptError(RuntimeError):
    """The task that had the attempt in hand was cancelled: its TPU is being deleted."""


def become_holder(run: RunLayout, attempt: Attempt) -> Holder:
    """Make the attempt the holder, by compare-and-set.

    Doing so again raises the sequence number: a task that takes an attempt over from an earlier try
    of itself so takes away that try's right to cancel.

    :raises ReleasedError: a newer generation already holds the run.
    :raises SupersededError: a newer attempt of this generation does.
    :raises CancelledAttemptError: the attempt was cancelled; there has to be a next one.
    """

    def take(present: Holder | None) -> Holder:
        number = (attempt.generation, attempt.attempt)
        if present and (present.generation, present.attempt) > number:
            newer = present.generation > attempt.generation
            raise (ReleasedError if newer else SupersededError)(
                f"Attempt {attempt.attempt} of generation {attempt.generation} is stale: run "
                f"{attempt.run_key} is held by attempt {present.attempt} of generation "
                f"{present.generation}."
            )
        if present and (present.generation, present.attempt, present.token) == (*number, CANCELLED):
            raise CancelledAttemptError(
                f"Attempt {attempt.attempt} of generation {attempt.generation} of run "
                f"{attempt.run_key} was cancelled."
            )
        return _holder(attempt, attempt.token, present.sequence + 1 if present else 1)

    return Holder.update(run.holder, take)


def cancel_holder(run: RunLayout, attempt: Attempt, sequence: int | None) -> bool:
    """Take the attempt away from the caller itself, if it still is the caller's.

    One compare-and-set decides between a task that is cancelled and one that takes over: either the
    one finds that the attempt is not its own any more, or the other that it was cancelled.

    :param sequence: of the caller's own entry; None when it never was the holder.
    :returns: whether the attempt is cancelled, now or by an earlier call of the same caller.
    """
    is_cancelled = False

    def take(present: Holder | None) -> Holder | None:
        nonlocal is_cancelled
        is_cancelled = False
        if present is None or sequence is None:
            return None
        cancelled = _holder(attempt, CANCELLED, sequence + 1)
        own = _holder(attempt, attempt.token, sequence)
        is_cancelled = present in (own, cancelled)
        return cancelled if present == own else None

    Holder.update(run.holder, take)
    return is_cancelled


def _holder(attempt: Attempt, token: str, sequence: int) -> Holder:
    return Holder(
        sequence=sequence, generation=attempt.generation, attempt=attempt.attempt, token=token
    )
