"""What was not learned joins the next update; what was rejected twice is left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from model_registry import attempts, outcomes, registry
from model_registry.production import production
from pipeline_store import uris
from pipeline_store.formats import OutcomeKind, RunPlan, RunRecord
from tests.model_registry.runs import FinishedRun
from tests.model_registry.test_plans import configure, make_plan


class Updates:
    """Runs one after the other, each planned, judged and kept as its tasks do.

    :ivar trained: what each was trained on.
    """

    def __init__(self, folder: Path, *poisoned: int) -> None:
        self.folder, self.poisoned = str(folder), {f"day-{number}" for number in poisoned}
        self.trained: list[list[int]] = []
        self.runs: list[FinishedRun] = []

    def update(self, number: int) -> RunPlan:
        run = FinishedRun(self.folder, str(number))
        self.runs.append(run)
        in_use = production(run.lineage)
        run.parent = in_use.version_id if in_use else None
        uris.delete(run.run.plan)
        configure(run)
        plan = make_plan(run)
        self.trained.append(sorted(int(name.removeprefix("day-")) for name in plan.trained))
        if self.poisoned & set(plan.trained):
            verdict = run.evaluate(baseline=run.parent, gain=-0.5)
            kind, reason = OutcomeKind.REJECTED, f"rejected: {verdict.reason}"
        else:
            run.evaluate(baseline=run.parent, gain=0.5)
            registry.publish(run.store, run.run)
            registry.promote(
                run.lineage, run.version_id, expected_baseline=run.parent, reason="better"
            )
            kind, reason = OutcomeKind.PROMOTED, "promoted"
        outcome = outcomes.record(run.run, kind, reason, written_by="judge")
        attempts.record(run.lineage, run.run, RunRecord.load(run.run.record), outcome)
        return plan

    @property
    def seen(self) -> set[str]:
        in_use = production(self.runs[0].lineage)
        return set(in_use.partitions_seen) if in_use else set()

    @property
    def left_out(self) -> dict[str, attempts.LeftOut]:
        return attempts.left_out(self.runs[0].lineage)


@pytest.mark.parametrize("poisoned", [1, 7, 19])
def test_of_twenty_partitions_with_a_poisoned_one_nineteen_are_learned(
    tmp_path: Path, poisoned: int
) -> None:
    updates = Updates(tmp_path, poisoned)
    # What the last but one spoils for the last is learned by the next update, and costs that one.
    numbers = range(1, 22 if poisoned == 19 else 21)
    for number in numbers:
        updates.update(number)
    assert updates.seen == {f"day-{number}" for number in numbers} - {f"day-{poisoned}"}
    assert len(updates.trained) <= 20 + 2
    [left] = updates.left_out.values()
    assert left.partition == f"day-{poisoned}"
    assert left.is_quarantined
    assert left.reason.startswith("in quarantine after 2 rejections; the last: rejected: ")


def test_what_came_with_a_rejected_partition_joins_the_next_update(tmp_path: Path) -> None:
    updates = Updates(tmp_path, 1)
    plans = [updates.update(number) for number in range(1, 5)]
    assert updates.trained == [[1], [1, 2], [2, 3], [4]]
    assert [list(plan.quarantined) for plan in plans] == [[], [], ["day-1"], ["day-1"]]


def test_of_rejected_partitions_one_at_a_time_joins_so_that_innocent_ones_are_learned(
    tmp_path: Path,
) -> None:
    updates = Updates(tmp_path, 1, 3)
    for number in range(1, 7):
        updates.update(number)
    # The rejection of [2, 3] counts against both, as neither was rejected before.
    assert updates.trained == [[1], [1, 2], [2, 3], [2, 4], [3, 5], [5, 6]]
    assert updates.left_out.keys() == {"day-1", "day-3"}
    assert all(left.is_quarantined for left in updates.left_out.values())


def test_a_run_for_a_partition_in_quarantine_trains_on_it_all_the_same(tmp_path: Path) -> None:
    updates = Updates(tmp_path, 1)
    for number in (1, 2, 3):
        updates.update(number)
    assert updates.left_out["day-1"].is_quarantined
    updates.poisoned = set()
    updates.update(1)
    assert updates.trained[-1] == [1]
    assert updates.left_out == {}


def test_text_that_has_changed_leaves_the_quarantine(tmp_path: Path) -> None:
    updates = Updates(tmp_path, 1)
    for number in (1, 2):
        updates.update(number)
    first, second = updates.runs
    left = updates.left_out["day-1"]
    assert left.bars(first.manifest_uri)
    assert not left.bars(second.manifest_uri)


def test_what_a_run_learns_when_it_is_cleared_is_kept_as_no_failure(tmp_path: Path) -> None:
    run = FinishedRun(str(tmp_path), "1")
    record = RunRecord.load(run.run.record)
    for kind in (OutcomeKind.FAILED, OutcomeKind.PROMOTED):
        outcomes.reopen(run.run)
        outcome = outcomes.record(run.run, kind, "", written_by="release")
        attempts.record(run.lineage, run.run, record, outcome)
    assert attempts.attempts(run.lineage) == []


@pytest.mark.parametrize("kind", [OutcomeKind.FAILED, OutcomeKind.CANCELLED])
def test_a_run_that_failed_is_left_out_and_never_brings_into_quarantine(
    tmp_path: Path, kind: OutcomeKind
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
    assert kept is not None
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
