"""The data jobs over a run's own partition, as tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperatorLink

from links.data import DataflowJobLink, DataReportLink
from operators.data_job import DataJobOperator
from operators.own_run import own_run
from operators.python_module import PythonModuleOperator
from pipeline_store.formats import PreparedInput, RunRecord

if TYPE_CHECKING:
    from airflow.sdk import Context


class TrainVocabularyOperator(PythonModuleOperator):
    """Makes the lineage's vocabulary from the run's partition, unless it has one.

    Returns the job's summary.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(module="beam_jobs.train_vocabulary", **kwargs)

    def command_line(self, context: Context) -> list[str]:
        """Return the module's arguments."""
        return [*partition_arguments(context, self.store_uri), *super().command_line(context)]


class PrepareCorpusOperator(DataJobOperator):
    """Turns the run's partition into records, in a process of its own or on Dataflow.

    Which manifest it has made is kept with the run, for the task that plans. Returns the job's
    summary: ``manifest``, ``report`` and its counts.
    """

    operator_extra_links: tuple[BaseOperatorLink, ...] = (DataReportLink(), DataflowJobLink())

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(module="beam_jobs.prepare_corpus", **kwargs)
        self.report_partition: str | None = None

    def execute(self, context: Context) -> dict[str, Any]:
        """Run the job to its end."""
        summary = super().execute(context)
        run = own_run(context, self.store_uri)
        PreparedInput(manifest=summary["manifest"]).write(run.prepared_partition)
        if "report" in summary:
            self.report_partition = RunRecord.load(run.record).partition
        return summary

    def command_line(self, context: Context) -> list[str]:
        """Return the module's arguments."""
        return [*partition_arguments(context, self.store_uri), *super().command_line(context)]


def partition_arguments(context: Context, store_uri: str) -> list[str]:
    """Return what tells a data job the task's run: its configuration, the store, its partition."""
    run = own_run(context, store_uri)
    partition = RunRecord.load(run.record).partition
    return ["--config", run.config, "--store", store_uri, "--partition", partition]
