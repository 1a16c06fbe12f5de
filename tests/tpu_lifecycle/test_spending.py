"""What the TPUs of all runs cost, by lineage and week, and what a loss of them costs."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from model_registry import outcomes
from pipeline_store import uris
from pipeline_store.formats import (
    AttemptEvent,
    Ledger,
    LedgerEntry,
    OutcomeKind,
    RunOutcome,
    RunRecord,
    Seconds,
    SpentOn,
)
from pipeline_store.layout import RunLayout, StoreLayout
from pipeline_store.local import LocalBackend
from tests.tpu_lifecycle.world import OWNER, ZONE, write_run
from tpu_lifecycle.__main__ import main
from tpu_lifecycle.records.billed import default_since, named, spent_since
from tpu_lifecycle.records.ledger import total, write_bill
from tpu_lifecycle.records.reservation import OpenReservation, reserve
from tpu_lifecycle.records.spending import Total, by_lineage, price_words

MONDAY = datetime(2026, 1, 26, 12, tzinfo=UTC)
PRICE, ON_DEMAND = 0.5, 1.25
TRAINED: Seconds = {SpentOn.TPU_INITIALIZATION: 100, SpentOn.COMPILE: 50, SpentOn.STEP: 750}


def entry(number: int, seconds: Seconds, *, day: int = 0, **more: Any) -> LedgerEntry:
    """Return an attempt with 8 chips; what it does not say of its time is idle."""
    billed = sum(seconds.values())
    created = MONDAY + timedelta(days=day)
    values = {
        "generation": 1,
        "attempt": number,
        "zone": ZONE,
        "accelerator_type": "v5litepod-8",
        "chips": 8,
        "created": created,
        "ready": created,
        "gone": created + timedelta(seconds=billed),
        "outcome": "released",
        "billed_seconds": billed,
        "chip_seconds": 8 * billed,
        "cost": 8 * billed / 3600 * PRICE,
        "seconds": seconds,
    }
    return LedgerEntry(**values | more)


@pytest.fixture
def store(tmp_path: Path) -> StoreLayout:
    (tmp_path / "store").mkdir()
    return StoreLayout(str(tmp_path / "store"))


def open_run(store: StoreLayout, lineage_id: str = "default") -> OpenReservation:
    run = write_run(
        store,
        {
            "tpu.provisioning_model": "spot",
            "budget.price_per_chip_hour": PRICE,
            "budget.on_demand_price_per_chip_hour": ON_DEMAND,
        },
    )
    record = RunRecord.load(run.record)
    record.model_copy(update={"lineage_id": lineage_id}).write(run.record)
    return reserve(store, run.root, project_id="p", owner=OWNER, bundle_sha256="0" * 64)


def add_run(
    store: StoreLayout, outcome: OutcomeKind, *entries: LedgerEntry, lineage_id: str = "default"
) -> RunLayout:
    reservation = open_run(store, lineage_id)
    terms = reservation.record
    Ledger(
        run_key=terms.run_key,
        generation=1,
        entries=list(entries),
        price_per_chip_hour=terms.price_per_chip_hour,
        currency=terms.currency,
        price_date=terms.price_date,
        provisioning_model=terms.provisioning_model,
        on_demand_price_per_chip_hour=terms.on_demand_price_per_chip_hour,
    ).write(reservation.layout.ledger)
    RunOutcome(outcome=outcome, reason="", written_by="test", time=MONDAY).write(
        reservation.run.outcome
    )
    return reservation.run


def sums(store: StoreLayout, **choice: Any) -> Total:
    problems: list[str] = []
    found = by_lineage(spent_since(store, MONDAY - timedelta(1), problems=problems, **choice))
    assert problems == []
    assert len(found) == 1
    return found[0].total


def test_an_outcome_is_of_the_week_of_the_newest_attempt(store: StoreLayout) -> None:
    add_run(store, OutcomeKind.PROMOTED, entry(1, TRAINED), entry(2, TRAINED, day=7))
    [found] = by_lineage(spent_since(store, MONDAY - timedelta(1), problems=[]))
    assert [week.promoted for week in found.weeks.values()] == [0, 1]
    assert found.total.promoted == 1
    assert [len(week.runs) for week in found.weeks.values()] == [1, 1]


def test_sums_are_those_of_the_ledgers(store: StoreLayout) -> None:
    runs = [
        add_run(store, OutcomeKind.PROMOTED, entry(1, TRAINED), entry(2, TRAINED)),
        add_run(store, OutcomeKind.REJECTED, entry(1, TRAINED)),
    ]
    found = sums(store)
    bills = [total(Ledger.load(run.reservation(1).ledger)) for run in runs]
    assert found.chip_seconds == pytest.approx(sum(seconds for seconds, _ in bills))
    assert found.cost == pytest.approx(sum(cost for _, cost in bills))
    assert sum(found.spent.values()) == pytest.approx(found.chip_seconds)
    assert found.goodput == pytest.approx(750 / 900)
    assert (found.promoted, found.cost_per_promoted) == (1, found.cost)
    assert found.cost_of_rejected == pytest.approx(bills[1][1])
    assert found.saved == pytest.approx(found.chip_seconds / 3600 * (ON_DEMAND - PRICE))


def test_a_loss_costs_what_was_lost_and_the_start_of_the_next(store: StoreLayout) -> None:
    lost = TRAINED | {SpentOn.LOST_STEPS: 200, SpentOn.SILENCE: 60, SpentOn.DELETION: 40}
    waited = entry(2, {}, ready=None, outcome="refused: stockout")
    add_run(store, OutcomeKind.PROMOTED, entry(1, lost, loss="taken"), waited, entry(3, TRAINED))
    add_run(store, OutcomeKind.FAILED, entry(1, lost, loss="hung"))
    found = sums(store)
    assert found.lost_to_preemption == pytest.approx(8 * (300 + 150) / 3600 * PRICE)
    assert found.lost_to_failures == pytest.approx(8 * 300 / 3600 * PRICE)
    assert found.attempts == 3


def test_weeks_and_lineages_are_apart(store: StoreLayout) -> None:
    add_run(store, OutcomeKind.PROMOTED, entry(1, TRAINED, day=-3), entry(2, TRAINED))
    add_run(store, OutcomeKind.PROMOTED, entry(1, TRAINED, day=7), lineage_id="law")
    long_ago = MONDAY - timedelta(days=30)
    found = by_lineage(spent_since(store, long_ago, problems=[]))
    assert {one.lineage_id: list(one.weeks) for one in found} == {
        "default": ["2026-W04", "2026-W05"],
        "law": ["2026-W06"],
    }
    assert sums(store, lineage_id="default").attempts == 1


def test_of_an_older_ledger_the_steps_are_known() -> None:
    old = entry(1, TRAINED, stepping_seconds=600.0).model_copy(update={"seconds": {}})
    assert named(old) == {SpentOn.STEP: 600, SpentOn.UNATTRIBUTED: 300}


def test_without_a_ledger_it_is_what_it_would_be_now(store: StoreLayout) -> None:
    reservation = open_run(store)
    record = reservation.new_attempt(1, ZONE).mark(AttemptEvent.READY, workers=1)
    [one] = spent_since(store, MONDAY, problems=[])
    assert one.outcome is None
    assert set(one.chip_seconds) == {SpentOn.TPU_INITIALIZATION}
    # The reaper's word ends the time of a TPU whose books nobody closes.
    write_bill(reservation, record, reaped="expired")
    [first] = spent_since(store, MONDAY, problems=[])
    [second] = spent_since(store, MONDAY, problems=[])
    assert first == second
    assert first.entry.outcome == "reaped: expired"
    before = uris.read(record.layout.bill)
    write_bill(reservation, record, reaped="again")
    assert uris.read(record.layout.bill) == before


def test_the_command_prints_it(store: StoreLayout, capsys: pytest.CaptureFixture[str]) -> None:
    add_run(store, OutcomeKind.PROMOTED, entry(1, TRAINED))
    words = ["spending", "--store", store.root, "--since", "2026-01-26"]
    assert main(words) == 0
    text = capsys.readouterr().out
    assert "2026-W05  2.00 chip-hours, at most 1.00 USD, goodput 83.3%" in text
    assert "saved by spot 1.50" in text
    assert "estimated at 0.5 USD (2026-01) a chip-hour in us-central1: budget.price" in text
    assert main([*words, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["lineages"][0]["weeks"]["2026-W05"] == printed["lineages"][0]["total"]
    assert printed["lineages"][0]["total"]["prices"] == {"0.5 USD (2026-01)": ["us-central1"]}
    assert printed["lineages"][0]["total"]["runs"] == {"all": 1, "promoted": 1}
    assert main([*words, "--lineage", "law"]) == 0
    assert capsys.readouterr().out == "No TPU was billed.\n"


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what each call that looks at one file, or lists a folder, was about."""
    seen: list[str] = []

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def counting(backend: LocalBackend, uri: str) -> Any:
            seen.append(uri)
            return call(backend, uri)

        return counting

    for name in ("read", "read_versioned", "size", "modified", "list", "list_details"):
        monkeypatch.setattr(LocalBackend, name, counted(getattr(LocalBackend, name)))
    return seen


@pytest.mark.parametrize("older", [0, 190])
def test_only_what_can_be_in_the_window_is_read_and_once(
    store: StoreLayout, reads: list[str], older: int
) -> None:
    first = add_run(store, OutcomeKind.PROMOTED, entry(1, TRAINED, day=-90))
    template = Path(first.root)
    for number in range(older):
        shutil.copytree(template, template.with_name(f"old{number}"))
    long_ago = (MONDAY - timedelta(days=80)).timestamp()
    for ledger in Path(store.runs).glob("*/reservations/*/ledger.json"):
        os.utime(ledger, (long_ago, long_ago))
    runs = [add_run(store, OutcomeKind.PROMOTED, entry(1, TRAINED)) for _ in range(9)]
    reads.clear()
    assert sums(store).attempts == 9
    assert len(reads) == 3 * 9
    reads.clear()
    assert sums(store).attempts == 9
    assert reads == []
    # An outcome that changes is read anew, and it alone.
    outcomes.reopen(runs[0])
    assert sums(store).promoted == 8
    record = RunOutcome(outcome=OutcomeKind.REJECTED, reason="", written_by="test", time=MONDAY)
    record.write(runs[0].outcome)
    assert sums(store).cost_of_rejected > 0
    assert reads == [runs[0].outcome]


def test_books_that_are_open_are_read_each_time(store: StoreLayout, reads: list[str]) -> None:
    reservation = open_run(store)
    reservation.new_attempt(1, ZONE).mark(AttemptEvent.READY, workers=1)
    for _ in range(2):
        reads.clear()
        assert len(spent_since(store, MONDAY, problems=[])) == 1
        assert reservation.layout.record in reads


def test_without_a_day_it_is_the_last_weeks(
    store: StoreLayout, capsys: pytest.CaptureFixture[str]
) -> None:
    since = default_since()
    assert (since.weekday(), since.hour) == (0, 0)
    assert timedelta(weeks=11) < datetime.now(UTC) - since < timedelta(weeks=12, seconds=1)
    assert main(["spending", "--store", store.root, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["since"] == f"{since:%F}"
    # The first day that there is.
    assert main(["spending", "--store", store.root, "--since", "0001-01-01"]) == 0


def test_a_price_is_named_with_all_regions_in_which_it_was_counted(store: StoreLayout) -> None:
    add_run(store, OutcomeKind.PROMOTED, entry(1, TRAINED), entry(2, TRAINED, zone="us-east5-b"))
    words = price_words(sums(store))
    assert words.startswith(
        "estimated at 0.5 USD (2026-01) a chip-hour in us-central1 and us-east5"
    )


def test_a_damaged_run_is_a_problem_and_hides_no_other(
    store: StoreLayout, capsys: pytest.CaptureFixture[str]
) -> None:
    add_run(store, OutcomeKind.PROMOTED, entry(1, TRAINED))
    damaged = add_run(store, OutcomeKind.PROMOTED, entry(1, TRAINED))
    uris.write(damaged.reservation(1).ledger, b"no json")
    assert main(["spending", "--store", store.root, "--since", "2026-01-26"]) == 1
    printed = capsys.readouterr()
    assert "2.00 chip-hours" in printed.out
    assert damaged.reservation(1).ledger in printed.err
