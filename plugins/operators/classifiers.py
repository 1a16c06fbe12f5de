"""Exports, compresses and applies fine-tuned classifiers, on the worker's CPU."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowSkipException

from corpus.errors import UserError
from model_registry import outcomes
from operators import finetuning_data
from operators.failures import PipelineFailure
from operators.openlineage import TellsOpenLineage
from operators.own_run import own_run
from operators.python_module import PythonModuleOperator
from operators.task_data import TaskData
from pipeline_alerts.causes import Remedy
from pipeline_config import ConfigError, parse_finetuning_config
from pipeline_config.settings import load_settings
from pipeline_store import request_paths, uris
from pipeline_store.formats import FinetuningPlan, OutcomeKind
from pipeline_store.layout import RunLayout, StoreLayout
from preflight.request import request_roots
from preflight.run.finetuning import predict_files

if TYPE_CHECKING:
    from airflow.sdk import Context

    from pipeline_config.finetuning import FinetuningConfig


class ClassifierOperator(PythonModuleOperator):
    """Base of the operators that use the classifiers of a fine-tuning run or its ``source_run``.

    Skipped when the run's settings do not ask for it. TensorFlow runs in a separate process, on the
    worker's CPU: some minutes and a few times the model's size in memory. Afterwards the run is
    recorded as completed.

    """

    def execute(self, context: Context) -> dict[str, Any]:
        """Do the work, if it is to be done, and record that the run is completed."""
        run = own_run(context, self.store_uri)
        config = parse_finetuning_config(uris.read(run.config), run.config)
        if reason := self._idle_reason(config):
            raise AirflowSkipException(reason)
        # The run goes on: its earlier outcome no longer counts.
        outcomes.reopen(run)
        result, reason = self._use(context, run, config)
        outcomes.record(run, OutcomeKind.COMPLETED, reason, written_by=self.task_id)
        return result

    @abstractmethod
    def _idle_reason(self, config: FinetuningConfig) -> str | None:
        """Return why there is nothing to do, or None."""

    @abstractmethod
    def _use(
        self, context: Context, run: RunLayout, config: FinetuningConfig
    ) -> tuple[dict[str, Any], str]:
        """Do the work; return the task's result, and one sentence on the run's outcome."""

    def _run_job(self, context: Context, *arguments: str) -> dict[str, Any]:
        """Run the module on the run, and return its summary."""
        run = own_run(context, self.store_uri)
        self.arguments = ["--run", run.root, "--store", self.store_uri, *arguments]
        return super().execute(context)


class ExportClassifiersOperator(TellsOpenLineage, ClassifierOperator):
    """Writes the best classifier of each task in ``finetuning.export_formats`` and checks them.

    Returns the job's summary, by trial.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(module="training.export_classifier", **kwargs)

    def _idle_reason(self, config: FinetuningConfig) -> str | None:
        if config.finetuning.export_formats:
            return None
        return "finetuning.export_formats is empty: nothing is exported."

    def _use(
        self, context: Context, run: RunLayout, config: FinetuningConfig
    ) -> tuple[dict[str, Any], str]:
        summary = self._run_job(context)
        return (
            summary,
            f"{', '.join(summary)} exported as {', '.join(config.finetuning.export_formats)}",
        )

    def task_data(self, run: RunLayout, number: int) -> TaskData:
        """Return the data that the task has read and written, by the store's records."""
        return finetuning_data.of_export(run)


class CompressClassifiersOperator(ClassifierOperator):
    """Compresses the best classifier of each task to the models of ``compression.children``.

    A model that its gate refuses fails no task: the table and the log say why.

    Returns whether each is accepted, by trial and child.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(module="training.compress", **kwargs)

    def _idle_reason(self, config: FinetuningConfig) -> str | None:
        if config.compression.children:
            return None
        return "compression.children is empty: no smaller models are made."

    def _use(
        self, context: Context, run: RunLayout, config: FinetuningConfig
    ) -> tuple[dict[str, Any], str]:
        wanted = config.compression.children
        found = {
            trial: {row["child"]: row["accepted"] for row in rows if row["child"] in wanted}
            for trial, rows in self._run_job(context).items()
        }
        accepted = sum(sum(children.values()) for children in found.values())
        total = sum(map(len, found.values()))
        return found, f"{accepted} of {total} smaller models of {', '.join(found)} are accepted"


class PredictOperator(ClassifierOperator):
    """Labels the files in each task's ``predict`` with the task's best classifier.

    The files are those that the task names now: an earlier run trained the classifiers, and the
    data that it prepared does not include new files.

    Returns the file with the predictions, by task.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(module="training.predict", **kwargs)

    def _idle_reason(self, config: FinetuningConfig) -> str | None:
        if config.finetuning.mode == "predict":
            return None
        return "finetuning.mode is not predict: nothing is predicted."

    def _use(
        self, context: Context, run: RunLayout, config: FinetuningConfig
    ) -> tuple[dict[str, Any], str]:
        written: dict[str, Any] = {}
        for trial in FinetuningPlan.load(run.finetuning_plan).trials:
            arguments = ["--trial", trial.trial_id]
            for file in self._files(trial.task):
                arguments += ["--input", file]
            written[trial.task] = self._run_job(context, *arguments)["predictions"]
        return written, (
            f"the files of {', '.join(written)} are labelled: {', '.join(written.values())}"
        )

    def _files(self, task: str) -> list[str]:
        store = StoreLayout(self.store_uri)
        try:
            with request_paths.limited_to(request_roots(load_settings(), store)):
                return predict_files(store, task)
        except (ConfigError, UserError) as error:
            # Another try cannot help.
            raise PipelineFailure(Remedy.CHANGE_REQUEST, str(error)) from error
