"""Finds the folder of the run that a task belongs to, by Airflow's own ids of the run.

Anyone who may trigger a run may also change XComs. So no task takes what it reads, runs or rents
from an XCom: it finds its run's folder here, and in it the configuration and the plan that passed
the checks. XComs show people what was decided, and tell Airflow how many tasks to map.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from operators.failures import PipelineFailure
from pipeline_alerts.causes import Remedy
from pipeline_store import identity
from pipeline_store.formats import PreparedInput
from pipeline_store.layout import RunLayout, StoreLayout

if TYPE_CHECKING:
    from airflow.sdk import Context


def own_run(context: Context, store_uri: str) -> RunLayout:
    """Return the folder of the task's run."""
    return StoreLayout(store_uri).run(_run_key(context))


def own_rental(context: Context, store_uri: str) -> RunLayout:
    """Return the folder that the task's TPU is rented for.

    In a mapped group each index has a TPU and a folder of its own; the first uses the run's folder.
    """
    key = identity.rental_key(_run_key(context), tpu_number(context))
    return StoreLayout(store_uri).run(key)


def tpu_number(context: Context) -> int:
    """Return the number of the task's TPU among those of its run, from 0."""
    # For a task that is not mapped, Airflow says -1.
    return max(context["ti"].map_index or 0, 0)


def prepared_manifest(place: str, task: str) -> str:
    """Return the manifest that a data job of the run has left.

    :param place: address of the PreparedInput in the run's folder.
    :param task: the task that runs the data job.
    :raises PipelineFailure: the job has left none.
    """
    prepared = PreparedInput.load_or_none(place)
    if prepared is None:
        raise PipelineFailure(
            Remedy.MEND_AND_CLEAR,
            f"There is no {place}: the task {task} has prepared nothing for this run. Was it "
            "marked as success by hand? Clear it, with what comes after it.",
        )
    return prepared.manifest


def _run_key(context: Context) -> str:
    dag_run = context["dag_run"]
    return identity.run_key(dag_run.dag_id, dag_run.run_id)
