"""The tasks of a fine-tuning run: validate, prepare, plan, finetune, report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from model_registry import finetuning_plans, outcomes
from model_registry.errors import RegistryError
from operators import finetuning_data, job_arguments, task_data
from operators.data_job import DataJobOperator
from operators.failures import PipelineFailure, refused_by
from operators.openlineage import TellsOpenLineage
from operators.own_run import own_run, prepared_manifest, tpu_number
from operators.promoted_models import conf_in_use
from operators.task_data import TaskData
from operators.tpu import TpuRunOperator
from operators.validate_base import STARTED_BY_A_DAG, ValidateOperator
from pipeline_alerts.causes import Remedy
from pipeline_config import (
    ConfigError,
    FinetuningConfig,
    load_finetuning_preset,
    parse_finetuning_config,
    with_overrides,
)
from pipeline_config.requests import locked_settings
from pipeline_config.settings import load_settings
from pipeline_store import uris
from pipeline_store.formats import FinetuningReport, FormatError, OutcomeKind, PreparedInput
from pipeline_store.layout import RunLayout, StoreLayout
from preflight import finetuning_settings
from preflight.estimates import estimates, finetuning_estimates
from preflight.run import finetuning
from trained_models.downstream.report import write_report
from trained_models.errors import BadDataError, UserError

if TYPE_CHECKING:
    from airflow.sdk import Context


class ValidateFinetuningOperator(ValidateOperator):
    """Refuses a bad request for a fine-tuning run, and records a good one.

    The log begins with an estimate of time and cost. A scheduled run is skipped if there is nothing
    to do: the preset names no task, or no model is in use yet.

    Returns the names of the tasks to prepare, none in modes that need no records, and pushes
    ``run_uri`` and ``config_uri``.
    """

    def _validate(self, context: Context, store: StoreLayout, run: RunLayout) -> list[str]:
        dag_run = context["dag_run"]
        preset, conf = load_finetuning_preset(self.preset), dag_run.conf or {}
        is_own = dag_run.run_type == STARTED_BY_A_DAG and conf == conf_in_use(preset, store)
        asked = self._asked(preset, conf, store, is_own=is_own)
        if asked.violations:
            raise self._refusal(asked.all_problems(self._other_problems(asked.config, run, store)))
        config = asked.config
        about = {"partition": "", "lineage_id": config.encoder.lineage_id}
        if dag_run.run_type == "scheduled" and (reason := finetuning.idle_reason(config, store)):
            self._record(run, config, dag_run, about)
            raise self._skip(run, f"Nothing to do: {reason}")
        # Settings that depend on the model in use or on another run, resolved once for the run.
        config = finetuning_settings.completed(self._as_begun(config, run), store)
        _require_tasks(preset, config)
        estimate = finetuning_estimates.estimate(config, store)
        for line in estimate.lines:
            self.log.info("%s", line)
        if problems := self._problems(config, store):
            raise self._refusal(problems)
        self._warn_of_a_dead_reaper(store)
        self._record(run, config, dag_run, about)
        estimates.write_estimate(run, estimate)
        if config.run.dry_run:
            raise self._skip(run, "Dry run: all checks passed, and nothing was spent or changed.")
        model = config.text_to_text.init_checkpoint or config.encoder.version
        self.log.info("Run %s: %s on %s", run.root, model, ", ".join(config.finetuning.tasks))
        context["ti"].xcom_push(key="run_uri", value=run.root)
        context["ti"].xcom_push(key="config_uri", value=run.config)
        return finetuning_plans.prepared_tasks(config)

    def _other_problems(
        self, config: FinetuningConfig, run: RunLayout, store: StoreLayout
    ) -> list[str]:
        """Return the problems besides the settings that break a rule."""
        try:
            completed = finetuning_settings.completed(self._as_begun(config, run), store)
        except ConfigError as error:
            return error.violations
        return self._problems(completed, store)

    def _problems(self, config: FinetuningConfig, store: StoreLayout) -> list[str]:
        rental = finetuning_settings.rental_settings(config)
        return finetuning.check(config, store) + self._cloud_problems(rental, store)

    @staticmethod
    def _as_begun(config: FinetuningConfig, run: RunLayout) -> FinetuningConfig:
        """Return the settings, for a cleared run with the version that it began with."""
        data = uris.read_or_none(run.config)
        if data is None or config.encoder.version is not None:
            return config
        begun = parse_finetuning_config(data, run.config)
        return with_overrides(config, {"encoder.version": begun.encoder.version})


def _require_tasks(preset: FinetuningConfig, config: FinetuningConfig) -> None:
    """Check that the ``source_run`` was trained on the preset's tasks, if these are locked.

    :raises ConfigError: it was trained on others.
    """
    recipe, before = config.finetuning, preset.finetuning
    locked = locked_settings(FinetuningConfig, load_settings().locked_settings)
    is_chosen = recipe.source_run != before.source_run and recipe.tasks != before.tasks
    if "finetuning.tasks" in locked and is_chosen:
        line = f"finetuning.source_run: run {recipe.source_run} was trained on "
        tasks = f"{', '.join(recipe.tasks)}, and only the installation sets finetuning.tasks: "
        raise ConfigError([f"{line}{tasks}{', '.join(before.tasks) or 'none'}."])


class PrepareTaskOperator(TellsOpenLineage, DataJobOperator):
    """Turns a labeled task into records, in a separate process or on Dataflow.

    Training data for a T5 is only checked and copied, always on the worker. Finished work is not
    repeated. Returns the job's summary: ``manifest`` and its counts.

    :param task_name: the task, one of the run's. (templated)
    """

    template_fields: Sequence[str] = ("task_name",)

    def __init__(self, *, task_name: Any, **kwargs: Any) -> None:
        super().__init__(module="beam_jobs.prepare_task", **kwargs)
        self.task_name = task_name

    def execute(self, context: Context) -> dict[str, Any]:
        """Prepare the task, and record its manifest with the run."""
        run = own_run(context, self.store_uri)
        config = parse_finetuning_config(uris.read(run.config), run.config)
        if self.task_name not in config.finetuning.tasks:
            raise PipelineFailure(
                Remedy.MEND_AND_CLEAR,
                f"Task {self.task_name!r} is none of this run's ({run.config}: "
                f"{', '.join(config.finetuning.tasks)}). The names come from the XCom return_value "
                "of validate, which somebody has changed: clear validate.",
            )
        if config.text_to_text.init_checkpoint is not None:
            self.module = "training.prepare_text_to_text"
        summary = super().execute(context)
        PreparedInput(manifest=summary["manifest"]).write(run.prepared_task(self.task_name))
        return summary

    def command_line(self, context: Context) -> list[str]:
        """Return the module's arguments."""
        run = own_run(context, self.store_uri)
        words = ["--config", run.config, "--store", self.store_uri, "--task", self.task_name]
        config = parse_finetuning_config(uris.read(run.config), run.config)
        if config.text_to_text.init_checkpoint is not None:
            return words
        return [*words, *super().command_line(context)]

    def task_data(self, run: RunLayout, number: int) -> TaskData:
        """Return the data that the task has read and written, by the store's records."""
        return task_data.of_tasks(run, [self.task_name])


class PlanFinetuningOperator(TellsOpenLineage, BaseOperator):
    """Decides once what the run trains or uses, and divides the trials among its TPUs.

    Returns a list with an item per TPU: ``run_uri``, the folder that it is rented for, and the
    ``arguments`` of its job; an empty list in modes that need no TPU. Airflow maps a group of tasks
    over it, which derive both values themselves. The first TPU is rented for the run's own folder.
    Each further one has a folder of its own, with the run's configuration, so that reaper, ledger
    and agent handle it like any other.

    :param store_uri: root of the store.
    """

    def __init__(self, *, store_uri: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.store_uri = store_uri

    def execute(self, context: Context) -> list[dict[str, Any]]:
        """Plan, and make the folders that TPUs are rented for."""
        store, run = StoreLayout(self.store_uri), own_run(context, self.store_uri)
        # The run begins, or goes on: its earlier outcome no longer counts.
        outcomes.reopen(run)
        config = parse_finetuning_config(uris.read(run.config), run.config)
        manifests = {
            task: prepared_manifest(run.prepared_task(task), "prepare")
            for task in finetuning_plans.prepared_tasks(config)
        }
        try:
            plan = finetuning_plans.make_plan(store, run, config, manifests)
        except RegistryError as error:
            # Another try cannot help.
            raise refused_by(error) from error
        for line in finetuning_estimates.plan_lines(config, plan, store):
            self.log.info("%s", line)
        count = finetuning_plans.rental_count(config, plan)
        return [
            {"run_uri": rental.root, "arguments": job_arguments.finetune(run, store, number)}
            for number, rental in enumerate(finetuning_plans.make_rentals(store, run, count))
        ]

    def task_data(self, run: RunLayout, number: int) -> TaskData:
        """Return the data that the task has read and written, by the store's records."""
        return finetuning_data.of_plan(run)


class TpuFinetuneOperator(TellsOpenLineage, TpuRunOperator):
    """Trains the share of the run's trials that is assigned to the task's TPU."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(entry_point="training.finetune", **kwargs)

    def job_arguments(self, context: Context) -> list[str]:
        """Return the module's command line."""
        store = StoreLayout(self.store_uri)
        run = own_run(context, self.store_uri)
        return job_arguments.finetune(run, store, tpu_number(context))

    def task_data(self, run: RunLayout, number: int) -> TaskData:
        """Return the data that the task has read and written, by the store's records."""
        return finetuning_data.of_finetune(run, number)


class ReportFinetuningOperator(TellsOpenLineage, BaseOperator):
    """Combines the results of all trials: scores over seeds, and whether re-pretraining paid off.

    Writes ``training_summary.json`` and a page made from it, and the run's outcome.

    Returns the best trial of each task, by task.

    :param store_uri: root of the store.
    """

    def __init__(self, *, store_uri: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.store_uri = store_uri

    def execute(self, context: Context) -> dict[str, str]:
        """Write the report and show it."""
        store, run = StoreLayout(self.store_uri), own_run(context, self.store_uri)
        outcomes.reopen(run)
        try:
            report = write_report(store, run)
        except (UserError, BadDataError, FormatError) as error:
            # Another try cannot help.
            raise refused_by(error) from error
        for line in report_lines(report):
            self.log.info("%s", line)
        config = parse_finetuning_config(uris.read(run.config), run.config)
        best = {
            summary.task: summary.best_trial
            for summary in report.tasks
            if summary.model == finetuning_plans.MODEL
        }
        # Otherwise the last task that uses the classifiers ends the run.
        if not (config.finetuning.export_formats or config.compression.children):
            reason = f"best of each task: {', '.join(best.values())}"
            outcomes.record(run, OutcomeKind.COMPLETED, reason, written_by=self.task_id)
        return best

    def task_data(self, run: RunLayout, number: int) -> TaskData:
        """Return the data that the task has read and written, by the store's records."""
        return finetuning_data.of_report(run)


def report_lines(report: FinetuningReport) -> Iterator[str]:
    """Yield a report's numbers as lines for a log."""
    for summary in report.tasks:
        metrics = ", ".join(
            f"{name} {one.mean:.4f} ± {one.deviation:.4f} "
            f"(majority {summary.majority.get(name, float('nan')):.4f})"
            for name, one in summary.metrics.items()
        )
        yield (
            f"{summary.task}, {summary.model}, rate {summary.learning_rate:g}, "
            f"{len(summary.random_seeds)} seed(s), on the test split: {metrics or 'not measured'}"
        )
    for comparison in report.comparisons:
        yield f"Did it pay? {comparison.sentence}"
