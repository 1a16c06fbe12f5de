"""The operators under test, with the modifications that scenarios need."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException

from model_registry.finetuning_plans import make_rentals
from operators.own_run import own_run
from operators.tpu import TpuCreateOperator, TpuReserveOperator, TpuRunOperator
from operators.tpu_base import TpuAttemptOperator
from pipeline_config import (
    FinetuningConfig,
    PipelineConfig,
    load_finetuning_preset,
    load_preset,
    with_overrides,
)
from pipeline_store import identity, uris
from pipeline_store.formats import RunRecord
from pipeline_store.layout import RunLayout, StoreLayout
from verification.leak_matrix.dags import triggers
from verification.leak_matrix.scenario import POLL_SECONDS

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.triggers.base import BaseTrigger

FAST = {
    "tpu.poll_interval": POLL_SECONDS,
    "tpu.heartbeat_interval_seconds": 1.0,
    "tpu.delete_grace_seconds": 3.0,
    "tpu.zone_cooldown_seconds": 0.0,
}


class MatrixPlanOperator(BaseOperator):
    """Records a run as ``bert_finetuning`` does, and creates the folders of its TPUs.

    :param store_uri: the store.
    :param settings: by ``section.name``; the zones come from the DAG run's ``conf``.
    :param tpus: number of TPUs.
    :param job: further arguments of the fake trainer.
    """

    def __init__(
        self,
        *,
        store_uri: str,
        settings: dict[str, Any],
        tpus: int,
        job: Sequence[str],
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.store_uri = store_uri
        self.settings = settings
        self.tpus = tpus
        self.job = job

    def execute(self, context: Context) -> list[dict[str, Any]]:
        """Write the records; return the arguments for each TPU."""
        run = own_run(context, self.store_uri)
        zones = (context["dag_run"].conf or {})["zones"]
        wanted = FAST | self.settings | {"tpu.zones": zones}
        record_run(run, with_overrides(load_finetuning_preset("finetuning_smoke"), wanted), context)
        return [
            {"arguments": ["--folder", f"{rental.root}/matrix", *self.job]}
            for rental in make_rentals(StoreLayout(self.store_uri), run, self.tpus)
        ]


def record_run(run: RunLayout, config: PipelineConfig | FinetuningConfig, context: Context) -> None:
    """Write a run's records, as its validate task does."""
    dag_run = context["dag_run"]
    uris.create_if_absent(run.config, config.to_bytes())
    RunRecord(
        run_key=identity.run_key(dag_run.dag_id, dag_run.run_id),
        dag_id=dag_run.dag_id,
        run_id=dag_run.run_id,
        partition="none",
        lineage_id="matrix",
        config_sha256=config.sha256,
        created=datetime.now(UTC),
    ).create(run.record)


class MatrixReserveOperator(TpuReserveOperator):
    """Records the run, as the main DAG's validate task does, then reserves.

    :param settings: by ``section.name``; the zones come from the DAG run's ``conf``.
    """

    def __init__(self, *, settings: dict[str, Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.settings = settings

    def execute(self, context: Context) -> dict[str, int]:
        """Write ``config.json`` and ``run.json`` and open a generation."""
        zones = (context["dag_run"].conf or {})["zones"]
        config = with_overrides(load_preset("smoke"), FAST | self.settings | {"tpu.zones": zones})
        record_run(self.find_run(context), config, context)
        return super().execute(context)


class _Changed(TpuAttemptOperator):
    """Modifications of an operator that waits for a TPU.

    :param is_deaf: whether it and its trigger ignore that a person ended the task.
    :param defer_timeout: seconds; replaces its own timeout of a deferral.
    """

    def __init__(self, *, is_deaf: bool, defer_timeout: float | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.is_deaf = is_deaf
        self.defer_timeout = defer_timeout

    def defer(
        self,
        *,
        trigger: BaseTrigger,
        method_name: str,
        kwargs: dict[str, Any] | None = None,
        timeout: timedelta | float | None = None,
    ) -> NoReturn:
        """Defer with another trigger or timeout."""
        if self.is_deaf:
            trigger = triggers.deafened(trigger)
        if self.defer_timeout is not None:
            timeout = timedelta(seconds=self.defer_timeout)
        super().defer(trigger=trigger, method_name=method_name, kwargs=kwargs, timeout=timeout)

    def on_kill(self) -> None:
        """Call the operator's ``on_kill``, unless deaf."""
        if not self.is_deaf:
            super().on_kill()


class MatrixCreateOperator(_Changed, TpuCreateOperator):
    """The create operator, which may fail once the TPU is READY.

    :param raises: whether it fails.
    """

    def __init__(self, *, raises: bool, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.raises = raises

    def _use(self, context: Context, reservation: Any, record: Any) -> int:
        if self.raises:
            raise AirflowFailException(f"{record.name} is READY, and this task fails")
        return super()._use(context, reservation, record)


class MatrixRunOperator(_Changed, TpuRunOperator):
    """The run operator."""
