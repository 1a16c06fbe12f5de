"""Whether a DAG is paused, asked of Airflow's database: pages are made in the API server."""

from __future__ import annotations

from airflow.models.dag import DagModel
from airflow.utils.session import create_session
from sqlalchemy import select


def is_paused(dag_id: str) -> bool:
    """Return whether a DAG is paused; no, if Airflow has none of that id."""
    with create_session() as session:
        found = session.scalar(select(DagModel.is_paused).where(DagModel.dag_id == dag_id))
    return bool(found)
