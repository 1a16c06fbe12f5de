"""Where a run of the matrix has its files."""

from __future__ import annotations

from pathlib import Path

from pipeline_store.identity import rental_key, run_key
from pipeline_store.layout import StoreLayout


def run_uri(store_uri: str, dag_id: str, run_id: str, tpu: int = 0) -> str:
    """Return the folder in the store that a run's TPU is rented for; of the first the run's own."""
    key = run_key(dag_id, run_id)
    return StoreLayout(store_uri).run(rental_key(key, tpu)).root


def run_folder(store_uri: str, dag_id: str, run_id: str, tpu: int = 0) -> Path:
    """Return the folder by which a TPU's job and the matrix talk: ``started``, ``finish``."""
    return Path(run_uri(store_uri, dag_id, run_id, tpu), "matrix")
