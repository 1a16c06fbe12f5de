"""How runs ended: written by their last tasks, or by whoever finds that they have ended."""

from __future__ import annotations

from datetime import UTC, datetime

from pipeline_store import uris
from pipeline_store.formats import OutcomeKind, RunOutcome
from pipeline_store.layout import RunLayout


def record(
    run: RunLayout,
    outcome: OutcomeKind,
    reason: str,
    *,
    written_by: str,
    version_id: str | None = None,
) -> RunOutcome:
    """Write how a run ended; of several the newest counts. The same again changes nothing.

    :raises FormatError: what is there is damaged.
    """
    while True:
        found = uris.read_versioned(run.outcome)
        data, version = found or (None, None)
        current = RunOutcome.parse(data, run.outcome) if data is not None else None
        wanted = RunOutcome(
            sequence=current.sequence + 1 if current else 1,
            outcome=outcome,
            reason=reason,
            version_id=version_id,
            written_by=written_by,
            time=datetime.now(UTC),
        )
        if current is not None and _content(current) == _content(wanted):
            return current
        try:
            uris.compare_and_set(run.outcome, wanted.to_bytes(), version)
            return wanted
        except uris.VersionConflictError:
            continue


def record_if_none(
    run: RunLayout,
    outcome: OutcomeKind,
    reason: str,
    *,
    written_by: str,
    version_id: str | None = None,
) -> RunOutcome | None:
    """Write how a run ended unless it is known; return what was written, or None.

    For those that only see that it has ended: what its own tasks wrote stands.
    """
    wanted = RunOutcome(
        outcome=outcome,
        reason=reason,
        version_id=version_id,
        written_by=written_by,
        time=datetime.now(UTC),
    )
    return wanted if wanted.create(run.outcome) else None


def reopen(run: RunLayout) -> None:
    """Forget how a run ended, because a person lets it go on."""
    uris.delete(run.outcome)


def _content(outcome: RunOutcome) -> tuple[object, ...]:
    return outcome.outcome, outcome.reason, outcome.version_id, outcome.written_by
