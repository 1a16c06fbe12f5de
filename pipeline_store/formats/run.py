"""Stored records of one pipeline run: its identity, estimate, plan, approval and outcome."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from pydantic import Field

from pipeline_store.formats.base import StoredFile


class Answer(StrEnum):
    """The state of an approval request; these strings are shown and stored."""

    WAITING = "waiting"
    APPROVED = "approved"
    REJECTED = "rejected"
    UNANSWERED = "unanswered"


class RunApproval(StoredFile):
    """``approval.json``: a person's answer on one candidate, compared with one baseline.

    Written by the task that asks, once when it asks and once when it gets an answer. A candidate
    that is retrained or compared again needs a new answer.
    """

    kind = "run-approval"
    has_checksum = True

    candidate_sha256: str = Field(
        description="hash of the names and contents of the candidate's files, as its evaluation has"
    )
    baseline: str | None = Field(description="version that it was compared with; none: unigram")
    answer: Answer
    asked: datetime
    deadline: datetime = Field(description="without an answer by then the candidate is rejected")
    answered: datetime | None = None
    answered_by: str | None = Field(default=None, description="the person's name in Airflow")
    answered_by_id: str | None = Field(
        default=None, description="the person's id, as Airflow's auth manager gives it"
    )
    comment: str = ""


class RunRecord(StoredFile):
    """``run.json``: the run's identity. Written once, by the first task that passes validation."""

    kind = "run-record"
    version = 2

    run_key: str
    dag_id: str
    run_id: str
    partition: str = Field(
        description="empty: a fine-tuning run, which learns from tasks and not from a partition"
    )
    lineage_id: str = Field(description="of the model that is trained or fine-tuned")
    config_sha256: str
    created: datetime
    rental_of: str | None = Field(
        default=None,
        description="run key; this folder is no run of its own, but has what belongs to a further "
        "TPU of that run: reservations, mailboxes, ledgers",
    )
    tpu_number: int = Field(
        default=0, description="among the TPUs of a fine-tuning run, from 0, which is the run's own"
    )
    backfill: str | None = Field(
        default=None, description="name of the BackfillRuns that it is of; none: of no backfill"
    )


class RunRefusal(StoredFile):
    """``refusal.json``: why a run was refused at no cost. A refused run has no ``run.json``."""

    kind = "run-refusal"

    dag_id: str
    run_id: str
    partition: str = Field(default="", description="empty: not known, or a fine-tuning run")
    lineage_id: str = Field(default="", description="empty: not known")
    backfill: str | None = Field(default=None, description="as in the run's record")
    reasons: list[str] = Field(description="one line each, as they are logged")
    time: datetime


class RunEstimate(StoredFile):
    """``estimate.json``: the run's expected time and cost, from known speeds. Not a guarantee."""

    kind = "run-estimate"

    train_steps: int
    rows: int = Field(description="rows of all steps together")
    tokens: int = Field(description="places for tokens in them, padding included")
    chip_hours: float | None = Field(description="none: nothing is known of the speed")
    hours: float | None = Field(description="of the TPU, none: as above")
    cost: float | None
    currency: str
    worst_case_cost: float | None = Field(description="when every budget is used up")
    basis: str = Field(description="where the speed comes from, with its date")
    lines: list[str] = Field(description="all of it as sentences, as they are logged")


class PreparedInput(StoredFile):
    """``prepared/``: a data job's output for the run, read by the tasks that follow.

    Stored here instead of only in an Airflow XCom, which people can edit.
    """

    kind = "prepared-input"

    manifest: str = Field(description="URI of the PartitionManifest or TaskManifest")


class RunPlan(StoredFile):
    """``plan.json``: the run's training data and starting model. Decided once, under the lease.

    Manifests are named by URI. They never change; a partition whose text has changed gets a new
    one.
    """

    kind = "run-plan"
    has_checksum = True

    partition: str = Field(description="the run's own")
    parent_version: str | None = Field(
        description="model in use when the plan was made: training starts from it, and the "
        "candidate is compared with it; none: there was none"
    )
    trained: dict[str, str] = Field(description="manifest by partition, the run's own included")
    replayed: dict[str, str] = Field(description="manifest by partition that the parent has seen")
    not_replayed: dict[str, str] = Field(
        description="reason by partition that the parent has seen and that is left out"
    )
    evaluated: dict[str, str] = Field(description="manifest by set of held-out documents")
    scored: dict[str, str] = Field(
        default={},
        exclude_if=lambda scored: not scored,
        description="manifest by partition whose held-out rows each checkpoint is scored on "
        "(evaluation.pattern); none: of those trained on",
    )
    quarantined: dict[str, str] = Field(
        default={},
        exclude_if=lambda quarantined: not quarantined,
        description="reason by partition that was rejected too often to be trained on",
    )
    train_steps: int | None = Field(
        default=None,
        description="what training.train_steps=auto became; none: the configuration has a number",
    )
    lease_sequence: int
    created: datetime


class OutcomeKind(StrEnum):
    """How a run ended; these strings are shown, stored and searched for.

    ``completed`` is for a fine-tuning run that did all of its trials: it has nothing to promote.
    """

    PROMOTED = "promoted"
    COMPLETED = "completed"
    REJECTED = "rejected"
    SKIPPED = "skipped"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_failure(self) -> bool:
        """Whether the run broke off; one that was rejected did all of its work."""
        return self in (OutcomeKind.FAILED, OutcomeKind.CANCELLED)


class RunOutcome(StoredFile):
    """``outcome.json``: how the run ended. Removed when a person resumes the run."""

    kind = "run-outcome"
    has_checksum = True

    sequence: int = Field(default=1, description="grows by one with each change; the newest counts")
    outcome: OutcomeKind
    reason: str
    version_id: str | None = Field(default=None, description="what the run put into use")
    written_by: str = Field(description="task or program")
    time: datetime
