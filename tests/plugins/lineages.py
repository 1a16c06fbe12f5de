"""Leases that runs of the tests hold, without an Airflow to ask about others."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from model_registry import lease
from pipeline_store.formats import LineageLease, RunRecord
from tests.model_registry.runs import FinishedRun


def hold(run: FinishedRun, *, hours: float = 1.0) -> LineageLease:
    """Take the lineage for a run, whoever had it."""
    standing = lease.acquire(
        run.lineage,
        RunRecord.load(run.run.record),
        expires=datetime.now(UTC) + timedelta(hours=hours),
        poll_seconds=1.0,
        has_ended=lambda held: True,
    )
    assert standing.lease is not None
    return standing.lease
