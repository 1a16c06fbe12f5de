"""Stored files of alerts: the alerts, their deliveries, and the state of the watch."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, ConfigDict, Field

from pipeline_store.formats.base import StoredFile
from pipeline_store.formats.run import OutcomeKind


class Spending(BaseModel):
    """An upper bound of the cost of a run's TPUs so far."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    chip_hours: float
    cost: float = Field(description="chip-hours times the configured price; an estimate")
    currency: str


class AlertedTpu(BaseModel):
    """A TPU of the run that is not confirmed to be deleted."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    zone: str
    state: str = Field(description="in words")


class Alert(StoredFile):
    """``alerts/<scope>/<cause>.json``: something that a person has to know.

    Created once, before anyone is notified, so that a failed delivery is retried later. It holds
    log lines only if the installation allows it, as they can contain corpus text.
    """

    kind = "alert"

    scope: str = Field(description="key of the run, or what else it is about")
    cause: str = Field(description="with a dot, what of it: task-failed.tpu.train")
    title: str
    reason: str
    time: datetime
    dag_id: str | None = None
    run_id: str | None = None
    partition: str | None = None
    lineage_id: str | None = None
    link: str | None = Field(None, description="page of the run in Airflow")
    spent: Spending | None = None
    tpus: list[AlertedTpu] = Field(default_factory=list)
    log_place: str | None = Field(None, description="folder of the newest job's log")
    log_lines: list[str] = Field(default_factory=list)
    remedy: str = Field(
        "", description="what helps a task that the pipeline stopped; empty: as its cause says"
    )


class AlertDelivery(StoredFile):
    """``alerts/<scope>/<cause>.<conn_id>.delivered.json``: delivery to one channel has ended."""

    kind = "alert-delivery"

    time: datetime
    given_up: str = Field("", description="why it was not sent at all; empty: it was")


class AlertSending(StoredFile):
    """``alerts/<scope>/<cause>.<conn_id>.sending.json``: a delivery in progress and its last error.

    Changed by compare-and-set only.
    """

    kind = "alert-sending"

    sequence: int = Field(description="grows by one with each change")
    tries: int
    until: datetime = Field(description="nobody else sends it before; past: whoever comes may")
    error: str = Field("", description="of the last try; secrets are left out")


class AlertCleared(StoredFile):
    """``alerts/<scope>/<cause>.cleared.json``: the alert is resolved; created once, by a pass."""

    kind = "alert-cleared"

    time: datetime


class WatchedRun(StoredFile):
    """``alerts/<scope>/watched.json``: the watch has handled the outcome of a run."""

    kind = "watched-run"

    outcome: OutcomeKind | None = Field(
        description="none, in stores of earlier versions: the run was seen to go on after that"
    )
    time: datetime


class RentingRun(StoredFile):
    """``alerts/<scope>/renting.json``: a run has ended, and one of its TPUs may still exist.

    The watch writes it before it handles the end, and deletes it when all TPUs are gone.
    """

    kind = "renting-run"

    time: datetime


class WatchPass(StoredFile):
    """``alerts/watch.json``: the watch's own heartbeat, written by each pass."""

    kind = "watch-pass"

    unbroken_since: datetime = Field(description="first of the passes that came without a gap")
    finished: datetime
    host: str
    open_runs: int
    problems: list[str]


class CorpusSeen(StoredFile):
    """``alerts/corpus.json``: the partitions that the watch has seen, and when they last grew."""

    kind = "corpus-seen"

    pattern: str
    partitions: list[str]
    grown: datetime
    looked: datetime
