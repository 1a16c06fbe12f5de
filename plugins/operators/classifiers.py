"""What is done with fine-tuned classifiers, on the worker's CPU: they are exported and used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowSkipException

from model_registry import outcomes
from operators.python_module import PythonModuleOperator
from pipeline_config import parse_finetuning_config
from pipeline_store import uris
from pipeline_store.formats import FinetuningPlan, OutcomeKind
from pipeline_store.layout import RunLayout, StoreLayout
from preflight.finetuning import predict_files

if TYPE_CHECKING:
    from airflow.sdk import Context

    from pipeline_config import FinetuningConfig


class ExportClassifiersOperator(PythonModuleOperator):
    """Writes the best classifier of each task in ``finetuning.export_formats`` and checks them.

    Skipped when there are none. TensorFlow runs in a process of its own, on the worker's CPU: some
    minutes and a few times the model's size in memory. The run is completed then.

    Returns the job's summary, by trial.

    :param store_uri: root of the store.
    :param run_uri: folder of the run. (templated)
    """

    template_fields: Sequence[str] = ("run_uri",)

    def __init__(self, *, store_uri: str, run_uri: Any, **kwargs: Any) -> None:
        super().__init__(module="training.export_classifier", arguments=[], **kwargs)
        self.store_uri = store_uri
        self.run_uri = run_uri

    def execute(self, context: Context) -> dict[str, Any]:
        """Run the export, if formats are named."""
        run = RunLayout(self.run_uri)
        formats = _config(run).finetuning.export_formats
        if not formats:
            raise AirflowSkipException("finetuning.export_formats is empty: nothing is exported.")
        summary = super().execute(context)
        reason = f"{', '.join(summary)} exported as {', '.join(formats)}"
        outcomes.record(run, OutcomeKind.COMPLETED, reason, written_by=self.task_id)
        return summary

    def command_line(self, context: Context) -> list[str]:
        """Return the module's arguments."""
        return ["--run", self.run_uri, "--store", self.store_uri]


class PredictOperator(PythonModuleOperator):
    """Labels the files that each task names by ``predict``, by its best classifier.

    Skipped unless ``finetuning.mode`` is predict. TensorFlow runs in a process of its own, on the
    worker's CPU. The run is completed then.

    Returns the file with the predictions, by task.

    :param store_uri: root of the store.
    :param run_uri: folder of the run. (templated)
    """

    template_fields: Sequence[str] = ("run_uri",)

    def __init__(self, *, store_uri: str, run_uri: Any, **kwargs: Any) -> None:
        super().__init__(module="training.predict", arguments=[], **kwargs)
        self.store_uri = store_uri
        self.run_uri = run_uri

    def execute(self, context: Context) -> dict[str, Any]:
        """Run the prediction of each task in a process of its own."""
        run, store = RunLayout(self.run_uri), StoreLayout(self.store_uri)
        if _config(run).finetuning.mode != "predict":
            raise AirflowSkipException("finetuning.mode is not predict: nothing is predicted.")
        written: dict[str, Any] = {}
        for trial in FinetuningPlan.load(run.finetuning_plan).trials:
            self.arguments = ["--run", self.run_uri, "--store", self.store_uri]
            self.arguments += ["--trial", trial.trial_id]
            for file in predict_files(store, trial.task):
                self.arguments += ["--input", file]
            written[trial.task] = super().execute(context)["predictions"]
        reason = f"the files of {', '.join(written)} are labelled: {', '.join(written.values())}"
        outcomes.record(run, OutcomeKind.COMPLETED, reason, written_by=self.task_id)
        return written


def _config(run: RunLayout) -> FinetuningConfig:
    return parse_finetuning_config(uris.read(run.config), run.config)
