"""The stored record of one pipeline run."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from pipeline_store.formats.base import StoredFile


class RunRecord(StoredFile):
    """``run.json``: what this run is. Written once, by the first task that passes validation."""

    kind = "run-record"

    run_key: str
    dag_id: str
    run_id: str
    partition: str
    lineage_id: str
    config_sha256: str
    created: datetime
    parent_version: str | None = Field(
        description="model in use when the run began; training starts from it"
    )
