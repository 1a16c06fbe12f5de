"""How a run ended, as its tasks and those that watch it say."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from model_registry import outcomes
from pipeline_store.formats import OutcomeKind, RunOutcome
from pipeline_store.layout import RunLayout, StoreLayout


@pytest.fixture
def run(any_store: str) -> RunLayout:
    return StoreLayout(any_store).run("0a1b2c3d4e5f")


def test_the_newest_outcome_counts(run: RunLayout) -> None:
    outcomes.record(run, OutcomeKind.FAILED, "failed: train", written_by="release")
    outcomes.record(run, OutcomeKind.PROMOTED, "better", written_by="promote", version_id="v-1")
    found = RunOutcome.load(run.outcome)
    assert (found.sequence, found.outcome) == (2, OutcomeKind.PROMOTED)
    assert (found.reason, found.version_id, found.written_by) == ("better", "v-1", "promote")


def test_saying_the_same_again_changes_nothing(run: RunLayout) -> None:
    first = outcomes.record(run, OutcomeKind.SKIPPED, "seen", written_by="plan")
    assert outcomes.record(run, OutcomeKind.SKIPPED, "seen", written_by="plan") == first
    assert RunOutcome.load(run.outcome) == first


def test_whoever_only_watches_does_not_overrule(run: RunLayout) -> None:
    assert outcomes.record_if_none(run, OutcomeKind.CANCELLED, "ended", written_by="watch")
    assert not outcomes.record_if_none(run, OutcomeKind.FAILED, "ended", written_by="watch")
    assert RunOutcome.load(run.outcome).outcome is OutcomeKind.CANCELLED


def test_a_run_that_goes_on_has_no_outcome(run: RunLayout) -> None:
    outcomes.reopen(run)
    outcomes.record(run, OutcomeKind.FAILED, "failed: train", written_by="release")
    outcomes.reopen(run)
    assert RunOutcome.load_or_none(run.outcome) is None
    assert outcomes.record(run, OutcomeKind.PROMOTED, "better", written_by="promote").sequence == 1


def test_of_concurrent_writers_none_is_lost(run: RunLayout) -> None:
    barrier = threading.Barrier(4)

    def one(number: int) -> None:
        barrier.wait()
        outcomes.record(run, OutcomeKind.FAILED, f"reason {number}", written_by="test")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(one, range(4)))
    assert RunOutcome.load(run.outcome).sequence == 4
