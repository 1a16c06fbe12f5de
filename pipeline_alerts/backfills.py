"""Summarizes a backfill that has ended: which partitions were not learned, and why."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from model_registry import attempts
from model_registry.production import production
from pipeline_alerts.causes import Cause
from pipeline_alerts.raising import raise_about_installation
from pipeline_store import identity
from pipeline_store.formats import (
    Alert,
    BackfillRuns,
    OutcomeKind,
    RunOutcome,
    RunRecord,
    RunRefusal,
)
from pipeline_store.layout import StoreLayout

UNDER_WAY = ("queued", "running")


def check_backfill(
    store: StoreLayout, listed: BackfillRuns, state_of: Callable[[str, str], str | None]
) -> Alert | None:
    """Raise the summary of a backfill once all of its runs have ended, and store its content.

    :param state_of: returns a run's state in Airflow, by DAG id and run id; None: it has no such
        run.
    """
    for run_id in listed.runs:
        if state_of(listed.dag_id, run_id) in UNDER_WAY or _is_open(store, listed, run_id):
            return None
    missing = not_learned(store, listed)
    partitions = sorted({*listed.runs.values()})
    learned = len(partitions) - len(missing)
    lines = [f"{partition}: {reason}" for partition, reason in missing.items()]
    alert = raise_about_installation(
        store,
        f"backfill-{listed.name}",
        Cause.BACKFILL_ENDED,
        about=f"backfill {listed.backfill_id} of {listed.dag_id}",
        lineage_id=listed.lineage_id,
        summary=f"{learned} of {len(partitions)} partitions learned",
        reason=f"Partitions {partitions[0]} to {partitions[-1]}, lineage {listed.lineage_id}. "
        + ("\n".join(["Not learned:", *lines]) if lines else "All were learned."),
    )
    # After the alert: if the watch dies in between, the next pass finds the backfill still open.
    ended = {"ended": datetime.now(UTC), "not_learned": missing}
    listed.model_copy(update=ended).write(store.backfill(listed.name))
    return alert


def not_learned(store: StoreLayout, listed: BackfillRuns) -> dict[str, str]:
    """Return the partitions of a backfill that the model in use has not seen, with reasons."""
    lineage = store.lineage(listed.lineage_id)
    in_use = production(lineage)
    seen = set(in_use.partitions_seen) if in_use else set()
    tried = attempts.left_out(lineage)
    return {
        partition: tried[partition].reason
        if partition in tried
        else _reason(store, listed.dag_id, run_id)
        for run_id, partition in sorted(listed.runs.items(), key=lambda one: one[1])
        if partition not in seen
    }


def _is_open(store: StoreLayout, listed: BackfillRuns, run_id: str) -> bool:
    """Return whether a run that has begun still has no outcome."""
    run = store.run(identity.run_key(listed.dag_id, run_id))
    has_begun = RunRecord.load_or_none(run.record) is not None
    return has_begun and RunOutcome.load_or_none(run.outcome) is None


def _reason(store: StoreLayout, dag_id: str, run_id: str) -> str:
    run = store.run(identity.run_key(dag_id, run_id))
    refusal = RunRefusal.load_or_none(run.refusal)
    if refusal is not None:
        return f"refused: {'; '.join(refusal.reasons)}"
    outcome = RunOutcome.load_or_none(run.outcome)
    if outcome is not None and outcome.outcome is not OutcomeKind.PROMOTED:
        return f"{outcome.outcome}: {outcome.reason}"
    return "its run has left no reason; it was ended before it began, or a later rollback took it"
