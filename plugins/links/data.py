"""Buttons on the data job's task page: its report, and the Dataflow job when there is one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperatorLink

from hooks.addresses import page_path

if TYPE_CHECKING:
    from airflow.sdk.types import TaskInstanceKey


class DataReportLink(BaseOperatorLink):
    """The page with the statistics of the partition's data; empty until it is written."""

    name = "Data report"

    def get_link(self, operator: Any, *, ti_key: TaskInstanceKey) -> str:
        """Return the page's address; called in the worker, when the task has ended."""
        if not operator.report_partition:
            return ""
        return page_path(
            "data-report",
            dag_id=ti_key.dag_id,
            run_id=ti_key.run_id,
            partition=operator.report_partition,
        )


class DataflowJobLink(BaseOperatorLink):
    """The job in the Google Cloud console; empty when the work is done on this machine.

    The operator stores the address itself as soon as it knows it, so that the button is there while
    the job runs.
    """

    name = "Dataflow job"

    def get_link(self, operator: Any, *, ti_key: TaskInstanceKey) -> str:
        """Return the page of the job that the task used last."""
        return operator.dataflow_url or ""
