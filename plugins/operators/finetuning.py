"""The tasks of a fine-tuning run that need no TPU: validate, prepare, plan, report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException

from model_registry import finetuning_plans, outcomes
from model_registry.errors import RegistryError
from operators.data_job import DataJobOperator
from operators.validate_base import ValidateOperator
from pipeline_config import (
    FinetuningConfig,
    load_finetuning_preset,
    parse_finetuning_config,
    with_overrides,
)
from pipeline_store import uris
from pipeline_store.formats import FinetuningReport, FormatError, OutcomeKind, TaskManifest
from pipeline_store.layout import RunLayout, StoreLayout
from preflight import finetuning_settings
from preflight.estimates import estimates, finetuning_estimates
from preflight.run import finetuning
from trained_models.downstream.report import write_report
from trained_models.errors import BadDataError, UserError

if TYPE_CHECKING:
    from airflow.sdk import Context

TPU_MODES = ("train_and_eval", "train", "eval")
"""Of ``finetuning.mode``; the others use what was trained, on the worker."""


class ValidateFinetuningOperator(ValidateOperator):
    """Refuses a bad request for a fine-tuning run, and records a good one.

    The log begins with an estimate of time and cost. A run by schedule is skipped where there is
    nothing to do: the preset names no task, or no model is in use yet.

    Returns the names of the tasks to prepare, none in modes that need no records, and pushes
    ``run_uri`` and ``config_uri``.
    """

    def _validate(self, context: Context, store: StoreLayout, run: RunLayout) -> list[str]:
        dag_run = context["dag_run"]
        config = self._requested(load_finetuning_preset(self.preset), dag_run, store)
        about = {"partition": "", "lineage_id": config.encoder.lineage_id}
        if dag_run.run_type == "scheduled" and (reason := finetuning.idle_reason(config, store)):
            self._record(run, config, dag_run, about)
            raise self._skip(run, f"Nothing to do: {reason}")
        # What the model in use and another run decide, decided once for the whole run.
        config = finetuning_settings.completed(self._as_begun(config, run), store)
        estimate = finetuning_estimates.estimate(config, store)
        for line in estimate.lines:
            self.log.info("%s", line)
        problems = finetuning.check(config, store)
        problems += self._cloud_problems(finetuning_settings.rental_settings(config), store)
        if problems:
            raise self._refusal(problems)
        self._warn_of_a_dead_reaper(store)
        self._record(run, config, dag_run, about)
        estimates.write_estimate(run, estimate)
        if config.run.dry_run:
            raise self._skip(run, "Dry run: all checks passed, and nothing was spent or changed.")
        recipe, version = config.finetuning, config.encoder.version
        self.log.info("Run %s: %s on %s", run.root, version, ", ".join(recipe.tasks))
        context["ti"].xcom_push(key="run_uri", value=run.root)
        context["ti"].xcom_push(key="config_uri", value=run.config)
        return recipe.tasks if recipe.mode in TPU_MODES else []

    @staticmethod
    def _as_begun(config: FinetuningConfig, run: RunLayout) -> FinetuningConfig:
        """Return the settings with the version that a run that is cleared has begun with."""
        data = uris.read_or_none(run.config)
        if data is None or config.encoder.version is not None:
            return config
        begun = parse_finetuning_config(data, run.config)
        return with_overrides(config, {"encoder.version": begun.encoder.version})


class PrepareTaskOperator(DataJobOperator):
    """Turns a labelled task into records, in a process of its own or on Dataflow.

    Nothing is done twice. Returns the job's summary: ``manifest`` and its counts.

    :param store_uri: root of the store.
    :param task_name: the task. (templated)
    """

    template_fields: Sequence[str] = (*DataJobOperator.template_fields, "task_name")

    def __init__(self, *, store_uri: str, task_name: Any, **kwargs: Any) -> None:
        super().__init__(
            module="beam_jobs.prepare_task", store_uri=store_uri, arguments=[], **kwargs
        )
        self.task_name = task_name

    def command_line(self, context: Context) -> list[str]:
        """Return the module's arguments."""
        words = ["--config", self.config_uri, "--store", self.store_uri, "--task", self.task_name]
        return [*words, *super().command_line(context)]


class PlanFinetuningOperator(BaseOperator):
    """Decides once what the run trains or uses, and shares the trials out to its TPUs.

    Returns a list with what each TPU needs: ``run_uri``, the folder that it is rented for, and the
    ``arguments`` of its job; no item in modes that need none. The first TPU is rented for the run's
    own folder. Each further one has a folder of its own, with the run's configuration, so that
    reaper, ledger and agent see to it as to any other.

    :param store_uri: root of the store.
    :param run_uri: folder of the run. (templated)
    :param prepared: summaries of the prepared tasks, each with ``manifest``. (templated)
    """

    template_fields: Sequence[str] = ("run_uri", "prepared")

    def __init__(self, *, store_uri: str, run_uri: Any, prepared: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.store_uri = store_uri
        self.run_uri = run_uri
        self.prepared = prepared

    def execute(self, context: Context) -> list[dict[str, Any]]:
        """Plan, and make the folders that TPUs are rented for."""
        store, run = StoreLayout(self.store_uri), RunLayout(self.run_uri)
        # The run begins, or goes on: what it ended with before does not count any more.
        outcomes.reopen(run)
        config = parse_finetuning_config(uris.read(run.config), run.config)
        manifests = dict(_by_task(summary["manifest"] for summary in self.prepared))
        try:
            plan = finetuning_plans.make_plan(store, run, config, manifests)
        except RegistryError as error:
            # Another try cannot help.
            raise AirflowFailException(str(error)) from error
        for line in finetuning_estimates.plan_lines(config, plan, store):
            self.log.info("%s", line)
        needs_tpu = config.finetuning.mode in TPU_MODES
        shares = plan.shares(config.finetuning.parallel_tpus) if needs_tpu else []
        rentals = finetuning_plans.make_rentals(store, run, len(shares))
        return [
            {"run_uri": rental.root, "arguments": self._arguments(number, len(rentals))}
            for number, rental in enumerate(rentals)
        ]

    def _arguments(self, number: int, count: int) -> list[str]:
        words = ["--run", self.run_uri, "--store", self.store_uri]
        return words if count == 1 else [*words, "--group", f"{number}/{count}"]


class ReportFinetuningOperator(BaseOperator):
    """Puts the results of all trials together: scores over seeds, and whether re-pretraining paid.

    Writes ``training_summary.json`` and a page made from it, and the run's outcome.

    Returns the best trial of each task, by task.

    :param store_uri: root of the store.
    :param run_uri: folder of the run. (templated)
    """

    template_fields: Sequence[str] = ("run_uri",)

    def __init__(self, *, store_uri: str, run_uri: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.store_uri = store_uri
        self.run_uri = run_uri

    def execute(self, context: Context) -> dict[str, str]:
        """Write the report and show it."""
        store, run = StoreLayout(self.store_uri), RunLayout(self.run_uri)
        outcomes.reopen(run)
        try:
            report = write_report(store, run)
        except (UserError, BadDataError, FormatError) as error:
            # Another try cannot help.
            raise AirflowFailException(str(error)) from error
        for line in report_lines(report):
            self.log.info("%s", line)
        config = parse_finetuning_config(uris.read(run.config), run.config)
        best = {
            summary.task: summary.best_trial
            for summary in report.tasks
            if summary.model == finetuning_plans.MODEL
        }
        # Else the export is the end.
        if not config.finetuning.export_formats:
            reason = f"best of each task: {', '.join(best.values())}"
            outcomes.record(run, OutcomeKind.COMPLETED, reason, written_by=self.task_id)
        return best


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


def _by_task(manifests: Iterable[str]) -> Iterator[tuple[str, str]]:
    for uri in manifests:
        yield TaskManifest.load(uri).name, uri
