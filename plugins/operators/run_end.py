"""Runs the last task of a run: records how the run ended, and makes Airflow show the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import BaseOperator

from alerting.callbacks import ended_run, run_was_ended
from hooks.dag_runs import known_failed_tasks
from hooks.notes import about_run, ended_by, leave_note, short_reason
from model_registry import outcomes
from operators.failures import RunHasFailed
from operators.own_run import own_run
from pipeline_alerts.raising import failure_reasons
from pipeline_store import uris
from pipeline_store.formats import OutcomeKind, RunOutcome, RunRecord
from pipeline_store.layout import RunLayout, StoreLayout

if TYPE_CHECKING:
    from airflow.sdk import Context


class EndRunOperator(BaseOperator):
    """Records how a run ended if no task has, and succeeds or fails as the run did.

    Wire it as a teardown behind all others, so that it runs whatever failed::

        [report, export] >> end.as_teardown(on_failure_fail_dagrun=True)

    A run without an outcome by now has failed, however a person marked its tasks. This task then
    fails without another try, so that Airflow shows what happened although the tasks that a person
    skipped are green. One alert says who ended the run.

    Returns the run's outcome, and leaves the text of the run's note.

    :param store_uri: root of the store.
    """

    nothing_reached: ClassVar[str] = "it ended without a result"

    def __init__(self, *, store_uri: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.store_uri = store_uri

    def execute(self, context: Context) -> str:
        """Record the outcome, and succeed or fail as the run did."""
        run, person = own_run(context, self.store_uri), ended_by(context)
        if uris.exists(run.refusal):
            # The task that refused it has alerted people and left the note already.
            raise RunHasFailed("The run was refused before anything was spent.")
        if not uris.exists(run.record):
            by = f"ended by {person} in Airflow" if person is not None else "ended"
            self._tell(context, f"The run was {by} before it began: nothing was spent.")
            raise RunHasFailed(f"The run was {by} before it began.")
        outcome = self._end(context, run, person)
        leave_note(context, end_note(outcome, RunRecord.load(run.record)))
        if outcome.outcome.is_failure:
            if person is not None:
                self._tell(context, f"Outcome: {outcome.outcome}. {outcome.reason}")
            raise RunHasFailed(f"The run has {outcome.outcome}: {outcome.reason}")
        return str(outcome.outcome)

    def _end(self, context: Context, run: RunLayout, person: str | None) -> RunOutcome:
        """Return the run's outcome, and record it if no task has.

        :param person: who ended the run by hand.
        """
        found = RunOutcome.load_or_none(run.outcome) or self._reached(
            run, RunRecord.load(run.record)
        )
        if found is not None:
            return found
        reason = self._what_failed(context, is_by_hand=person is not None)
        if person is not None:
            reason = f"ended by {person} in Airflow; {reason}"
        return outcomes.record(run, OutcomeKind.FAILED, reason, written_by=self.task_id)

    def _reached(self, run: RunLayout, record: RunRecord) -> RunOutcome | None:
        """Record and return an outcome that the run reached although no task recorded it."""
        return None

    def _tell(self, context: Context, reason: str) -> None:
        try:
            run_was_ended(context, summary="run failed, ended by a person", reason=reason)
        except Exception:  # the watch raises an alert about an outcome without one
            self.log.exception("Nobody could be told of the run's end")

    def _what_failed(self, context: Context, *, is_by_hand: bool) -> str:
        dag_run = context["dag_run"]
        tasks = known_failed_tasks(dag_run.dag_id, dag_run.run_id)
        if not tasks:
            return self.nothing_reached
        # A task that a person ended with the run may have failed earlier, for another reason.
        run = ended_run(context, () if is_by_hand else tasks)
        told = failure_reasons(StoreLayout(self.store_uri), run)
        return ". ".join([f"failed: {', '.join(tasks)}", *told])


def end_note(outcome: RunOutcome, record: RunRecord) -> str:
    """Return the note of a run that has ended: how and why, its partition and its lineage."""
    kind = str(outcome.outcome)
    reason = outcome.reason.removeprefix(f"{kind}: ")
    what = f"{kind.capitalize()}: {' '.join(reason.split()).rstrip('.')}"
    return f"{short_reason(what)}. {about_run(record.partition, record.lineage_id)}"
