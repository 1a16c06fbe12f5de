"""Where a run of the matrix has its files."""

from __future__ import annotations

from pathlib import Path

from pipeline_store.identity import run_key
from pipeline_store.layout import StoreLayout


def run_uri(store_uri: str, dag_id: str, run_id: str) -> str:
    """Return the run's folder in the store."""
    return StoreLayout(store_uri).run(run_key(dag_id, run_id)).root


def run_folder(store_uri: str, dag_id: str, run_id: str) -> Path:
    """Return the folder by which a run's job and the matrix talk: ``started``, ``finish``."""
    return Path(run_uri(store_uri, dag_id, run_id), "matrix")
