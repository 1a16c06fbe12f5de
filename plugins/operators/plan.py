"""What a run trains on, as a task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from model_registry import lease, outcomes, plans
from model_registry.errors import RegistryError
from pipeline_store.formats import OutcomeKind, RunPlan, RunRecord
from pipeline_store.layout import LineageLayout, RunLayout, StoreLayout
from trained_models.errors import UserError

if TYPE_CHECKING:
    from airflow.sdk import Context


class PlanJobsOperator(BaseOperator):
    """Decides what the run trains on, and works out the jobs' command lines.

    The candidate starts from the model that is in use, and is compared with it on the run's own
    held-out documents, on those of every earlier partition and on those of
    ``evaluation.general_partition``. The plan is made once, while the run holds the lineage; see
    :func:`model_registry.plans.make_plan`.

    Skipped, and with it what follows, when the model in use has seen the partition as it is.

    Returns ``train``, ``evaluate`` and ``probe`` (lists of arguments), ``baseline`` (a version id
    or None), and ``run_uri``: a task that may run although another was skipped takes it from here,
    and so waits for nothing that is never skipped.

    :param store_uri: root of the store.
    :param run_uri: folder of the run. (templated)
    :param manifest_uri: PartitionManifest of the run's partition. (templated)
    """

    template_fields: Sequence[str] = ("run_uri", "manifest_uri")

    def __init__(self, *, store_uri: str, run_uri: Any, manifest_uri: Any, **kwargs: Any) -> None:
        super().__init__(multiple_outputs=True, **kwargs)
        self.store_uri = store_uri
        self.run_uri = run_uri
        self.manifest_uri = manifest_uri

    def execute(self, context: Context) -> dict[str, Any]:
        """Return the arguments of the jobs."""
        run, store = RunLayout(self.run_uri), StoreLayout(self.store_uri)
        record = RunRecord.load(run.record)
        lineage = store.lineage(record.lineage_id)
        try:
            held = lease.require_held(lineage, record.run_key)
            plan = plans.make_plan(store, run, held, self.manifest_uri)
        except plans.SeenAlreadyError as error:
            outcomes.record(run, OutcomeKind.SKIPPED, str(error), written_by=self.task_id)
            raise AirflowSkipException(str(error)) from error
        except (RegistryError, UserError) as error:
            # Another try cannot help.
            raise AirflowFailException(str(error)) from error
        self._show(plan)
        return {
            "train": _train_arguments(run, store, lineage, plan),
            "evaluate": _evaluate_arguments(run, store, lineage, plan),
            "probe": _probe_arguments(run, store, lineage, plan),
            "baseline": plan.parent_version,
            "run_uri": run.root,
        }

    def _show(self, plan: RunPlan) -> None:
        self.log.info("Starting from %s", plan.parent_version or "no model: none is in use")
        self.log.info("Training on %s", ", ".join(plan.trained))
        if plan.replayed:
            self.log.info("Replaying %s", ", ".join(plan.replayed))
        for partition, reason in plan.not_replayed.items():
            self.log.warning("Partition %s is not replayed: %s", partition, reason)
        self.log.info("Scored on the held-out documents of %s", ", ".join(plan.evaluated))


def _train_arguments(
    run: RunLayout, store: StoreLayout, lineage: LineageLayout, plan: RunPlan
) -> list[str]:
    words = ["--run", run.root, "--store", store.root]
    for manifest in plan.trained.values():
        words += ["--manifest", manifest]
    if plan.parent_version is not None:
        words += ["--init-model", lineage.version(plan.parent_version)]
    for manifest in plan.replayed.values():
        words += ["--replay-manifest", manifest]
    return words


def _evaluate_arguments(
    run: RunLayout, store: StoreLayout, lineage: LineageLayout, plan: RunPlan
) -> list[str]:
    words = ["--store", store.root, "--config", run.config, "--current-set", plan.partition]
    words += ["--output", run.evaluation(plan.parent_version)]
    for name, manifest in plan.evaluated.items():
        words += ["--set", f"{name}={manifest}"]
    words += ["--model", f"candidate={run.training.root}"]
    if plan.parent_version is not None:
        words += ["--model", f"baseline={lineage.version(plan.parent_version)}"]
    return words


def _probe_arguments(
    run: RunLayout, store: StoreLayout, lineage: LineageLayout, plan: RunPlan
) -> list[str]:
    """Return the arguments but for the manifests, which are prepared after the plan."""
    words = ["--run", run.root, "--store", store.root, "--candidate", run.training.root]
    if plan.parent_version is not None:
        words += ["--baseline", lineage.version(plan.parent_version)]
    return words
