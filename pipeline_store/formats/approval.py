"""The stored answer of a person who was asked whether a candidate comes into use."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from pydantic import Field

from pipeline_store.formats.base import StoredFile


class Answer(StrEnum):
    """What came of the question; these strings are shown and stored."""

    WAITING = "waiting"
    APPROVED = "approved"
    REJECTED = "rejected"
    UNANSWERED = "unanswered"


class RunApproval(StoredFile):
    """``approval.json``: a person's answer on one candidate, compared with one baseline.

    Written by the task that asks, when it asks and when it is answered. A candidate that is trained
    or compared anew needs a new answer.
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
