"""Runs a data job as a task: on this machine, or on Dataflow with project, labels and a link."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperatorLink

from links.task_page import DataflowJobLink
from model_registry import outcomes
from operators.own_run import own_run
from operators.python_module import PythonModuleOperator
from pipeline_config import parse_rental_config
from pipeline_store import identity, uris
from tpu_lifecycle.service.labels import DAG, RUN_KEY, label_value

if TYPE_CHECKING:
    from airflow.sdk import Context

# Only the console's own pages: a log line may also contain the name of a user's file.
_DATAFLOW = re.compile(
    r"\bdataflow job (?P<id>[A-Za-z0-9_:.-]+) "
    r"(?P<url>https://console\.cloud\.google\.com/dataflow/[^\s\"<>]+)"
)


class DataJobOperator(PythonModuleOperator):
    """Runs a data job in a separate process or on Dataflow, as the run's ``beam.runner`` says.

    While a Dataflow job runs, the XCom ``dataflow_job`` holds its id, and the task has a button
    that links to it.

    :param gcp_conn_id: connection whose project a Dataflow job runs in.
    """

    operator_extra_links: tuple[BaseOperatorLink, ...] = (DataflowJobLink(),)

    def __init__(self, *, gcp_conn_id: str = "google_cloud_default", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.gcp_conn_id = gcp_conn_id
        self.dataflow_url: str | None = None

    def execute(self, context: Context) -> dict[str, Any]:
        """Run the job to its end."""
        # A person may have cleared the task: the run's earlier outcome no longer counts.
        outcomes.reopen(own_run(context, self.store_uri))
        summary = super().execute(context)
        self.dataflow_url = summary.get("dataflow_link", self.dataflow_url)
        return summary

    def command_line(self, context: Context) -> list[str]:
        """Return the arguments; for Dataflow, with the project and with labels for billing."""
        arguments = super().command_line(context)
        run = own_run(context, self.store_uri)
        config = parse_rental_config(uris.read(run.config), run.config)
        if config.beam.runner != "DataflowRunner":
            return arguments
        # Imported late: Google's provider is slow to load, and DAG files import this module.
        from hooks.tpu import TpuHook

        dag_run = context["dag_run"]
        run_key = identity.run_key(dag_run.dag_id, dag_run.run_id)
        labels = {DAG: label_value(dag_run.dag_id), RUN_KEY: run_key}
        for name, value in labels.items():
            arguments += ["--label", f"{name}={value}"]
        return [*arguments, f"--project={TpuHook(self.gcp_conn_id).project_id}"]

    def heard(self, line: str, context: Context) -> None:
        """Link to the Dataflow job as soon as the log names it, before the task has ended."""
        match = _DATAFLOW.search(line)
        if match is None or match["url"] == self.dataflow_url:
            return
        self.dataflow_url = match["url"]
        context["ti"].xcom_push(key="dataflow_job", value=match["id"])
        context["ti"].xcom_push(key=DataflowJobLink().xcom_key, value=match["url"])
