"""The operators under test, with what a scenario needs to be different about them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk.exceptions import AirflowFailException

from leak_matrix.dags import triggers
from leak_matrix.scenario import POLL_SECONDS
from operators.tpu import TpuCreateOperator, TpuReserveOperator, TpuRunOperator
from operators.tpu_base import TpuAttemptOperator
from pipeline_config import load_preset, with_overrides
from pipeline_store import identity, uris
from pipeline_store.formats import RunRecord
from pipeline_store.layout import RunLayout

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.triggers.base import BaseTrigger

FAST = {
    "tpu.poll_interval": POLL_SECONDS,
    "tpu.heartbeat_interval_seconds": 1.0,
    "tpu.delete_grace_seconds": 3.0,
    "tpu.zone_cooldown_seconds": 0.0,
}


class MatrixReserveOperator(TpuReserveOperator):
    """Records the run, as the main DAG's validate task does, then reserves.

    :param settings: by ``section.name``; the zones come from the DAG run's ``conf``.
    """

    def __init__(self, *, settings: dict[str, Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.settings = settings

    def execute(self, context: Context) -> dict[str, int]:
        """Write ``config.json`` and ``run.json`` and open a generation."""
        dag_run = context["dag_run"]
        run, zones = RunLayout(self.run_uri), (dag_run.conf or {})["zones"]
        config = with_overrides(load_preset("smoke"), FAST | self.settings | {"tpu.zones": zones})
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
        return super().execute(context)


class _Changed(TpuAttemptOperator):
    """What can be different about an operator that waits for a TPU.

    :param is_deaf: neither it nor its trigger hears that a person ended the task.
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
        """Do what the operator does, unless deaf."""
        if not self.is_deaf:
            super().on_kill()


class MatrixCreateOperator(_Changed, TpuCreateOperator):
    """Create, which may fail once the TPU is READY.

    :param raises: whether it does.
    """

    def __init__(self, *, raises: bool, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.raises = raises

    def _use(self, context: Context, reservation: Any, record: Any) -> int:
        if self.raises:
            raise AirflowFailException(f"{record.name} is READY, and this task fails")
        return super()._use(context, reservation, record)


class MatrixRunOperator(_Changed, TpuRunOperator):
    """Run."""
