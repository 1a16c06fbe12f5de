"""The data job as a task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperatorLink

from links.data import DataflowJobLink, DataReportLink
from operators.data_job import DataJobOperator

if TYPE_CHECKING:
    from airflow.sdk import Context


class PrepareCorpusOperator(DataJobOperator):
    """Turns a partition's text into records, in a process of its own or on Dataflow.

    Returns the job's summary: ``manifest``, ``report`` and its counts.

    :param arguments: command line of ``beam_jobs.prepare_corpus``. (templated)
    """

    operator_extra_links: tuple[BaseOperatorLink, ...] = (DataReportLink(), DataflowJobLink())

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(module="beam_jobs.prepare_corpus", **kwargs)
        self.report_uri: str | None = None

    def execute(self, context: Context) -> dict[str, Any]:
        """Run the job to its end."""
        summary = super().execute(context)
        self.report_uri = summary.get("report")
        return summary
