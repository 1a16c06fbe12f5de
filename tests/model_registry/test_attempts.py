"""What was not learned joins the next update; what was rejected twice is left out."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from model_registry import attempts, outcomes, registry
from pipeline_store import uris
from pipeline_store.formats import OutcomeKind, RunOutcome, RunPlan, RunRecord
from tests.model_registry.runs import NOW, FinishedRun

POISON = "day-07"


class Backfill:
    """Partitions that are learned one run after the other, by a gate that one of them upsets."""

    def __init__(self, folder: Path, poisoned: str) -> None:
        self.folder, self.poisoned = str(folder), poisoned
        self.runs: list[FinishedRun] = []
        self.learned: set[str] = set()
        self.rentals = 0

    def update(self, partition: str) -> RunPlan:
        """Plan a run, judge it, and keep how it ended, as the tasks of a run do."""
        run = FinishedRun(self.folder, partition.removeprefix("day-"))
        tried = attempts.left_out(run.lineage)
        joined = {
            name: other.manifest_uri
            for other in self.runs
            if (name := other.partition) in tried and not tried[name].bars(other.manifest_uri)
        }
        plan = run.plan(trained={partition: run.manifest_uri} | joined)
        self.runs.append(run)
        self.rentals += 1
        record = RunRecord.load(run.run.record)
        is_rejected = self.poisoned in plan.trained
        kind = OutcomeKind.REJECTED if is_rejected else OutcomeKind.PROMOTED
        outcome = RunOutcome(
            outcome=kind,
            reason=f"{kind}: worse",
            written_by="judge",
            time=NOW + timedelta(hours=self.rentals),
        )
        kept = attempts.record(run.lineage, run.run, record, outcome)
        # The verdicts of these runs are not the matter here.
        kept.model_copy(update={"by_gate": is_rejected}).write(run.lineage.attempt(run.key))
        if not is_rejected:
            self.learned.update(plan.trained)
        return plan


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """What the model in use has seen."""
    known: set[str] = set()

    class InUse:
        @property
        def partitions_seen(self) -> list[str]:
            return sorted(known)

    monkeypatch.setattr(attempts, "production", lambda lineage: InUse())
    return known


def test_of_twenty_partitions_with_a_poisoned_one_nineteen_are_learned(
    tmp_path: Path, seen: set[str]
) -> None:
    backfill = Backfill(tmp_path, POISON)
    backfill.learned = seen
    for number in range(1, 21):
        backfill.update(f"day-{number:02}")
    assert len(seen) == 19
    assert POISON not in seen
    assert backfill.rentals <= 20 + 2
    [left] = attempts.left_out(backfill.runs[0].lineage).values()
    assert left.partition == POISON
    assert left.is_quarantined
    assert left.reason == "in quarantine after 2 rejections; the last: rejected: worse"


def test_what_came_with_a_rejected_partition_joins_the_next_update(
    tmp_path: Path, seen: set[str]
) -> None:
    backfill = Backfill(tmp_path, "day-01")
    backfill.learned = seen
    trained = [sorted(backfill.update(f"day-0{number}").trained) for number in range(1, 5)]
    assert trained == [["day-01"], ["day-01", "day-02"], ["day-02", "day-03"], ["day-04"]]


def test_text_that_has_changed_leaves_the_quarantine(tmp_path: Path, seen: set[str]) -> None:
    backfill = Backfill(tmp_path, "day-01")
    backfill.learned = seen
    for number in (1, 2):
        backfill.update(f"day-0{number}")
    first = backfill.runs[0]
    left = attempts.left_out(first.lineage)["day-01"]
    assert left.bars(first.manifest_uri)
    assert not left.bars(backfill.runs[1].manifest_uri)


@pytest.mark.parametrize("kind", [OutcomeKind.FAILED, OutcomeKind.CANCELLED])
def test_a_run_that_failed_is_left_out_and_never_brings_into_quarantine(
    tmp_path: Path, seen: set[str], kind: OutcomeKind
) -> None:
    run = FinishedRun(str(tmp_path), "1")
    run.plan()
    for _ in range(3):
        outcome = outcomes.record(run.run, kind, "tpu.train lost", written_by="release")
        attempts.record(run.lineage, run.run, RunRecord.load(run.run.record), outcome)
    [left] = attempts.left_out(run.lineage).values()
    assert not left.is_quarantined
    assert left.reason == f"{kind}: tpu.train lost"


def test_a_rejection_by_a_person_is_not_the_fault_of_the_text(tmp_path: Path) -> None:
    run = FinishedRun(str(tmp_path), "1")
    outcome = outcomes.record(
        run.run, OutcomeKind.REJECTED, "rejected by ada", written_by="promotion.approve"
    )
    kept = attempts.record(run.lineage, run.run, RunRecord.load(run.run.record), outcome)
    assert not kept.by_gate


def test_what_was_learned_after_all_is_not_left_out(tmp_path: Path) -> None:
    run = FinishedRun(str(tmp_path), "1")
    outcome = outcomes.record(run.run, OutcomeKind.FAILED, "broken", written_by="release")
    attempts.record(run.lineage, run.run, RunRecord.load(run.run.record), outcome)
    assert attempts.left_out(run.lineage).keys() == {run.partition}
    registry.publish(run.store, run.run)
    registry.promote(run.lineage, run.version_id, expected_baseline=None, reason="better")
    assert attempts.left_out(run.lineage) == {}
    assert uris.exists(run.lineage.attempt(run.key))
