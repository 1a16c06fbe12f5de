"""Tasks of a re-pretraining run on its TPU: training and evaluation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from operators import job_arguments, task_data
from operators.openlineage import TellsOpenLineage
from operators.own_run import own_run
from operators.task_data import TaskData
from operators.tpu import TpuRunOperator
from pipeline_store.layout import RunLayout, StoreLayout

if TYPE_CHECKING:
    from airflow.sdk import Context


class TpuTrainOperator(TellsOpenLineage, TpuRunOperator):
    """Trains the run's candidate on the data in its plan."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(entry_point="training.train", **kwargs)

    def job_arguments(self, context: Context) -> list[str]:
        """Return the module's command line."""
        run = own_run(context, self.store_uri)
        return job_arguments.train(run, StoreLayout(self.store_uri))

    def task_data(self, run: RunLayout, number: int) -> TaskData:
        """Return the data that the task has read and written, by the store's records."""
        return task_data.of_train(run)


class TpuEvaluateOperator(TellsOpenLineage, TpuRunOperator):
    """Scores candidate and model in use on the held-out documents that the run's plan names."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(entry_point="training.evaluate", **kwargs)

    def job_arguments(self, context: Context) -> list[str]:
        """Return the module's command line."""
        run = own_run(context, self.store_uri)
        return job_arguments.evaluate(run, StoreLayout(self.store_uri))

    def task_data(self, run: RunLayout, number: int) -> TaskData:
        """Return the data that the task has read and written, by the store's records."""
        return task_data.of_evaluate(run)
