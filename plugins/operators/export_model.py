"""Exports the promoted candidate in other formats, as a task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowSkipException

from operators import task_data
from operators.openlineage import TellsOpenLineage
from operators.own_run import own_run
from operators.python_module import PythonModuleOperator
from operators.task_data import TaskData
from pipeline_store.formats import RunPlan, Verdict, VerdictKind
from pipeline_store.layout import RunLayout

if TYPE_CHECKING:
    from airflow.sdk import Context


class ExportModelOperator(TellsOpenLineage, PythonModuleOperator):
    """Writes a run's candidate in the formats of ``promotion.export_formats`` and checks them.

    Skipped when the verdict is a rejection. TensorFlow runs in a process of its own, on the
    worker's CPU: some minutes and a few times the model's size in memory.

    Returns the job's summary: the folder of each format and its deviation from the model.

    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(module="training.export_model", **kwargs)

    def execute(self, context: Context) -> dict[str, Any]:
        """Run the export, if the candidate is to be published."""
        run = own_run(context, self.store_uri)
        verdict = Verdict.load(run.verdict(RunPlan.load(run.plan).parent_version))
        if verdict.verdict is not VerdictKind.PROMOTED:
            raise AirflowSkipException(f"Nothing to publish: {verdict.reason}")
        return super().execute(context)

    def command_line(self, context: Context) -> list[str]:
        """Return the module's arguments."""
        run = own_run(context, self.store_uri)
        source = ["--model", run.training.root, "--config", run.config]
        return [*source, "--store", self.store_uri, "--output", run.exports.root]

    def task_data(self, run: RunLayout, number: int) -> TaskData:
        """Return the data that the task has read and written, by the store's records."""
        return task_data.of_export(run)
