"""Runs the watch as a task: finds problems of runs and of the installation, and raises alerts."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator, DagRunState
from airflow.sdk.exceptions import AirflowException, AirflowRuntimeError

from alerting.announcing import answer_link, channels, run_link, tpu_of
from hooks.dag_runs import failed_tasks, times_cleared
from pipeline_alerts.delivery import deliver_all
from pipeline_alerts.standstill import Patience
from pipeline_alerts.watch import Watch, WatchSettings
from pipeline_config.settings import load_settings
from pipeline_store.layout import StoreLayout

if TYPE_CHECKING:
    from airflow.sdk import Context


class WatchOperator(BaseOperator):
    """Checks the installation and every run that has not ended; raises and delivers alerts.

    It also delivers alerts that callbacks could not deliver. Fails when something could not be
    checked or delivered, after everything else was; another try, and each later pass, retries it.

    Returns ``open_runs`` and ``raised``, a list of ``<scope>/<cause>``.

    :param store_uri: root of the store.
    :param input_pattern: ``corpus.input_pattern``, by which new partitions are found.
    """

    def __init__(self, *, store_uri: str, input_pattern: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.store_uri = store_uri
        self.input_pattern = input_pattern

    def execute(self, context: Context) -> dict[str, Any]:
        """Make one pass."""
        store, settings = StoreLayout(self.store_uri), load_settings()
        watch = Watch(
            store,
            WatchSettings(
                owner=settings.owner,
                overdue=timedelta(hours=settings.overdue_hours),
                quiet=timedelta(days=settings.quiet_days),
                pattern=self.input_pattern,
                patience=Patience.of(settings),
                with_text=settings.alert_with_text,
            ),
            state_of=run_state(context["ti"].get_dagrun_state),
            cleared_of=times_cleared,
            failed_tasks_of=failed_tasks,
            link_of=run_link,
            answer_link_of=answer_link,
            is_paused=lambda dag_id: is_paused(context["ti"].get_dag, dag_id),
            tpu_of=tpu_of,
        )
        report = watch.look()
        for alert in report.raised:
            self.log.error("ALERT %s: %s", alert.title, alert.reason)
        for alert in report.cleared:
            self.log.info("CLEARED %s (%s/%s)", alert.title, alert.scope, alert.cause)
        ways = channels()
        if not ways:
            self.log.info("REPRETRAIN_ALERT_CONN_IDS is empty: alerts are only logged")
        problems = report.problems + deliver_all(store, ways)
        for problem in problems:
            self.log.error("%s", problem)
        if problems:
            raise AirflowException(f"{len(problems)} problem(s), the first: {problems[0]}")
        raised = [f"{alert.scope}/{alert.cause}" for alert in report.raised]
        self.log.info("%s open run(s), %s new alert(s)", report.open_runs, len(raised))
        return {"open_runs": report.open_runs, "raised": raised}


def run_state(ask: Callable[[str, str], str]) -> Callable[[str, str], str | None]:
    """Return a function that returns a run's state, or None when there is no such run.

    :param ask: Airflow's function, which raises an error for a missing run.
    """

    def state(dag_id: str, run_id: str) -> str | None:
        try:
            # Airflow's answer compares equal to the state's name, but its `str()` does not.
            return DagRunState(ask(dag_id, run_id)).value
        except AirflowRuntimeError as error:
            if _is_missing(error):
                return None
            raise

    return state


def is_paused(ask: Callable[[str], Any], dag_id: str) -> bool:
    """Return whether a DAG is paused; False if the DAG no longer exists.

    :param ask: Airflow's function that returns a DAG, and raises an error for a missing one.
    """
    try:
        return bool(ask(dag_id).is_paused)
    except AirflowRuntimeError as error:
        if _is_missing(error):
            return False
        raise


def _is_missing(error: AirflowRuntimeError) -> bool:
    return bool((error.error.detail or {}).get("status_code") == HTTPStatus.NOT_FOUND)
