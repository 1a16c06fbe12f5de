"""Runs the data jobs on a run's own partition, as tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperatorLink

from corpus.partitions import input_patterns
from links.task_page import DataflowJobLink, DataReportLink
from operators import task_data
from operators.data_job import DataJobOperator
from operators.openlineage import TellsOpenLineage
from operators.own_run import own_run
from operators.python_module import PythonModuleOperator
from operators.task_data import TaskData
from pipeline_config import parse_config
from pipeline_config.settings import load_settings
from pipeline_store import request_paths, uris
from pipeline_store.formats import BackfillRuns, PreparedInput, RunRecord
from pipeline_store.layout import RunLayout, StoreLayout
from preflight.request import request_roots

if TYPE_CHECKING:
    from airflow.sdk import Context


class TrainVocabularyOperator(TellsOpenLineage, PythonModuleOperator):
    """Makes the lineage's vocabulary, unless it has one.

    It is made from the run's partition, and in a backfill from the oldest one with text, whichever
    of the backfill's runs comes first. Returns the job's summary.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(module="beam_jobs.train_vocabulary", **kwargs)

    def command_line(self, context: Context) -> list[str]:
        """Return the module's arguments."""
        run = own_run(context, self.store_uri)
        partition = first_partition(StoreLayout(self.store_uri), run)
        arguments = ["--config", run.config, "--store", self.store_uri, "--partition", partition]
        return [*arguments, *super().command_line(context)]

    def task_data(self, run: RunLayout, number: int) -> TaskData:
        """Return the data that the task has read and written, by the store's records."""
        return task_data.of_vocabulary(run)


class PrepareCorpusOperator(TellsOpenLineage, DataJobOperator):
    """Turns the run's partition into records, in a separate process or on Dataflow.

    The URI of the manifest is kept with the run, for the task that plans. Returns the job's
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

    def task_data(self, run: RunLayout, number: int) -> TaskData:
        """Return the data that the task has read and written, by the store's records."""
        return task_data.of_prepare(run)


def first_partition(store: StoreLayout, run: RunLayout) -> str:
    """Return the oldest partition of the run's backfill that has text, else the run's own."""
    record = RunRecord.load(run.record)
    if record.backfill is None:
        return record.partition
    config = parse_config(uris.read(run.config), run.config)
    listed = BackfillRuns.load(store.backfill(record.backfill))
    older = sorted(name for name in listed.runs.values() if name < record.partition)
    with request_paths.limited_to(request_roots(load_settings(), store)):
        for name in older:
            patterns = input_patterns(config.corpus.input_pattern, name, store)
            if any(request_paths.glob(pattern) for pattern in patterns):
                return name
    return record.partition


def partition_arguments(context: Context, store_uri: str) -> list[str]:
    """Return a data job's arguments for the run: its configuration, the store, its partition."""
    run = own_run(context, store_uri)
    partition = RunRecord.load(run.record).partition
    return ["--config", run.config, "--store", store_uri, "--partition", partition]
