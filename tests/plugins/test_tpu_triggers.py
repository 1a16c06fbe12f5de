from __future__ import annotations

import ast
import asyncio
import importlib
import inspect
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from airflow.models.trigger import Trigger
from airflow.triggers.base import BaseTrigger
from google.api_core.exceptions import ServiceUnavailable
from google.auth.exceptions import TransportError

from hooks.tpu import TpuHook
from pipeline_store import uris
from pipeline_store.formats import ExitKind, Progress
from tests.plugins.driver import CONN_ID, Driver, first_event, from_wire
from tests.tpu_lifecycle.test_observe import JOB, Mailbox
from tests.tpu_lifecycle.world import World
from tpu_emulator.testing import wait_for
from tpu_lifecycle.control.mailbox import submit_job
from tpu_lifecycle.control.release import become_holder
from tpu_lifecycle.records.reservation import OpenReservation
from tpu_lifecycle.service.backend import TpuAccessError, TpuName, TpuState, TpuUnavailableError
from triggers import firing, threads
from triggers import tpu as triggers
from triggers.lineage import LineageTrigger
from triggers.threads import PatientThreads
from triggers.tpu import PAUSED, TpuJobTrigger, TpuPauseTrigger, TpuReadyTrigger

COMMON: dict[str, Any] = {
    "run_uri": "/store/runs/0a1b2c3d4e5f",
    "generation": 2,
    "attempt": 3,
    "deadline": 1769860800.5,
    "poll_interval": 30.0,
    "gcp_conn_id": "my_connection",
    "impersonation_chain": ["a@example.com", "b@example.com"],
    "holder_sequence": 7,
}


@pytest.mark.parametrize(
    ("trigger", "path", "arguments"),
    [
        (TpuReadyTrigger(**COMMON), "triggers.tpu.TpuReadyTrigger", COMMON),
        (
            TpuJobTrigger(job_id=JOB, viewer="try1", **COMMON),
            "triggers.tpu.TpuJobTrigger",
            COMMON | {"job_id": JOB, "viewer": "try1"},
        ),
        (TpuPauseTrigger(until=5.5), "triggers.tpu.TpuPauseTrigger", {"until": 5.5}),
    ],
)
def test_serialization(trigger: BaseTrigger, path: str, arguments: dict[str, Any]) -> None:
    assert trigger.serialize() == (path, arguments)
    assert from_wire(trigger).serialize() == (path, arguments)


def from_airflow(trigger: BaseTrigger) -> Any:
    """Return the trigger that Airflow makes of the row it keeps of a deferred task's trigger."""
    row = Trigger.from_object(trigger)
    module, _, name = row.classpath.rpartition(".")
    return getattr(importlib.import_module(module), name)(**row.kwargs)


@pytest.mark.parametrize("kind", [TpuReadyTrigger, TpuJobTrigger])
@pytest.mark.parametrize("chain", [None, "a@example.com", ["a@example.com", "b@example.com"]])
def test_airflow_keeps_all_of_a_trigger(kind: type, chain: object) -> None:
    more = {"job_id": JOB, "viewer": "try1"} if kind is TpuJobTrigger else {}
    trigger = kind(**COMMON | more | {"impersonation_chain": chain})
    assert from_airflow(trigger).serialize() == trigger.serialize()


def test_every_trigger_has_a_serialization_test() -> None:
    public = {
        name
        for name, value in vars(triggers).items()
        if inspect.isclass(value) and issubclass(value, BaseTrigger) and not name.startswith("_")
    } - {"SettledTrigger"}
    assert public == {"TpuReadyTrigger", "TpuJobTrigger", "TpuPauseTrigger"}


def trigger_for(kind: type, reservation: OpenReservation, **changes: Any) -> Any:
    arguments = {
        "run_uri": reservation.run.root,
        "generation": reservation.record.generation,
        "attempt": 1,
        "deadline": reservation.wait_deadline.timestamp(),
        "poll_interval": 0.05,
        "gcp_conn_id": CONN_ID,
    }
    if kind is TpuJobTrigger:
        arguments |= {"job_id": JOB, "viewer": "try1"}
    # As the triggerer makes it: from what Airflow stores.
    return from_airflow(kind(**arguments | changes))


@pytest.fixture
def rented(driver: Driver) -> Any:
    """A READY TPU; the world is emptied afterwards."""
    reservation = driver.world.reserve()
    driver.world.obtain_ready(reservation)
    yield reservation
    driver.world.release(reservation)


def test_ready_fires_when_the_tpu_is_there(
    driver: Driver, capsys: pytest.CaptureFixture[str]
) -> None:
    reservation = driver.world.reserve()
    driver.world.provisioner(reservation).obtain()
    event = asyncio.run(first_event(trigger_for(TpuReadyTrigger, reservation)))
    assert (event["outcome"], event["attempt"]) == ("ready", 1)
    assert reservation.attempt(1).is_ready
    # The queue may be read a moment before the node, when it still says PROVISIONING.
    assert ", node READY" in capsys.readouterr().out
    driver.world.release(reservation)


def test_a_job_is_followed_in_the_log_until_it_ends(
    rented: OpenReservation, capsys: pytest.CaptureFixture[str]
) -> None:
    record = rented.attempt(1)
    submit_job(rented, record, job_id=JOB, entry_point="training.train", arguments=[])
    mailbox = Mailbox(record)
    mailbox.log(0, "building the model\n")
    mailbox.beat(progress=Progress(step=60, train_steps=60, loss=4.2), chunks=1)

    async def follow() -> dict[str, Any]:
        event = asyncio.create_task(first_event(trigger_for(TpuJobTrigger, rented)))
        shown = ""
        while "60/60" not in shown:
            await asyncio.sleep(0.02)
            shown += capsys.readouterr().out
        assert f"{JOB} | building the model" in shown
        assert f"{JOB}: step 60/60 (100%), loss 4.200" in shown
        mailbox.log(1, "all done\n")
        mailbox.end(chunks=2)
        return await event

    event = asyncio.run(follow())
    assert event["outcome"] == "succeeded"
    shown = capsys.readouterr().out
    assert "all done" in shown
    assert "building the model" not in shown


def test_a_job_that_tells_its_steps_is_not_spoken_for(
    rented: OpenReservation, capsys: pytest.CaptureFixture[str]
) -> None:
    record = rented.attempt(1)
    submit_job(rented, record, job_id=JOB, entry_point="training.train", arguments=[])
    mailbox = Mailbox(record)
    mailbox.log(0, "step 10/60  loss 5.1000  learning rate 1.00e-04\n")
    mailbox.beat(progress=Progress(step=10, train_steps=60, loss=5.1), chunks=1)

    async def follow() -> dict[str, Any]:
        event = asyncio.create_task(first_event(trigger_for(TpuJobTrigger, rented)))
        shown = ""
        while "10/60" not in shown:
            await asyncio.sleep(0.02)
            shown += capsys.readouterr().out
        mailbox.beat(progress=Progress(step=60, train_steps=60, loss=4.2), chunks=1)
        await asyncio.sleep(0.2)
        mailbox.end(chunks=1)
        await event
        return {"shown": shown + capsys.readouterr().out}

    shown = asyncio.run(follow())["shown"]
    assert f"{JOB} | step 10/60" in shown
    assert f"{JOB}: step" not in shown


def test_a_restarted_trigger_does_not_repeat_the_log(
    rented: OpenReservation, capsys: pytest.CaptureFixture[str]
) -> None:
    mailbox = Mailbox(rented.attempt(1))
    mailbox.log(0, "first\n")
    mailbox.beat(chunks=1)

    async def watch_for_a_while() -> None:
        task = asyncio.create_task(first_event(trigger_for(TpuJobTrigger, rented)))
        cursor = rented.attempt(1).layout.log_cursor(JOB, "try1")
        while not uris.exists(cursor):
            await asyncio.sleep(0.02)
        task.cancel()
        # It must end as cancelled: Airflow calls on_kill only then.
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(watch_for_a_while())
    mailbox.end(kind=ExitKind.USER_ERROR, chunks=1)
    assert "first" in capsys.readouterr().out
    event = asyncio.run(first_event(trigger_for(TpuJobTrigger, rented)))
    assert "first" not in capsys.readouterr().out
    assert event == {
        "outcome": "failed",
        "reason": "last words",
        "cause": "",
        "generation": 1,
        "attempt": 1,
        "holder_sequence": None,
        "retryable": True,
        "exit_kind": "user_error",
        "worker": 0,
    }


@pytest.mark.parametrize("kind", [TpuJobTrigger, TpuReadyTrigger])
def test_the_triggers_own_deadline_fires(driver: Driver, kind: type) -> None:
    reservation = driver.world.reserve()
    driver.world.emulator.admin.stockout("us-central1-a", shape="wait")
    driver.world.provisioner(reservation).obtain()
    trigger = trigger_for(kind, reservation, deadline=datetime.now(UTC).timestamp())
    assert asyncio.run(first_event(trigger))["outcome"] == "deadline"
    driver.world.release(reservation)


def test_a_few_failures_to_look_pass_and_many_are_told(
    rented: OpenReservation, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triggers, "MAX_ERRORS", 3)
    fail_next = driver.world.emulator.admin.fail_next
    fail_next("GetQueuedResource", code="PERMISSION_DENIED", message="no", count=2)
    mailbox = Mailbox(rented.attempt(1))
    mailbox.end()
    assert asyncio.run(first_event(trigger_for(TpuJobTrigger, rented)))["outcome"] == "succeeded"
    fail_next("GetQueuedResource", code="PERMISSION_DENIED", message="no", count=3)
    event = asyncio.run(first_event(trigger_for(TpuJobTrigger, rented)))
    assert event["outcome"] == "error"
    assert "PERMISSION_DENIED" in event["reason"]


def test_a_deadline_that_passes_while_looking_fails_leaves_the_judgement_to_the_task(
    rented: OpenReservation, driver: Driver
) -> None:
    driver.world.emulator.admin.fail_next("GetQueuedResource", code="PERMISSION_DENIED", count=1)
    trigger = trigger_for(TpuJobTrigger, rented, deadline=0.0)
    event = asyncio.run(first_event(trigger))
    assert (event["outcome"], "PERMISSION_DENIED" in event["reason"]) == ("error", True)


@pytest.mark.parametrize(
    "away",
    [
        OSError("the mount is away"),
        ServiceUnavailable("the bucket is away"),
        TransportError("no credentials now"),
    ],
)
def test_a_store_that_is_away_is_waited_for(
    rented: OpenReservation, monkeypatch: pytest.MonkeyPatch, away: Exception
) -> None:
    monkeypatch.setattr(triggers, "MAX_ERRORS", 2)
    Mailbox(rented.attempt(1)).end()
    exists, looks = uris.exists, []

    def flaky(uri: str) -> bool:
        looks.append(uri)
        if len(looks) <= 4:
            raise away
        return exists(uri)

    monkeypatch.setattr(uris, "exists", flaky)
    event = asyncio.run(first_event(trigger_for(TpuJobTrigger, rented)))
    assert event["outcome"] == "succeeded"
    monkeypatch.undo()


def test_what_does_not_pass_is_told(
    rented: OpenReservation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triggers, "MAX_ERRORS", 2)
    uris.write(rented.attempt(1).layout.status(0, JOB), b"not json")
    event = asyncio.run(first_event(trigger_for(TpuJobTrigger, rented)))
    assert (event["outcome"], JOB in event["reason"]) == ("error", True)


@pytest.mark.parametrize("code", ["UNAVAILABLE", "PERMISSION_DENIED"])
def test_a_connection_that_gets_no_answer_is_opened_anew(
    rented: OpenReservation, driver: Driver, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    monkeypatch.setattr(triggers, "REOPEN_AFTER", 2)
    old = TpuHook(CONN_ID).backend(driver.world.emulator.project)
    answers = []

    def describe(name: TpuName) -> TpuState:
        answers.append(code)
        raise TpuUnavailableError(code) if code == "UNAVAILABLE" else TpuAccessError(code)

    monkeypatch.setattr(old, "describe", describe)
    trigger = trigger_for(TpuJobTrigger, rented)

    async def follow() -> dict[str, Any]:
        event = asyncio.create_task(first_event(trigger))
        while TpuHook(CONN_ID).backend(driver.world.emulator.project) is old:
            await asyncio.sleep(0.02)
        Mailbox(rented.attempt(1)).end()
        return await event

    assert asyncio.run(follow())["outcome"] == "succeeded"
    assert len(answers) == 2


def test_a_look_that_never_returns_does_not_outlive_the_deadline(
    rented: OpenReservation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "LAST_LOOK_SECONDS", 0.05)
    monkeypatch.setattr(threads, "LOOK_SECONDS", 0.05)
    returns = threading.Event()
    stuck = [trigger_for(TpuJobTrigger, rented, deadline=time.time() + 0.3) for _ in range(4)]
    for trigger in stuck:
        monkeypatch.setattr(trigger, "_look", returns.wait)
    monkeypatch.setattr(triggers, "_LOOKS", PatientThreads(2, "test-look"))

    async def follow() -> list[dict[str, Any]]:
        return await asyncio.gather(*map(first_event, stuck))

    try:
        for event in asyncio.run(follow()):
            assert (event["outcome"], "deadline passed" in event["reason"]) == ("error", True)
        # Those that hang have not taken all threads.
        monkeypatch.setattr(threads, "LOOK_SECONDS", 30.0)
        Mailbox(rented.attempt(1)).end()
        event = asyncio.run(first_event(trigger_for(TpuJobTrigger, rented)))
    finally:
        returns.set()
    assert event["outcome"] == "succeeded"


def test_on_kill_deletes_only_what_it_was_started_with(
    rented: OpenReservation, world: World
) -> None:
    record = rented.attempt(1)
    sequence = become_holder(rented.run, record.attempt).sequence
    newer = become_holder(rented.run, record.attempt).sequence
    name = record.name
    asyncio.run(trigger_for(TpuReadyTrigger, rented).on_kill())
    asyncio.run(trigger_for(TpuJobTrigger, rented, holder_sequence=sequence).on_kill())
    assert world.backend.describe(name).is_ready
    asyncio.run(trigger_for(TpuJobTrigger, rented, holder_sequence=newer).on_kill())
    wait_for(lambda: not world.backend.describe(name).exists)


def test_on_kill_is_bounded(
    rented: OpenReservation, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert threads.KILL_SECONDS < 30
    monkeypatch.setattr(threads, "KILL_SECONDS", 0.1)
    trigger = trigger_for(TpuReadyTrigger, rented)
    monkeypatch.setattr(trigger, "_kill", lambda: time.sleep(0.5))
    with pytest.raises(TimeoutError):
        asyncio.run(trigger.on_kill())


def test_no_code_swallows_a_cancellation() -> None:
    tree = ast.parse(Path(triggers.__file__).read_text())
    caught = [
        ast.unparse(handler.type) if handler.type else "everything"
        for handler in ast.walk(tree)
        if isinstance(handler, ast.ExceptHandler)
    ]
    assert caught == ["Exception"]


def test_no_event_comes_before_its_deferral_has_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else Airflow fails the try that goes on, and the next one pays for another TPU."""
    at_once = TpuPauseTrigger(until=0.0)
    monkeypatch.setattr(firing, "EARLIEST_SECONDS", 3600.0)
    with pytest.raises(TimeoutError):
        asyncio.run(asyncio.wait_for(first_event(at_once), 0.5))
    monkeypatch.setattr(firing, "EARLIEST_SECONDS", 0.01)
    assert asyncio.run(first_event(at_once))["outcome"] == PAUSED


def test_each_trigger_waits_for_its_deferral() -> None:
    kinds = (LineageTrigger, TpuPauseTrigger, TpuReadyTrigger, TpuJobTrigger)
    assert {kind.run for kind in kinds} == {firing.SettledTrigger.run}


def test_a_cancellation_that_comes_with_a_result_is_not_lost() -> None:
    """Airflow calls on_kill, which deletes the TPU, only of a trigger that ends as cancelled."""

    async def cancelled() -> None:
        look = PatientThreads(1, "test").look(time.time() + 60, lambda: "seen")
        task = asyncio.create_task(look)
        await asyncio.sleep(0)
        time.sleep(0.3)  # noqa: ASYNC251 - the thread ends, and the loop has not heard of it
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
