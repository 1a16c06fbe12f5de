"""Puts another version of a model into use, by decision of a person."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowSkipException

from hooks.dag_runs import end_of
from model_registry import lease, registry
from model_registry.errors import DamagedVersionError
from operators import task_data
from operators.failures import PipelineFailure, refused_by
from operators.openlineage import TellsOpenLineage
from operators.pipeline_assets import PROMOTED_MODEL, announce_model
from operators.task_data import TaskData
from pipeline_alerts.causes import Remedy
from pipeline_store import identity
from pipeline_store.formats import EarlierModel, FormatError, ModelVersion, ProductionPointer
from pipeline_store.layout import LineageLayout, RunLayout, StoreLayout

if TYPE_CHECKING:
    from airflow.sdk import Context

PREVIOUS = "previous"
"""Means the version from which the one in use at the time of the run's trigger was trained."""

_BEGIN = timedelta(minutes=1)
"""Longest time that the task of a rollback takes to begin."""


class RollbackOperator(TellsOpenLineage, BaseOperator):
    """Verifies a published version and puts it into use, whether it is older or newer.

    The version that was in use is recorded as rolled back, so that no run puts it back by itself. A
    run of the lineage that is under way started from that version and can no longer promote; the
    log names it. Skipped when the version is in use already. ``previous`` refers to the model in
    use when the run was triggered; if another has come into use since, nothing changes and the task
    fails, or is skipped if the version in use is the requested one. A retry after the model in use
    was changed changes nothing more, and announces the change.

    Emits the asset ``promoted_model``. Returns ``lineage_id``, ``before`` and ``after``.

    :param store_uri: root of the store.
    :param lineage: line of models. (templated)
    :param version: a version id, or ``previous``. (templated)
    :param reason: why; kept with the pointer. (templated)
    """

    template_fields: Sequence[str] = ("lineage", "version", "reason")

    def __init__(
        self, *, store_uri: str, lineage: str, version: str, reason: str, **kwargs: Any
    ) -> None:
        super().__init__(outlets=[PROMOTED_MODEL], **kwargs)
        self.store_uri = store_uri
        self.lineage = lineage
        self.version = version
        self.reason = reason

    def execute(self, context: Context) -> dict[str, str]:
        """Verify the version and put it into use; return what was in use before and after."""
        reason = self.reason.strip()
        if not reason:
            raise PipelineFailure(
                Remedy.CHANGE_REQUEST, "A reason is needed: it is kept with the model in use."
            )
        dag_run = context["dag_run"]
        request = identity.run_key(dag_run.dag_id, dag_run.run_id)
        try:
            lineage = StoreLayout(self.store_uri).lineage(identity.check_lineage(self.lineage))
            pointer = self._pointer(lineage)
            model = registry.load_version(lineage, pointer.version_id)
            if pointer.request != request:
                version, expected = self._wanted(lineage, pointer, dag_run)
                wanted = registry.load_version(lineage, version)
                if wanted.version_id == model.version_id:
                    raise AirflowSkipException(
                        f"{wanted.version_id} is in use already, since {pointer.changed:%F %T} "
                        f"UTC: {pointer.reason}. Nothing was changed."
                    )
                self.log.info("Before: %s", _described(model))
                pointer = registry.rollback(
                    lineage,
                    version,
                    reason=reason,
                    by=dag_run.triggering_user_name,
                    request=request,
                    run_id=dag_run.run_id,
                    expected=expected,
                )
                model = wanted
        except (DamagedVersionError, FormatError) as error:
            raise refused_by(error) from error
        except (registry.RegistryError, ValueError) as error:
            # Another try cannot help.
            raise PipelineFailure(Remedy.CHANGE_REQUEST, str(error)) from error
        self.log.info("In use: %s", _described(model))
        if (held := lease.holder(lineage)) is not None:
            self.log.warning(
                "A run is under way that cannot promote any more: %s", lease.describe(held)
            )
        announce_model(
            context,
            model,
            partition=model.partitions_seen[-1],
            reason=f"rolled back from {pointer.replaced}: {reason}",
        )
        return {
            "lineage_id": model.lineage_id,
            "before": str(pointer.replaced),
            "after": model.version_id,
        }

    @staticmethod
    def _pointer(lineage: LineageLayout) -> ProductionPointer:
        pointer = ProductionPointer.load_or_none(lineage.production)
        if pointer is None:
            raise registry.RegistryError(
                f"No model is in use ({lineage.production} does not exist), so there is nothing to "
                "roll back; the first promotion sets it."
            )
        return pointer

    def _wanted(
        self, lineage: LineageLayout, pointer: ProductionPointer, dag_run: Any
    ) -> tuple[str, str | None]:
        """Return the version to use, and the one that it must replace; None: any.

        A request for the previous version refers to the model in use when it was made. A second
        request, or one that waited in the queue, refers to the same model and goes no further back.
        """
        wanted = self.version.strip()
        if wanted != PREVIOUS:
            return wanted, None
        asked: datetime = dag_run.run_after
        behind = _behind(dag_run)
        known = (stay.version_id for stay in pointer.stays if _was_seen(stay, dag_run, behind))
        seen = next(known, None)
        if seen is None:
            raise registry.RegistryError(
                f"The model in use has changed since this run was triggered at {asked:%F %T} UTC, "
                f"and {lineage.production} does not say what was in use then. Name the version."
            )
        model = registry.load_version(lineage, seen)
        if model.parent is None:
            raise registry.RegistryError(
                f"{seen} is the first version of lineage {model.lineage_id}: there is none before "
                "it. Name the version to use."
            )
        return model.parent, seen

    def task_data(self, run: RunLayout, number: int) -> TaskData:
        """Return the data that the task has read and written, by the store's records."""
        return task_data.of_rollback(run, StoreLayout(self.store_uri).lineage(self.lineage))


def _was_seen(stay: EarlierModel, dag_run: Any, behind: timedelta) -> bool:
    """Return whether a version was in use already when a run was triggered.

    For a version that another rollback put into use, Airflow's own times decide: a request made
    before that run ended cannot have seen its result. Otherwise a worker's clock is compared with
    that of Airflow's server; if the worker's is ahead, the request counts as too early, so that
    nothing changes.
    """
    if stay.run_id is not None:
        try:
            ended = end_of(dag_run.dag_id, stay.run_id)
        except LookupError:
            pass  # Airflow's record of that run was removed
        else:
            return ended is not None and ended <= dag_run.run_after
    return stay.since + behind <= dag_run.run_after


def _behind(dag_run: Any) -> timedelta:
    """Return by how much at most the workers' clocks are behind that of Airflow's server.

    They are behind if a task seems to run before its own DAG run has begun: by that time plus the
    time that a task takes to begin.
    """
    early = dag_run.start_date - datetime.now(UTC)
    return early + _BEGIN if early > timedelta() else timedelta()


def _described(model: ModelVersion) -> str:
    seen = ", ".join(model.partitions_seen)
    return f"{model.version_id} of {model.created:%F %H:%M} UTC, partitions seen: {seen}"
