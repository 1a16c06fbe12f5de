"""Stored records of a lineage: its lease, waiting and ended runs, and pruned versions."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from pipeline_store.formats.base import StoredFile
from pipeline_store.formats.models import ModelVersion
from pipeline_store.formats.run import OutcomeKind


class RollbackMark(StoredFile):
    """``rollbacks/<version_id>.<request>.json``: a person is rolling back to this version.

    Written before the version is verified and deleted when it is in use. Retention checks for it
    after it has removed a version's record and before it removes anything else.
    """

    kind = "rollback-mark"

    version_id: str
    begun: datetime


class PrunedVersion(StoredFile):
    """``pruned/<version_id>.json``: the record of a version whose files are removed.

    Written before the first file is removed, and kept forever: later versions name it as their
    parent.
    """

    kind = "pruned-version"

    model: ModelVersion
    trained: dict[str, str] = Field(
        description="by partition that it was trained on, the SHA-256 of the manifest"
    )
    pruned: datetime
    reason: str


class LineageLease(StoredFile):
    """``lease.json``: the one run that may continue the lineage. Changed by compare-and-set only.

    It is void once it has expired, or once Airflow reports that its holder's DAG run has ended.
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
    """``waiting/<run_key>.json``: a run that waits for the lineage and renews this ticket."""

    kind = "waiting-ticket"

    run_key: str
    dag_id: str
    run_id: str
    partition: str
    since: datetime
    renewed: datetime
    valid_seconds: float = Field(description="after the renewal; an older one does not count")


class LineageAttempt(StoredFile):
    """``attempts/<run_key>.json``: a run of the lineage that has ended, and why.

    The next run reads here which text was not learned, and so need not read all runs.
    """

    kind = "lineage-attempt"

    run_key: str
    dag_id: str
    run_id: str
    partition: str
    trained: dict[str, str] = Field(
        description="manifest by partition, the run's own included; empty: nothing was planned"
    )
    outcome: OutcomeKind
    reason: str
    by_gate: bool = Field(description="the gate has rejected it, and not a person or a deadline")
    time: datetime


class BackfillRuns(StoredFile):
    """``backfills/<name>.json``: the runs of a backfill as Airflow lists them, and its result.

    Written by the first run that begins; the watch adds how it ended.
    """

    kind = "backfill-runs"

    name: str
    dag_id: str
    backfill_id: int = Field(description="Airflow's number, which a new database begins anew")
    lineage_id: str
    runs: dict[str, str] = Field(description="partition by run id")
    is_backwards: bool = Field(default=False, description="the newest partition begins")
    created: datetime
    ended: datetime | None = Field(default=None, description="none: some of the runs has not")
    not_learned: dict[str, str] = Field(
        default={}, description="reason by partition, once it has ended"
    )
