"""Buttons on tasks' pages: the run's folder, the TPU, the data's report, and the Dataflow job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperatorLink

from hooks.addresses import page_path

if TYPE_CHECKING:
    from airflow.sdk.types import TaskInstanceKey

from typing import TYPE_CHECKING

from pipeline_store import uris
from tpu_lifecycle.service import connecting

if TYPE_CHECKING:
    from airflow.sdk.types import TaskInstanceKey


class RunFolderLink(BaseOperatorLink):
    """Link to the run's configuration, mailbox, logs and results; empty for a local folder.

    No browser opens a local folder from a page, and the tab *Model* shows its content.
    """

    name = "Run folder"

    def get_link(self, operator: Any, *, ti_key: TaskInstanceKey) -> str:
        """Return the folder's address; called in the worker, once the task has found the folder."""
        return uris.browser_url(operator.run_uri) if operator.run_uri else ""


class TpuConsoleLink(BaseOperatorLink):
    """Link to the TPU in the Google Cloud console; empty without a TPU, and with an emulator."""

    name = "Cloud TPU"

    def get_link(self, operator: Any, *, ti_key: TaskInstanceKey) -> str:
        """Return the page of the TPU that the task used last."""
        place = getattr(operator, "tpu_place", None)
        if place is None:
            return ""
        project_id, name = place
        page = connecting.facts().console
        return page.format(zone=name.zone, id=name.resource_id, project=project_id)


class DataReportLink(BaseOperatorLink):
    """Link to the page with the statistics of the partition's data; empty until it is written."""

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
    """Link to the job in the Google Cloud console; empty when the job runs on this machine.

    The operator stores the address itself as soon as it knows it, so that the button appears while
    the job runs.
    """

    name = "Dataflow job"

    def get_link(self, operator: Any, *, ti_key: TaskInstanceKey) -> str:
        """Return the page of the job that the task used last."""
        return operator.dataflow_url or ""
