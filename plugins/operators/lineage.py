"""Operators that let one run at a time continue a lineage.

Wire them around all tasks that train, judge and promote::

    claim >> ... >> promote >> release
    release.as_teardown(setups=[claim], on_failure_fail_dagrun=True)
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import TaskDeferralTimeout

from hooks.lineage import LineageClaim
from model_registry import attempts, outcomes, plans
from model_registry.errors import RegistryError, StalePlanError
from operators.failures import PipelineFailure, PipelineRetry, refused_by
from operators.own_run import own_run
from operators.run_end import EndRunOperator
from operators.tpu_base import timeout_after
from pipeline_alerts.causes import Remedy
from pipeline_store.formats import RunOutcome, RunRecord
from pipeline_store.layout import RunLayout, StoreLayout
from triggers.lineage import CLAIMED, ERROR, LineageTrigger

if TYPE_CHECKING:
    from airflow.sdk import Context


class ClaimLineageOperator(BaseOperator):
    """Waits until no other run holds the run's lineage, and then takes its lease for this run.

    Waiting is deferred: it takes no worker slot and no TPU. Among waiting runs, the smallest
    partition comes first. A run that ended without releasing the lineage no longer holds it. Fails
    after ``budget.max_lineage_wait_hours``, and at once if the run was planned from a model that is
    no longer in use. A task that runs again finds that its run already holds the lineage.

    Returns the lease's sequence number.

    :param store_uri: root of the store.
    """

    def __init__(self, *, store_uri: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.store_uri = store_uri
        self._open: LineageClaim | None = None

    def execute(self, context: Context) -> int:
        """Claim the lineage, or wait for it."""
        claim = self._claim(context)
        # The run begins, or goes on: its earlier outcome no longer counts.
        outcomes.reopen(claim.run)
        return self._attempt(claim)

    def resume_execution(
        self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context
    ) -> Any:
        """Resume; try once more if the deferral timed out: Airflow was down for that long."""
        try:
            return super().resume_execution(next_method, next_kwargs, context)
        except TaskDeferralTimeout:
            self.log.warning("The wait timed out without a word of its trigger. Asking once more.")
            return self._attempt(self._claim(context))

    def claimed(self, context: Context, event: dict[str, Any]) -> int:
        """Go on when the wait is over."""
        claim = self._claim(context)
        if event["outcome"] == CLAIMED:
            return self._attempt(claim)
        if event["outcome"] == ERROR:
            raise PipelineRetry(
                Remedy.LOOK_AT_SERVICES, f"The wait for the lineage broke off: {event['reason']}"
            )
        self._give_up(claim, event["reason"])

    def on_kill(self) -> None:
        """Delete the waiting ticket when the task is ended while its process works."""
        if self._open is not None:
            self._open.withdraw()

    def _claim(self, context: Context) -> LineageClaim:
        # Kept for on_kill, which gets no context.
        self._open = LineageClaim.open(self.store_uri, own_run(context, self.store_uri).root)
        return self._open

    def _attempt(self, claim: LineageClaim) -> int:
        poll_interval = claim.config.tpu.poll_interval
        try:
            plans.require_current(claim.lineage, claim.run, claim.record)
            standing = claim.attempt()
            if standing.is_held:
                # Between the first look and the lease another run may have promoted.
                plans.require_current(claim.lineage, claim.run, claim.record)
        except StalePlanError as error:
            claim.give_back()
            raise refused_by(error) from error
        except RegistryError as error:
            raise refused_by(error) from error
        self.log.info("Lineage %s: %s", claim.record.lineage_id, standing.describe())
        if standing.is_held and standing.lease is not None:
            return standing.lease.sequence
        hours = claim.config.budget.max_lineage_wait_hours
        since = standing.waits_since or datetime.now(UTC)
        deadline = since + timedelta(hours=hours)
        if datetime.now(UTC) >= deadline:
            self._give_up(claim, standing.describe())
        self.log.info("Waiting, at most until %s UTC", f"{deadline:%F %T}")
        self.defer(
            trigger=LineageTrigger(
                store_uri=self.store_uri,
                run_uri=claim.run.root,
                deadline=deadline.timestamp(),
                poll_interval=poll_interval,
            ),
            method_name="claimed",
            timeout=timeout_after(deadline, poll_interval),
        )

    def _give_up(self, claim: LineageClaim, reason: str) -> NoReturn:
        claim.withdraw()
        hours = claim.config.budget.max_lineage_wait_hours
        raise PipelineFailure(
            Remedy.CLEAR,
            f"Waited {hours:g} h (budget.max_lineage_wait_hours) for lineage "
            f"{claim.record.lineage_id}: {reason}. Nothing was spent; clear this task to wait "
            "again. If the holder does not work any more: python -m model_registry lease --break",
        )


class ReleaseLineageOperator(EndRunOperator):
    """Releases the lineage when its run ends.

    It is a teardown of the claim: it runs whatever failed in between. A run whose version is in use
    counts as promoted, even if no task has recorded that.

    Returns the same as :class:`EndRunOperator`.
    """

    nothing_reached = "it ended without a verdict"

    def _end(self, context: Context, run: RunLayout, person: str | None) -> RunOutcome:
        claim = LineageClaim.open(self.store_uri, run.root)
        try:
            outcome = super()._end(context, run, person)
            # Before the next run plans: it also takes what this run has not learned.
            attempts.record(claim.lineage, run, claim.record, outcome)
        finally:
            is_own = claim.give_back()
        self.log.info(
            "Lineage %s: %s",
            claim.record.lineage_id,
            "given back" if is_own else "was not this run's any more",
        )
        return outcome

    def _reached(self, run: RunLayout, record: RunRecord) -> RunOutcome | None:
        lineage = StoreLayout(self.store_uri).lineage(record.lineage_id)
        return outcomes.record_if_in_use(run, lineage, record.run_key, written_by=self.task_id)
