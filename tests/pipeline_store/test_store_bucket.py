"""What the store promises in a bucket while the network loses requests and replies.

On the double, or with ``--bucket`` on a real one. Nobody can order lost replies from the real
service, so they are lost on this side of it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import pytest

from model_registry import lease, outcomes
from pipeline_store import uris
from pipeline_store.formats import OutcomeKind, ProductionPointer, RunOutcome, RunRecord
from pipeline_store.identity import run_key
from pipeline_store.layout import StoreLayout
from tests.pipeline_store.bad_network import BadNetwork

pytestmark = pytest.mark.beyond_emulators

WRITERS = 2
# More than the client sends with its announcement.
LARGE = bytes(9 << 20)

Result = TypeVar("Result")


@pytest.fixture
def uri(bucket_store: str) -> str:
    return uris.join(bucket_store, "commit.json")


def race(action: Callable[[int], Result]) -> list[Result]:
    """Let two writers act at the same moment."""
    barrier = threading.Barrier(WRITERS)

    def one(number: int) -> Result:
        barrier.wait()
        return action(number)

    with ThreadPoolExecutor(WRITERS) as pool:
        return list(pool.map(one, range(WRITERS)))


@pytest.mark.parametrize(("data", "arriving"), [(b"mine", 0), (LARGE, 0), (LARGE, 1)])
@pytest.mark.parametrize("lost", ["requests_to_lose", "replies_to_lose"])
def test_a_creation_whose_answer_was_lost_is_known_as_ones_own(
    uri: str, bad_network: BadNetwork, lost: str, data: bytes, arriving: int
) -> None:
    # A large object is announced by one request and sent by the next.
    bad_network.arriving = arriving
    setattr(bad_network, lost, 1)
    assert uris.create_if_absent(uri, data)
    assert bad_network.lost == 1
    assert uris.read(uri) == data
    assert not uris.create_if_absent(uri, data)


@pytest.mark.parametrize(("data", "arriving"), [(b"equal content", 0), (LARGE, 1)])
def test_a_defeat_whose_answer_was_lost_stays_a_defeat(
    uri: str, bad_network: BadNetwork, data: bytes, arriving: int
) -> None:
    uris.write(uri, data)
    bad_network.arriving, bad_network.replies_to_lose = arriving, 1
    # Even of equal content: two writers may want the same, and one of them came first.
    assert not uris.create_if_absent(uri, data)
    assert bad_network.lost == 1


@pytest.mark.parametrize("lost", ["requests_to_lose", "replies_to_lose"])
def test_a_change_whose_answer_was_lost_has_its_version(
    uri: str, bad_network: BadNetwork, lost: str
) -> None:
    first = uris.compare_and_set(uri, b"1", None)
    setattr(bad_network, lost, 1)
    second = uris.compare_and_set(uri, b"2", first)
    assert bad_network.lost == 1
    assert uris.read_versioned(uri) == (b"2", second)
    with pytest.raises(uris.VersionConflictError, match=r"commit\.json"):
        uris.compare_and_set(uri, b"3", first)


def test_several_lost_answers_in_a_row(uri: str, bad_network: BadNetwork) -> None:
    bad_network.replies_to_lose = 3
    assert uris.create_if_absent(uri, b"mine")
    assert bad_network.lost == 3


def test_of_two_creators_with_lost_answers_one_wins(uri: str, bad_network: BadNetwork) -> None:
    bad_network.replies_to_lose = WRITERS
    won = race(lambda number: uris.create_if_absent(uri, f"writer {number}".encode()))
    assert won.count(True) == 1
    assert uris.read(uri) == f"writer {won.index(True)}".encode()


def test_two_promotions_with_lost_answers_move_the_pointer_once(
    bucket_store: str, bad_network: BadNetwork
) -> None:
    pointer = StoreLayout(bucket_store).lineage("default").production
    bad_network.replies_to_lose = WRITERS

    def promote(number: int) -> str | None:
        """As :func:`model_registry.production.promote` decides for a first model."""
        version = f"v-{number}"

        def decide(current: ProductionPointer | None) -> ProductionPointer:
            if current is not None:
                return current
            return ProductionPointer(
                sequence=1,
                version_id=version,
                changed=datetime.now(UTC),
                reason="better",
                rolled_back=[],
            )

        return ProductionPointer.update(pointer, decide).version_id

    seen = race(promote)
    assert set(seen) == {ProductionPointer.load(pointer).version_id}
    assert ProductionPointer.load(pointer).sequence == 1


def test_two_runs_with_lost_answers_never_have_the_lease_together(
    bucket_store: str, bad_network: BadNetwork
) -> None:
    lineage = StoreLayout(bucket_store).lineage("default")
    records = [
        RunRecord(
            run_key=run_key("dag", f"run-{number}"),
            dag_id="dag",
            run_id=f"run-{number}",
            partition="2026-01-01",
            lineage_id="default",
            config_sha256="0" * 64,
            created=datetime.now(UTC),
        )
        for number in range(WRITERS)
    ]
    expires = datetime.now(UTC) + timedelta(hours=1)

    def claim(number: int) -> bool:
        return lease.acquire(
            lineage,
            records[number],
            expires=expires,
            poll_seconds=1.0,
            has_ended=lambda _: False,
        ).is_held

    # Tickets and leases: some of each are lost.
    bad_network.replies_to_lose = 2 * WRITERS
    held = race(claim)
    assert held.count(True) <= 1
    while not any(held):
        held = [claim(number) for number in range(WRITERS)]
    first = held.index(True)
    assert lease.require_held(lineage, records[first].run_key)
    assert [claim(number) for number in range(WRITERS)] == held

    bad_network.replies_to_lose = 1
    assert lease.release(lineage, records[first].run_key)
    assert claim(1 - first)


def test_two_outcomes_with_lost_answers_are_both_written(
    bucket_store: str, bad_network: BadNetwork
) -> None:
    run = StoreLayout(bucket_store).run("0a1b2c3d4e5f")
    bad_network.replies_to_lose = WRITERS
    race(
        lambda number: (
            outcomes.record(run, OutcomeKind.FAILED, f"reason {number}", written_by="test").sequence
        )
    )
    last = RunOutcome.load(run.outcome)
    assert last.reason in ("reason 0", "reason 1")
    # A change whose answer was lost, and which another came after, is made again, so that there may
    # be two of each; never fewer than one.
    assert WRITERS <= last.sequence <= 2 * WRITERS
