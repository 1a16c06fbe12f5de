"""Buttons on the task page: the run's folder in the store, and the TPU in the cloud console."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperatorLink

from pipeline_store import uris
from tpu_lifecycle.service import connecting

if TYPE_CHECKING:
    from airflow.sdk.types import TaskInstanceKey


class RunFolderLink(BaseOperatorLink):
    """Where the run's configuration, mailbox, logs and results are; empty of a folder.

    No browser opens a folder of its machine from a page, and the tab *Model* shows what is in it.
    """

    name = "Run folder"

    def get_link(self, operator: Any, *, ti_key: TaskInstanceKey) -> str:
        """Return the folder's address; called in the worker, when the task has found it."""
        return uris.browser_url(operator.run_uri) if operator.run_uri else ""


class TpuConsoleLink(BaseOperatorLink):
    """The TPU in the Google Cloud console; empty while there is none, and with an emulator."""

    name = "Cloud TPU"

    def get_link(self, operator: Any, *, ti_key: TaskInstanceKey) -> str:
        """Return the page of the TPU that the task used last."""
        place = getattr(operator, "tpu_place", None)
        if place is None:
            return ""
        project_id, name = place
        page = connecting.facts().console
        return page.format(zone=name.zone, id=name.resource_id, project=project_id)
