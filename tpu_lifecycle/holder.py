"""The holder of a run: the one attempt whose jobs may commit."""

from __future__ import annotations

from pipeline_store import uris
from pipeline_store.formats import Attempt, Holder
from pipeline_store.layout import RunLayout
from tpu_lifecycle.reservation import ReleasedError


def become_holder(run: RunLayout, attempt: Attempt) -> Holder:
    """Make the attempt the holder, by compare-and-set.

    Doing so again raises the sequence number: a task that takes an attempt over from an earlier try
    of itself so takes away that try's right to cancel.

    :raises ReleasedError: a newer attempt already holds the run.
    """
    while True:
        found = uris.read_versioned(run.holder)
        present = Holder.parse(found[0], run.holder) if found else None
        if present and (present.generation, present.attempt) > (
            attempt.generation,
            attempt.attempt,
        ):
            raise ReleasedError(
                f"Attempt {attempt.attempt} of generation {attempt.generation} is stale: run "
                f"{attempt.run_key} is held by attempt {present.attempt} of generation "
                f"{present.generation}."
            )
        holder = Holder(
            sequence=present.sequence + 1 if present else 1,
            generation=attempt.generation,
            attempt=attempt.attempt,
            token=attempt.token,
        )
        try:
            uris.compare_and_set(run.holder, holder.to_bytes(), found[1] if found else None)
        except uris.VersionConflictError:
            continue
        return holder
