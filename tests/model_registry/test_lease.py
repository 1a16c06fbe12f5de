"""The lease of a lineage: one holder, whoever races; and who comes next."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from model_registry import lease, registry
from model_registry.__main__ import main
from model_registry.lease import Standing
from pipeline_config import load_preset, with_overrides
from pipeline_store import identity, uris
from pipeline_store.formats import LineageLease, RunRecord, WaitingTicket
from pipeline_store.layout import LineageLayout, StoreLayout

HOUR = timedelta(hours=1)


def a_run(partition: str, run_id: str = "") -> RunRecord:
    run_id = run_id or f"run-{partition}"
    return RunRecord(
        run_key=identity.run_key("dag", run_id),
        dag_id="dag",
        run_id=run_id,
        partition=partition,
        lineage_id="default",
        config_sha256="c",
        created=datetime.now(UTC),
    )


ONE, TWO, THREE = a_run("day-1"), a_run("day-2"), a_run("day-3")


def never(held: LineageLease) -> bool:
    return False


def acquire(
    lineage: LineageLayout, run: RunRecord, *, hours: float = 1.0, ended: tuple[str, ...] = ()
) -> Standing:
    return lease.acquire(
        lineage,
        run,
        expires=datetime.now(UTC) + timedelta(hours=hours),
        poll_seconds=1.0,
        has_ended=lambda held: held.run_id in ended,
    )


def age_ticket(lineage: LineageLayout, run: RunRecord, seconds: float) -> None:
    """Make a ticket look as if nobody had renewed it for so long."""
    uri = lineage.ticket(run.run_key)
    ticket = WaitingTicket.load(uri)
    renewed = ticket.renewed - timedelta(seconds=seconds)
    ticket.model_copy(update={"renewed": renewed}).write(uri)


@pytest.fixture
def lineage(any_store: str) -> LineageLayout:
    return StoreLayout(any_store).lineage("default")


@pytest.fixture
def folder(tmp_path: Path) -> LineageLayout:
    return StoreLayout(str(tmp_path)).lineage("default")


def test_a_free_lineage_is_taken_at_once(lineage: LineageLayout) -> None:
    assert lease.holder(lineage) is None
    standing = acquire(lineage, ONE)
    assert standing.is_held
    held = lease.holder(lineage)
    assert held is not None
    assert held == standing.lease == lease.require_held(lineage, ONE.run_key)
    assert (held.run_key, held.partition, held.sequence) == (ONE.run_key, "day-1", 1)
    assert lease.waiting(lineage) == []


def test_a_second_run_waits_and_says_for_whom(lineage: LineageLayout) -> None:
    acquire(lineage, ONE)
    standing = acquire(lineage, TWO)
    assert not standing.is_held
    assert standing.waits_since is not None
    assert "held by run run-day-1 of dag, partition day-1" in standing.describe()
    assert [ticket.run_key for ticket in lease.waiting(lineage)] == [TWO.run_key]
    with pytest.raises(registry.LeaseLostError, match=r"may not continue.*run-day-1.*`claim`"):
        lease.require_held(lineage, TWO.run_key)


def test_a_lineage_that_was_given_back_is_taken_by_the_next(lineage: LineageLayout) -> None:
    acquire(lineage, ONE)
    acquire(lineage, TWO)
    assert lease.release(lineage, ONE.run_key)
    assert lease.holder(lineage) is None
    standing = acquire(lineage, TWO)
    assert standing.is_held
    assert standing.lease is not None
    assert standing.lease.sequence == 3
    assert uris.list_files(lineage.waiting) == []


def test_the_same_run_keeps_its_lease_when_it_claims_again(lineage: LineageLayout) -> None:
    first = acquire(lineage, ONE).lease
    acquire(lineage, TWO)
    again = acquire(lineage, ONE, hours=2.0)
    assert again.is_held
    assert first is not None
    assert again.lease is not None
    assert again.lease.acquired == first.acquired
    assert again.lease.expires > first.expires
    assert again.lease.sequence > first.sequence


def test_releasing_is_idempotent_and_never_takes_from_another(lineage: LineageLayout) -> None:
    assert not lease.release(lineage, ONE.run_key)
    acquire(lineage, ONE)
    assert not lease.release(lineage, TWO.run_key)
    assert lease.require_held(lineage, ONE.run_key)
    assert lease.release(lineage, ONE.run_key)
    assert not lease.release(lineage, ONE.run_key)
    acquire(lineage, TWO)
    assert not lease.release(lineage, ONE.run_key)
    assert lease.require_held(lineage, TWO.run_key)


def test_a_release_that_is_overtaken_by_a_new_claim_leaves_it(
    folder: LineageLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    acquire(folder, ONE)
    replace = uris.compare_and_set

    def overtaken(uri: str, data: bytes, version: str | None) -> str:
        monkeypatch.undo()
        acquire(folder, ONE)
        return replace(uri, data, version)

    monkeypatch.setattr(uris, "compare_and_set", overtaken)
    assert not lease.release(folder, ONE.run_key)
    assert lease.require_held(folder, ONE.run_key)


def test_an_expired_lease_is_its_holders_while_that_run_lives(lineage: LineageLayout) -> None:
    acquire(lineage, ONE, hours=-1.0)
    assert lease.holder(lineage) is None
    assert lease.require_held(lineage, ONE.run_key)
    # Whose clock is right, nobody knows here.
    assert not acquire(lineage, TWO).is_held
    assert lease.require_held(lineage, ONE.run_key)
    assert acquire(lineage, TWO, ended=("run-day-1",)).is_held
    with pytest.raises(registry.LeaseLostError):
        lease.require_held(lineage, ONE.run_key)


def test_the_lease_of_a_run_that_has_ended_is_void(lineage: LineageLayout) -> None:
    acquire(lineage, ONE)
    assert not acquire(lineage, TWO, ended=("another",)).is_held
    assert acquire(lineage, TWO, ended=("run-day-1",)).is_held
    with pytest.raises(registry.LeaseLostError):
        lease.extend(lineage, ONE.run_key, datetime.now(UTC) + HOUR)


def test_nobody_is_asked_about_a_lease_that_was_given_back(lineage: LineageLayout) -> None:
    acquire(lineage, ONE)
    lease.release(lineage, ONE.run_key)

    def fail(held: LineageLease) -> bool:
        raise AssertionError("asked")

    standing = lease.acquire(
        lineage, TWO, expires=datetime.now(UTC) + HOUR, poll_seconds=1.0, has_ended=fail
    )
    assert standing.is_held


def test_the_smallest_partition_comes_first(lineage: LineageLayout) -> None:
    acquire(lineage, a_run("day-9"))
    for run in (THREE, ONE, TWO):
        assert not acquire(lineage, run).is_held
    lease.release(lineage, identity.run_key("dag", "run-day-9"))
    third = acquire(lineage, THREE)
    assert not third.is_held
    assert [ticket.partition for ticket in third.ahead] == ["day-1", "day-2"]
    assert "2 waiting run(s) come first: day-1, day-2" in third.describe()
    assert acquire(lineage, ONE).is_held
    lease.release(lineage, ONE.run_key)
    assert not acquire(lineage, THREE).is_held
    assert acquire(lineage, TWO).is_held


def test_only_the_next_run_takes_over_from_one_that_has_ended(lineage: LineageLayout) -> None:
    acquire(lineage, a_run("day-9"))
    acquire(lineage, ONE)
    acquire(lineage, TWO)
    assert not acquire(lineage, TWO, ended=("run-day-9",)).is_held
    assert acquire(lineage, ONE, ended=("run-day-9",)).is_held


def test_two_runs_of_one_partition_come_in_the_order_of_their_arrival(
    lineage: LineageLayout,
) -> None:
    acquire(lineage, THREE)
    early, late = a_run("day-1", "z"), a_run("day-1", "a")
    acquire(lineage, early)
    acquire(lineage, late)
    lease.release(lineage, THREE.run_key)
    assert not acquire(lineage, late).is_held
    assert acquire(lineage, early).is_held


@pytest.mark.parametrize("ahead", [1, -1], ids=["old", "from the future"])
def test_a_ticket_that_nobody_renews_does_not_count(lineage: LineageLayout, ahead: int) -> None:
    acquire(lineage, THREE)
    acquire(lineage, ONE)
    acquire(lineage, TWO)
    age_ticket(lineage, ONE, ahead * (lease.LEAST_SECONDS + 10))
    lease.release(lineage, THREE.run_key)
    assert acquire(lineage, TWO).is_held
    # What a killed run left behind is gone too.
    assert uris.list_files(lineage.waiting) == []


def test_a_ticket_counts_for_some_polls(lineage: LineageLayout) -> None:
    acquire(lineage, THREE)
    lease.acquire(
        lineage, ONE, expires=datetime.now(UTC) + HOUR, poll_seconds=60.0, has_ended=never
    )
    age_ticket(lineage, ONE, 60.0 * (lease.STALE_POLLS - 1))
    lease.release(lineage, THREE.run_key)
    assert not acquire(lineage, TWO).is_held
    age_ticket(lineage, ONE, 61.0)
    assert acquire(lineage, TWO).is_held


def test_whoever_stops_waiting_holds_up_nobody(lineage: LineageLayout) -> None:
    acquire(lineage, THREE)
    since = acquire(lineage, ONE).waits_since
    assert acquire(lineage, ONE).waits_since == since
    acquire(lineage, TWO)
    lease.leave(lineage, ONE.run_key)
    lease.leave(lineage, ONE.run_key)
    lease.release(lineage, THREE.run_key)
    assert acquire(lineage, TWO).is_held


def test_a_damaged_ticket_holds_up_nobody(lineage: LineageLayout) -> None:
    uris.write(lineage.ticket(ONE.run_key), b"{")
    assert lease.waiting(lineage) == []
    assert acquire(lineage, TWO).is_held


def test_a_lease_is_extended_and_never_shortened(lineage: LineageLayout) -> None:
    held = acquire(lineage, ONE).lease
    assert held is not None
    assert lease.extend(lineage, ONE.run_key, held.expires - HOUR) == held
    assert lease.extend(lineage, ONE.run_key, held.expires + HOUR).expires == held.expires + HOUR
    with pytest.raises(registry.LeaseLostError):
        lease.extend(lineage, TWO.run_key, held.expires + 2 * HOUR)


def test_the_expiry_leaves_time_for_all_that_a_run_may_take() -> None:
    config = with_overrides(
        load_preset("smoke"),
        {
            "budget.max_hours": 10.0,
            "tpu.zones": ["us-central1-a", "us-central1-b"],
            "tpu.queue_timeout_seconds": 3600,
            "tpu.boot_timeout_seconds": 1800,
        },
    )
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert lease.expiry(config, now) - now == timedelta(hours=10 + 2 * 1.5) + lease.SPARE


def test_a_damaged_lease_is_named_with_what_to_do_and_can_be_broken(
    folder: LineageLayout,
) -> None:
    acquire(folder, ONE)
    uris.write(folder.lease, uris.read(folder.lease)[:-20])
    for act in (
        lambda: acquire(folder, TWO),
        lambda: lease.release(folder, ONE.run_key),
        lambda: lease.require_held(folder, ONE.run_key),
        lambda: lease.extend(folder, ONE.run_key, datetime.now(UTC)),
    ):
        with pytest.raises(registry.RegistryError, match=r"lease\.json.*lease --break --reason"):
            act()
    assert lease.break_lease(folder, "cut by a full disk") is None
    found = lease.read(folder)
    assert found is not None
    assert found.note == "cut by a full disk"
    assert acquire(folder, TWO).is_held


def test_a_person_breaks_a_lease(folder: LineageLayout, capsys: pytest.CaptureFixture[str]) -> None:
    store = folder.root.removesuffix("/lineages/default")
    assert main(["lease", "--store", store]) == 0
    assert "Lineage default: no run has ever held the lineage" in capsys.readouterr().out
    acquire(folder, ONE)
    acquire(folder, TWO)
    assert main(["lease", "--store", store, "--break"]) == 1
    assert "needs --reason" in capsys.readouterr().err
    assert lease.require_held(folder, ONE.run_key)
    assert main(["lease", "--store", store, "--break", "--reason", "it hangs"]) == 0
    output = capsys.readouterr().out
    assert "Broken: the lineage is held by run run-day-1" in output
    assert "no run holds the lineage; the last was run run-day-1 of dag" in output
    assert "(it hangs)" in output
    assert "partition day-2, run run-day-2" in output
    with pytest.raises(registry.LeaseLostError, match="it hangs"):
        lease.require_held(folder, ONE.run_key)
    # Nothing left to break.
    before = uris.read(folder.lease)
    assert main(["lease", "--store", store, "--break", "--reason", "again"]) == 0
    assert uris.read(folder.lease) == before


def test_of_concurrent_claims_one_wins(lineage: LineageLayout) -> None:
    runs = [a_run("day-1", f"run-{number}") for number in range(6)]
    barrier = threading.Barrier(len(runs))

    def one(run: RunRecord) -> bool:
        barrier.wait()
        return acquire(lineage, run).is_held

    with ThreadPoolExecutor(len(runs)) as pool:
        won = list(pool.map(one, runs))
    # None may have: each can have seen the ticket of one that came earlier and was slower.
    assert won.count(True) <= 1
    while not any(won):
        won = [acquire(lineage, run).is_held for run in runs]
    assert won.count(True) == 1
    assert lease.require_held(lineage, runs[won.index(True)].run_key)


def test_of_concurrent_takeovers_one_wins(lineage: LineageLayout) -> None:
    acquire(lineage, THREE, hours=-1.0)
    runs = [a_run("day-1", f"run-{number}") for number in range(6)]
    barrier = threading.Barrier(len(runs))

    def one(run: RunRecord) -> bool:
        barrier.wait()
        ended = ("run-day-3",)
        return any(acquire(lineage, run, ended=ended).is_held for _ in range(20))

    with ThreadPoolExecutor(len(runs)) as pool:
        won = list(pool.map(one, runs))
    assert won.count(True) == 1
    assert lease.require_held(lineage, runs[won.index(True)].run_key)


def _work(root: str, name: str, passes: int) -> None:
    """Claim, do something that two at once would spoil, and give back; again and again."""
    lineage, run = StoreLayout(root).lineage("default"), a_run(name)
    ledger = Path(root, "ledger")
    done = 0
    while done < passes:
        if not acquire(lineage, run).is_held:
            continue
        with Path(root, "inside").open("x"):
            ledger.write_text(f"{int(ledger.read_text()) + 1}")
        Path(root, "inside").unlink()
        assert lease.release(lineage, run.run_key)
        done += 1


def test_processes_that_race_are_never_inside_together(tmp_path: Path) -> None:
    (tmp_path / "ledger").write_text("0")
    context = multiprocessing.get_context("spawn")
    workers = [
        context.Process(target=_work, args=(str(tmp_path), f"day-{number}", 5))
        for number in range(4)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    assert [worker.exitcode for worker in workers] == [0] * len(workers)
    assert (tmp_path / "ledger").read_text() == "20"


def test_a_process_killed_while_it_holds_leaves_a_lease_that_ends(tmp_path: Path) -> None:
    code = (
        "import os, signal\n"
        "from tests.model_registry.test_lease import ONE, StoreLayout, acquire\n"
        f"assert acquire(StoreLayout({str(tmp_path)!r}).lineage('default'), ONE).is_held\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run([sys.executable, "-c", code], check=False)
    assert killed.returncode == -9
    lineage = StoreLayout(str(tmp_path)).lineage("default")
    assert not acquire(lineage, TWO).is_held
    assert acquire(lineage, TWO, ended=("run-day-1",)).is_held
