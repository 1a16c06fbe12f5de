"""The results that the job's workers hand over to its launcher."""

from __future__ import annotations

from collections import Counter

from pydantic import BaseModel, ConfigDict, Field

from beam_jobs.labelled.label_leaks import Counts
from pipeline_store.formats import JobFailure, TaskSplit
from pipeline_store.formats.base import StoredFile


class StoredPart(BaseModel):
    """A file's records of one split, in the store until they are joined with others."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    split: TaskSplit
    number: int
    data: str
    index: str
    sources: str
    records: int
    truncated: int
    tokens: int


class SplitTotals(BaseModel):
    """All records of one split."""

    records: int = 0
    truncated: int = 0
    tokens: int = 0

    @property
    def truncated_share(self) -> float:
        """Return the share of the records that were truncated."""
        return self.truncated / max(1, self.records)


class TaskOutcome(StoredFile):
    """``outcome.json`` of an attempt: its decisions, and the records that it made."""

    kind = "task-outcome"

    labels: list[str] = Field(default=[])
    label_counts: dict[TaskSplit, dict[str, int]] = Field(default={})
    refusals: list[str] = Field(default=[])
    warnings: list[str] = Field(default=[])
    dropped: dict[str, int] = Field(default={})
    parts: list[StoredPart] = Field(default=[])
    label_search: list[tuple[tuple[str, ...], int]] = Field(default=[])
    failures: list[JobFailure] = Field(default=[])

    @property
    def search_counts(self) -> Counts:
        """Return the counts of labels found in texts, over all files."""
        counts: Counts = Counter()
        for key, count in self.label_search:
            counts[key] += count
        return counts

    @property
    def totals(self) -> dict[TaskSplit, SplitTotals]:
        """Return the sums of the parts by split."""
        totals = {split: SplitTotals() for split in TaskSplit if self.of(split)}
        for part in self.parts:
            mine = totals[part.split]
            mine.records += part.records
            mine.truncated += part.truncated
            mine.tokens += part.tokens
        return totals

    def of(self, split: TaskSplit) -> list[StoredPart]:
        """Return the parts of a split in order of their files."""
        return sorted((p for p in self.parts if p.split is split), key=lambda part: part.number)
