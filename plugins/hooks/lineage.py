"""A run's claim on its lineage: the lease in the store, and whether its holder still runs."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import UTC, datetime

from airflow.sdk.exceptions import AirflowRuntimeError

from hooks.dag_runs import is_under_way
from model_registry import lease
from model_registry.lease import Standing
from pipeline_config import PipelineConfig, parse_config
from pipeline_store import identity, uris
from pipeline_store.formats import BackfillRuns, LineageLease, RunRecord
from pipeline_store.layout import LineageLayout, RunLayout, StoreLayout

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LineageClaim:
    """A run that waits to continue its lineage, or that holds the lineage."""

    run: RunLayout
    lineage: LineageLayout
    record: RunRecord
    config: PipelineConfig

    @classmethod
    def open(cls, store_uri: str, run_uri: str) -> LineageClaim:
        """Return the claim of a run that the task ``validate`` has recorded."""
        run = RunLayout(run_uri)
        record = RunRecord.load(run.record)
        config = parse_config(uris.read(run.config), run.config)
        return cls(run, StoreLayout(store_uri).lineage(record.lineage_id), record, config)

    def attempt(self) -> Standing:
        """Take the lease if it is this run's turn; see :func:`model_registry.lease.acquire`."""
        return lease.acquire(
            self.lineage,
            self.record,
            expires=lease.expiry(self.config, datetime.now(UTC)),
            poll_seconds=self.config.tpu.poll_interval,
            has_ended=_has_ended,
            preparing=self._preparing,
        )

    def _preparing(self) -> list[str]:
        """Return the older partitions of the run's backfill whose runs are under way, sorted.

        Only runs that Airflow has started count: a queued one waits for a place among the
        backfill's active runs. Empty with ``--run-backwards``, where an older run begins whenever a
        newer one ends: the first to be ready would wait for all of them.
        """
        if self.record.backfill is None:
            return []
        store = StoreLayout(self.run.store_root)
        listed = BackfillRuns.load_or_none(store.backfill(self.record.backfill))
        if listed is None or listed.is_backwards:
            return []
        older = [
            (partition, run_id)
            for run_id, partition in listed.runs.items()
            if partition < self.record.partition
        ]
        return [name for name, run_id in sorted(older) if self._may_come(store, run_id)]

    def _may_come(self, store: StoreLayout, run_id: str) -> bool:
        """Return whether a run may still claim the lineage; False once it has an outcome."""
        run = store.run(identity.run_key(self.record.dag_id, run_id))
        if uris.exists(run.outcome):
            return False
        record = RunRecord.load_or_none(run.record)
        if record is not None and record.lineage_id != self.record.lineage_id:
            return False
        try:
            return is_under_way(self.record.dag_id, run_id)
        except AirflowRuntimeError as error:
            _log.warning("Airflow does not say whether %s still runs: %s", run_id, error)
            return True

    def withdraw(self) -> None:
        """Stop waiting. A lease that the run holds is kept."""
        lease.leave(self.lineage, self.record.run_key)

    def give_back(self) -> bool:
        """Stop waiting and release the lease; return whether the run held it."""
        self.withdraw()
        return lease.release(self.lineage, self.record.run_key)


def _has_ended(held: LineageLease) -> bool:
    """Return whether the holder's run has ended; False if Airflow does not answer."""
    try:
        has_ended = not is_under_way(held.dag_id, held.run_id)
    except AirflowRuntimeError as error:
        _log.warning("Airflow does not say whether %s still runs: %s", held.run_id, error)
        return False
    if has_ended:
        _log.warning("Run %s has ended without giving the lineage back", held.run_id)
    return has_ended
