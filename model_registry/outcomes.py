"""Outcomes of runs: written by their last tasks, or by a process that finds them ended."""

from __future__ import annotations

from datetime import UTC, datetime

from pipeline_store import identity, uris
from pipeline_store.formats import OutcomeKind, ProductionPointer, RunOutcome, RunRecord
from pipeline_store.layout import LineageLayout, RunLayout, StoreLayout


def record(
    run: RunLayout,
    outcome: OutcomeKind,
    reason: str,
    *,
    written_by: str,
    version_id: str | None = None,
) -> RunOutcome:
    """Write how a run ended; the newest outcome counts. The same again changes nothing.

    :raises FormatError: the existing outcome is damaged.
    """

    def decide(current: RunOutcome | None) -> RunOutcome:
        wanted = RunOutcome(
            sequence=current.sequence + 1 if current else 1,
            outcome=outcome,
            reason=reason,
            version_id=version_id,
            written_by=written_by,
            time=datetime.now(UTC),
        )
        return current if current and _content(current) == _content(wanted) else wanted

    return RunOutcome.update(run.outcome, decide)


def record_if_none(
    run: RunLayout,
    outcome: OutcomeKind,
    reason: str,
    *,
    written_by: str,
    version_id: str | None = None,
) -> RunOutcome | None:
    """Write how a run ended unless that is known; return what was written, or None.

    For processes that only see that it has ended: an outcome that its own tasks wrote stays.
    """
    wanted = RunOutcome(
        outcome=outcome,
        reason=reason,
        version_id=version_id,
        written_by=written_by,
        time=datetime.now(UTC),
    )
    return wanted if wanted.create(run.outcome) else None


def record_if_in_use(
    run: RunLayout, lineage: LineageLayout, run_key: str, *, written_by: str
) -> RunOutcome | None:
    """Record that a run's model was promoted if it is in production; else return None.

    For a run without an outcome: the task that promoted the model died before it could record it.

    :raises FormatError: the production pointer is damaged.
    """
    version_id = identity.version_id(run_key)
    in_use = ProductionPointer.load_or_none(lineage.production)
    if in_use is None or in_use.version_id != version_id:
        return None
    reason = f"{version_id} is in use"
    written = record_if_none(
        run, OutcomeKind.PROMOTED, reason, written_by=written_by, version_id=version_id
    )
    return written or RunOutcome.load(run.outcome)


def reopen(run: RunLayout) -> None:
    """Delete a run's outcome, because a person lets the run continue."""
    uris.delete(run.outcome)


def reopen_rented(store: StoreLayout, rental: RunLayout) -> None:
    """Delete the outcome of a run for which a TPU is rented again.

    :param rental: folder of the TPU: the run's own, or that of a further TPU.
    """
    reopen(rental)
    record = RunRecord.load_or_none(rental.record)
    if record is not None and record.rental_of is not None:
        reopen(store.run(record.rental_of))


def _content(outcome: RunOutcome) -> tuple[object, ...]:
    return outcome.outcome, outcome.reason, outcome.version_id, outcome.written_by
