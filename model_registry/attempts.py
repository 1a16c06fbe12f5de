"""What runs of a lineage tried to learn, and what of it was not learned.

Text whose run was rejected, or failed once it was prepared, joins the next update. What the gate
has rejected twice is in quarantine: updates run without it, until its text changes or a person
triggers a run for it.
"""

from __future__ import annotations

from dataclasses import dataclass

from model_registry.production import production
from pipeline_store import uris
from pipeline_store.formats import (
    FormatError,
    LineageAttempt,
    OutcomeKind,
    PartitionManifest,
    RunOutcome,
    RunPlan,
    RunRecord,
    Verdict,
    VerdictKind,
)
from pipeline_store.layout import LineageLayout, RunLayout

MOST_REJECTIONS = 2
"""Rejections of updates with a partition's text after which it is in quarantine: one may be the
fault of the text that it came with, or of a lineage's very first model."""

NOT_LEARNED = (OutcomeKind.REJECTED, OutcomeKind.FAILED, OutcomeKind.CANCELLED)
"""Outcomes of runs whose text the model in use has not learned."""


@dataclass(frozen=True)
class LeftOut:
    """A partition that was tried and not learned.

    :ivar attempt: the newest one; of those that got as far as a plan, if any did.
    :ivar rejections: reasons for which the gate has rejected its text as it was last tried.
    """

    partition: str
    attempt: LineageAttempt
    rejections: list[str]

    @property
    def is_quarantined(self) -> bool:
        """Whether updates run without it."""
        return len(self.rejections) >= MOST_REJECTIONS

    def bars(self, manifest_uri: str) -> bool:
        """Return whether the quarantine is about this text, and not about what it was before."""
        known = self.attempt.trained.get(self.partition)
        return (
            self.is_quarantined and known is not None and _content(known) == _content(manifest_uri)
        )

    @property
    def reason(self) -> str:
        """Why it was not learned, as a sentence without its full stop."""
        last = f"{self.attempt.outcome}: {_last_reason(self.attempt)}"
        if self.is_quarantined:
            return f"in quarantine after {len(self.rejections)} rejections; the last: {last}"
        return last


def record(
    lineage: LineageLayout, run: RunLayout, record: RunRecord, outcome: RunOutcome
) -> LineageAttempt:
    """Keep how a run of the lineage ended; the same again changes nothing.

    :raises FormatError: the run's plan or verdict is damaged.
    """
    plan = RunPlan.load_or_none(run.plan)
    verdict = Verdict.load_or_none(run.verdict(plan.parent_version)) if plan else None
    is_rejected = verdict is not None and verdict.verdict is not VerdictKind.PROMOTED
    attempt = LineageAttempt(
        run_key=record.run_key,
        dag_id=record.dag_id,
        run_id=record.run_id,
        partition=record.partition,
        trained=plan.trained if plan else {},
        outcome=outcome.outcome,
        reason=outcome.reason,
        by_gate=outcome.outcome is OutcomeKind.REJECTED and is_rejected,
        time=outcome.time,
    )
    attempt.write(lineage.attempt(record.run_key))
    return attempt


def attempts(lineage: LineageLayout) -> list[LineageAttempt]:
    """Return all runs of the lineage that have ended, oldest first.

    :raises FormatError: one of the files is damaged.
    """
    found = [LineageAttempt.load(uri) for uri in uris.list_files(lineage.attempts)]
    return sorted(found, key=lambda attempt: (attempt.time, attempt.run_key))


def left_out(lineage: LineageLayout) -> dict[str, LeftOut]:
    """Return by partition what was tried and what the model in use has not seen.

    :raises FormatError: a file of the lineage is damaged.
    """
    in_use = production(lineage)
    seen = set(in_use.partitions_seen) if in_use else set()
    by_partition: dict[str, list[LineageAttempt]] = {}
    for attempt in attempts(lineage):
        if attempt.outcome in NOT_LEARNED:
            for partition in {attempt.partition, *attempt.trained} - seen:
                by_partition.setdefault(partition, []).append(attempt)
    return {
        partition: LeftOut(partition, _newest(partition, tried), _rejections(partition, tried))
        for partition, tried in sorted(by_partition.items())
    }


def _newest(partition: str, tried: list[LineageAttempt]) -> LineageAttempt:
    return ([attempt for attempt in tried if partition in attempt.trained] or tried)[-1]


def _rejections(partition: str, tried: list[LineageAttempt]) -> list[str]:
    """Return why the gate has rejected a partition's text, as it was last tried."""
    manifests = [
        (attempt, attempt.trained[partition]) for attempt in tried if partition in attempt.trained
    ]
    if not manifests:
        return []
    newest = _content(manifests[-1][1])
    return [
        _last_reason(attempt)
        for attempt, manifest in manifests
        if attempt.by_gate and _content(manifest) == newest
    ]


def _content(manifest_uri: str) -> str:
    """Return what tells a partition's text from another; of a manifest that is gone its address."""
    try:
        return PartitionManifest.load(manifest_uri).content_sha256
    except (FileNotFoundError, FormatError):
        return manifest_uri


def _last_reason(attempt: LineageAttempt) -> str:
    return attempt.reason.removeprefix(f"{attempt.outcome}: ").rstrip(".")
