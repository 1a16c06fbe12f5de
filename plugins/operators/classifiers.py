"""What is done with fine-tuned classifiers, on the worker's CPU: they are exported and used."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from corpus.errors import UserError
from model_registry import outcomes
from operators.own_run import own_run
from operators.python_module import PythonModuleOperator
from pipeline_config import ConfigError, parse_finetuning_config
from pipeline_config.settings import load_settings
from pipeline_store import request_paths, uris
from pipeline_store.formats import FinetuningPlan, OutcomeKind
from pipeline_store.layout import RunLayout, StoreLayout
from preflight.request import request_roots
from preflight.run.finetuning import predict_files

if TYPE_CHECKING:
    from airflow.sdk import Context

    from pipeline_config.finetuning import RecipeConfig


class ClassifierOperator(PythonModuleOperator):
    """Base of the operators that use what a fine-tuning run, or its ``source_run``, has trained.

    Skipped when the run is not to do this. TensorFlow runs in a process of its own, on the worker's
    CPU: some minutes and a few times the model's size in memory. The run is completed then.

    """

    def execute(self, context: Context) -> dict[str, Any]:
        """Do the work, if it is to be done, and record that the run is completed."""
        run = own_run(context, self.store_uri)
        recipe = parse_finetuning_config(uris.read(run.config), run.config).finetuning
        if reason := self._idle_reason(recipe):
            raise AirflowSkipException(reason)
        # The run goes on: what it ended with before does not count any more.
        outcomes.reopen(run)
        result, reason = self._use(context, run, recipe)
        outcomes.record(run, OutcomeKind.COMPLETED, reason, written_by=self.task_id)
        return result

    @abstractmethod
    def _idle_reason(self, recipe: RecipeConfig) -> str | None:
        """Return why there is nothing to do, or None."""

    @abstractmethod
    def _use(
        self, context: Context, run: RunLayout, recipe: RecipeConfig
    ) -> tuple[dict[str, Any], str]:
        """Do the work; return the task's result, and what the run came to in a sentence."""

    def _run_job(self, context: Context, *arguments: str) -> dict[str, Any]:
        """Run the module on the run, and return its summary."""
        run = own_run(context, self.store_uri)
        self.arguments = ["--run", run.root, "--store", self.store_uri, *arguments]
        return super().execute(context)


class ExportClassifiersOperator(ClassifierOperator):
    """Writes the best classifier of each task in ``finetuning.export_formats`` and checks them.

    Returns the job's summary, by trial.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(module="training.export_classifier", **kwargs)

    def _idle_reason(self, recipe: RecipeConfig) -> str | None:
        if recipe.export_formats:
            return None
        return "finetuning.export_formats is empty: nothing is exported."

    def _use(
        self, context: Context, run: RunLayout, recipe: RecipeConfig
    ) -> tuple[dict[str, Any], str]:
        summary = self._run_job(context)
        return summary, f"{', '.join(summary)} exported as {', '.join(recipe.export_formats)}"


class PredictOperator(ClassifierOperator):
    """Labels the files that each task names by ``predict``, by its best classifier.

    The files are those that the task names now: the classifiers were trained by an earlier run, and
    what that one prepared knows nothing of new files.

    Returns the file with the predictions, by task.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(module="training.predict", **kwargs)

    def _idle_reason(self, recipe: RecipeConfig) -> str | None:
        if recipe.mode == "predict":
            return None
        return "finetuning.mode is not predict: nothing is predicted."

    def _use(
        self, context: Context, run: RunLayout, recipe: RecipeConfig
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
            raise AirflowFailException(str(error)) from error
