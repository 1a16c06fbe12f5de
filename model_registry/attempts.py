"""Tracks the text that runs of a lineage tried to learn and did not.

Text whose run was rejected, or failed once it was prepared, joins the next update; text that the
gate has rejected joins one partition at a time. A rejection counts against the partition that was
rejected before, if there was one, since the text that came with it may be innocent. Text that the
gate has rejected twice is in quarantine: updates run without it, until it changes or a person
triggers a run for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

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
"""Rejections of updates with a partition's text after which it is in quarantine: a single one may
be the fault of the text that came with it, or of a lineage's very first model."""

NOT_LEARNED = (OutcomeKind.REJECTED, OutcomeKind.FAILED, OutcomeKind.CANCELLED)
"""Outcomes of runs whose text the model in production has not learned."""


@dataclass(frozen=True)
class LeftOut:
    """A partition that was tried and not learned.

    :ivar attempt: the newest attempt; the newest one with a plan, if any got that far.
    :ivar content: hash of its text as last tried; empty: no plan had it.
    :ivar rejections: the gate's reasons that count against this text.
    """

    partition: str
    attempt: LineageAttempt
    content: str
    rejections: list[str]

    @property
    def is_quarantined(self) -> bool:
        """Whether updates run without it."""
        return len(self.rejections) >= MOST_REJECTIONS

    def bars(self, manifest_uri: str) -> bool:
        """Return whether the quarantine applies to this text, not to an earlier version of it."""
        return self.is_quarantined and self._is_about(manifest_uri)

    def is_suspect(self, manifest_uri: str) -> bool:
        """Return whether this text was rejected once, so that it joins no other such text."""
        return bool(self.rejections) and not self.is_quarantined and self._is_about(manifest_uri)

    def _is_about(self, manifest_uri: str) -> bool:
        return self.content == _content(manifest_uri)

    @property
    def reason(self) -> str:
        """Why it was not learned, as a sentence without its full stop."""
        kind = f"{self.attempt.outcome}: "
        last = f"{kind}{_last_reason(self.attempt).removeprefix(kind)}"
        if self.is_quarantined:
            return f"in quarantine after {len(self.rejections)} rejections; the last: {last}"
        return last


def joining(tried: dict[str, LeftOut], own: str, prepared: dict[str, str]) -> dict[str, str]:
    """Return the prepared partitions that an update also trains on.

    :param tried: partitions that were tried and not learned (:func:`left_out`).
    :param own: the partition that the update is for.
    :param prepared: manifest by partition.
    """
    joined, has_suspect = {}, own in tried and bool(tried[own].rejections)
    for partition, manifest_uri in sorted(prepared.items()):
        known = tried.get(partition)
        if known is not None and known.bars(manifest_uri):
            continue
        if known is not None and known.is_suspect(manifest_uri):
            if has_suspect:
                continue
            has_suspect = True
        joined[partition] = manifest_uri
    return joined


def record(
    lineage: LineageLayout, run: RunLayout, record: RunRecord, outcome: RunOutcome
) -> LineageAttempt | None:
    """Record how a run of the lineage ended if it learned nothing; idempotent.

    :returns: the record; None: the run has not failed to learn.
    :raises FormatError: the run's plan or verdict is damaged.
    """
    place = lineage.attempt(record.run_key)
    if outcome.outcome not in NOT_LEARNED:
        uris.delete(place)
        return None
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
    attempt.write(place)
    return attempt


def attempts(lineage: LineageLayout) -> list[LineageAttempt]:
    """Return the runs of the lineage that have ended and learned nothing, oldest first.

    :raises FormatError: one of the files is damaged.
    """
    found = [LineageAttempt.load(uri) for uri in uris.list_files(lineage.attempts)]
    return sorted(found, key=lambda attempt: (attempt.time, attempt.run_key))


def left_out(lineage: LineageLayout) -> dict[str, LeftOut]:
    """Return, by partition, the text that was tried and that the model in production has not seen.

    :raises FormatError: a file of the lineage is damaged.
    """
    in_use = production(lineage)
    seen = set(in_use.partitions_seen) if in_use else set()
    tried, content = attempts(lineage), cache(_content)
    against: dict[tuple[str, str], list[str]] = {}
    newest: dict[str, tuple[LineageAttempt, str]] = {}
    for attempt in tried:
        texts = {name: content(manifest) for name, manifest in attempt.trained.items()}
        for partition in {attempt.partition, *texts}:
            if partition in texts or not newest.get(partition, (attempt, ""))[1]:
                newest[partition] = attempt, texts.get(partition, "")
        if attempt.by_gate:
            suspects = [text for text in texts.items() if text in against]
            for text in suspects or texts.items():
                against.setdefault(text, []).append(_last_reason(attempt))
    return {
        partition: LeftOut(partition, attempt, text, against.get((partition, text), []))
        for partition, (attempt, text) in sorted(newest.items())
        if partition not in seen
    }


def _content(manifest_uri: str) -> str:
    """Return the hash of a partition's text; if its manifest is missing or damaged, its address."""
    try:
        return PartitionManifest.load(manifest_uri).content_sha256
    except (FileNotFoundError, FormatError):
        return manifest_uri


def _last_reason(attempt: LineageAttempt) -> str:
    return attempt.reason.removeprefix(f"{attempt.outcome}: ").rstrip(".")
