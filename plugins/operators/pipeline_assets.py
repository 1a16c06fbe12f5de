"""Defines the assets by which the pipeline's DAGs and other systems notify each other.

They have a name but no address: the location of the corpus and the models is a setting of the
deployment, and an asset with a changed address would be another asset, without the first's history.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.sdk import Asset

from pipeline_store.formats import ModelVersion

if TYPE_CHECKING:
    from airflow.sdk import Context

CORPUS_PARTITION = Asset(name="corpus_partition", group="bert_repretraining")
"""A partition of the corpus has arrived or has changed. The event's partition key is its id."""

PROMOTED_MODEL = Asset(name="promoted_model", group="bert_repretraining")
"""Another model is in use. The event's partition key is :func:`model_key`; its extra also names the
parent, the partition learned last and the reason."""


def announce_model(context: Context, version: ModelVersion, *, partition: str, reason: str) -> None:
    """Attach an event of :data:`PROMOTED_MODEL` to the task, sent when it succeeds.

    The event has a partition key in every run: otherwise events of a scheduled run would carry the
    run's partition key and those of other runs none, and no DAG of Airflow 3.3.2 listens to both.
    """
    event = context["outlet_events"][PROMOTED_MODEL]
    event.extra.update(
        {
            "lineage_id": version.lineage_id,
            "version_id": version.version_id,
            "parent": version.parent,
            "partition": partition,
            "reason": reason,
        }
    )
    event.add_partitions(model_key(version.lineage_id, version.version_id))


def model_key(lineage_id: str, version_id: str) -> str:
    """Return the partition key of a model's events, such as ``default.v-0a1b2c3d4e5f``."""
    return f"{lineage_id}.{version_id}"
