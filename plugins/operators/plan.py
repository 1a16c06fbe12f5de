"""Plans what a run trains on, as a task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowSkipException

from model_registry import lease, outcomes, plans
from model_registry.errors import RegistryError
from operators import job_arguments, task_data
from operators.failures import PipelineFailure, refused_by
from operators.openlineage import TellsOpenLineage
from operators.own_run import own_run, prepared_manifest
from operators.task_data import TaskData
from pipeline_alerts.causes import Remedy
from pipeline_config import PipelineConfig, parse_config
from pipeline_store import uris
from pipeline_store.formats import OutcomeKind, RunPlan, RunRecord
from pipeline_store.layout import RunLayout, StoreLayout
from preflight.estimates import vm_disk
from preflight.estimates.auto_steps import decide
from preflight.estimates.estimates import planned_lines
from trained_models.decided_steps import RowCounts, decided_config
from trained_models.errors import UserError

if TYPE_CHECKING:
    from airflow.sdk import Context


class PlanJobsOperator(TellsOpenLineage, BaseOperator):
    """Decides what the run trains on, and for how long with ``training.train_steps=auto``.

    The candidate starts from the model that is in use, and is compared with it on the run's own
    held-out documents, on those of ``evaluation.general_partition`` and on those of some of the
    partitions seen (:func:`model_registry.plans.scored_sets`). The plan is made once, while the run
    holds the lineage; see :func:`model_registry.plans.make_plan`.

    A number of steps that passes over the text more often than ``training.max_passes`` is refused:
    only now are all rows counted, and no TPU is rented yet. A plan that does not fit on a TPU VM's
    disk is refused too.

    Skipped, with all later tasks, when the model in use has seen the partition in its current
    state.

    Returns, only for people to see, ``train``, ``evaluate`` and ``probe`` (lists of arguments),
    ``baseline`` (a version id or None) and ``run_uri``. The jobs' tasks derive these themselves.

    :param store_uri: root of the store.
    """

    def __init__(self, *, store_uri: str, **kwargs: Any) -> None:
        super().__init__(multiple_outputs=True, **kwargs)
        self.store_uri = store_uri

    def execute(self, context: Context) -> dict[str, Any]:
        """Make the plan; return the arguments of the jobs."""
        run, store = own_run(context, self.store_uri), StoreLayout(self.store_uri)
        manifest_uri = prepared_manifest(run.prepared_partition, "prepare")
        record = RunRecord.load(run.record)
        lineage = store.lineage(record.lineage_id)

        def decide_steps(config: PipelineConfig, rows: RowCounts) -> int | None:
            found = decide(config, rows, store)
            if found is None:
                return None
            self.log.info("%s", found.words)
            return found.steps

        try:
            held = lease.require_held(lineage, record.run_key)
            plan = plans.make_plan(store, run, held, manifest_uri, decide_steps)
        except plans.SeenAlreadyError as error:
            outcomes.record(run, OutcomeKind.SKIPPED, str(error), written_by=self.task_id)
            raise AirflowSkipException(str(error)) from error
        except (RegistryError, UserError) as error:
            # Another try cannot help.
            raise refused_by(error) from error
        self._show(plan)
        config = decided_config(parse_config(uris.read(run.config), run.config), plan.train_steps)
        self._show_length(config, plan, store)
        copied = vm_disk.planned(config, plan, store)
        if copied is not None:
            self.log.info("%s", vm_disk.disk_line(config, copied))
            if problem := vm_disk.problem(config, copied):
                raise PipelineFailure(Remedy.CHANGE_REQUEST, problem)
        return {
            "train": job_arguments.train(run, store),
            "evaluate": job_arguments.evaluate(run, store),
            "probe": job_arguments.probe(run, store),
            "baseline": plan.parent_version,
            "run_uri": run.root,
        }

    def _show(self, plan: RunPlan) -> None:
        self.log.info("Starting from %s", plan.parent_version or "no model: none is in use")
        self.log.info("Training on %s", ", ".join(plan.trained))
        if plan.replayed:
            self.log.info("Replaying %s", ", ".join(plan.replayed))
        for partition, reason in plan.quarantined.items():
            self.log.warning("Partition %s is not trained on: %s", partition, reason)
        for partition, reason in plan.not_replayed.items():
            self.log.warning("Partition %s is not replayed: %s", partition, reason)
        self.log.info("Scored on the held-out documents of %s", ", ".join(plan.evaluated))
        if others := sorted({*plan.trained, *plan.replayed} - {*plan.evaluated}):
            self.log.info("Not scored, as there are evaluation.max_sets: %s", ", ".join(others))

    def _show_length(self, config: PipelineConfig, plan: RunPlan, store: StoreLayout) -> None:
        """Log how long the run trains, and a warning if the model will see its text too often.

        :param config: a configuration whose steps are decided.
        """
        lineage = store.lineage(config.model.lineage_id)
        for line in planned_lines(config, plans.row_counts(plan, lineage), store):
            is_warning = line.startswith("WARNING")
            (self.log.warning if is_warning else self.log.info)("%s", line)

    def task_data(self, run: RunLayout, number: int) -> TaskData:
        """Return the data that the task has read and written, by the store's records."""
        return task_data.of_plan(run)
