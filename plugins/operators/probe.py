"""Probes on labeled tasks before promotion: prepares the tasks, then tries both models on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowSkipException

from model_registry import gate
from operators import job_arguments, task_data
from operators.data_job import DataJobOperator
from operators.failures import PipelineFailure
from operators.openlineage import TellsOpenLineage
from operators.own_run import own_run
from operators.task_data import TaskData
from operators.tpu import TpuRunOperator
from operators.tpu_failures import FailureKind, TpuTaskFailed
from pipeline_alerts.causes import Remedy
from pipeline_config import parse_config
from pipeline_store import uris
from pipeline_store.formats import PreparedInput, TaskManifest
from pipeline_store.layout import RunLayout, StoreLayout

if TYPE_CHECKING:
    from airflow.sdk import Context


class ProbeDataOperator(TellsOpenLineage, DataJobOperator):
    """Turns the labeled tasks of ``promotion.probe_tasks`` into records, one after the other.

    Skipped when there are none. A task that is prepared already is left alone. Fails when a task
    has too few test examples to judge a candidate.

    Returns ``manifests``, the URI of each task's TaskManifest.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(module="beam_jobs.prepare_task", **kwargs)

    def execute(self, context: Context) -> dict[str, Any]:
        """Prepare each task in a process of its own."""
        run = own_run(context, self.store_uri)
        config = parse_config(uris.read(run.config), run.config)
        tasks = config.promotion.probe_tasks
        if not tasks:
            raise AirflowSkipException(
                "promotion.probe_tasks is empty: the candidate is judged by its loss alone."
            )
        manifests = []
        for name in tasks:
            self.arguments = ["--config", run.config, "--store", self.store_uri, "--task", name]
            manifests.append(super().execute(context)["manifest"])
            PreparedInput(manifest=manifests[-1]).write(run.prepared_task(name))
        problems = [gate.too_few_examples(TaskManifest.load(uri)) for uri in manifests]
        if found := [line for line in problems if line]:
            raise PipelineFailure(Remedy.CHANGE_REQUEST, "\n".join(found))
        return {"manifests": manifests}

    def task_data(self, run: RunLayout, number: int) -> TaskData:
        """Return the data that the task has read and written, by the store's records."""
        config = parse_config(uris.read(run.config), run.config)
        return task_data.of_tasks(run, config.promotion.probe_tasks)


class TpuProbeOperator(TellsOpenLineage, TpuRunOperator):
    """Fine-tunes candidate and model in use on labeled tasks, on the run's TPU.

    Fails before it asks for a TPU when a task was not prepared, or when there are no tasks.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(entry_point="training.probe", **kwargs)

    def execute(self, context: Context) -> Any:
        """Run the job, if there is something to probe on."""
        if not job_arguments.probe_manifests(own_run(context, self.store_uri)):
            raise TpuTaskFailed(
                FailureKind.USER_ERROR,
                "promotion.probe_tasks is empty, so there is nothing to probe on. Was probe_data "
                "marked as success by hand? Such a run skips it, and this task with it.",
            )
        return super().execute(context)

    def job_arguments(self, context: Context) -> list[str]:
        """Return the module's command line."""
        run = own_run(context, self.store_uri)
        words = job_arguments.probe(run, StoreLayout(self.store_uri))
        return [*words, *job_arguments.probe_manifests(run)]

    def task_data(self, run: RunLayout, number: int) -> TaskData:
        """Return the data that the task has read and written, by the store's records."""
        return task_data.of_probe(run)
