"""The stored records of who works on a line of models, and who waits to."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from pipeline_store.formats.base import StoredFile


class LineageLease(StoredFile):
    """``lease.json``: the one run that may continue the lineage. Changed by compare-and-set only.

    It is void once it has expired, and once Airflow says that its holder's DAG run has ended.
    """

    kind = "lineage-lease"
    has_checksum = True

    sequence: int = Field(description="grows by one with each change")
    run_key: str | None = Field(description="the holder; none: it was given back")
    dag_id: str = Field(description="of the holder, or of the last one")
    run_id: str
    partition: str
    acquired: datetime
    expires: datetime
    note: str = Field(default="", description="why it was given back, if not by its holder")


class WaitingTicket(StoredFile):
    """``waiting/<run_key>.json``: a run that waits for the lineage; its owner renews it."""

    kind = "waiting-ticket"

    run_key: str
    dag_id: str
    run_id: str
    partition: str
    since: datetime
    renewed: datetime
    valid_seconds: float = Field(description="after the renewal; an older one does not count")
