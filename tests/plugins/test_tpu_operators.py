from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import time
import zipfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.bases.operator import TriggerFailureReason
from airflow.sdk.exceptions import AirflowException, AirflowFailException, TaskDeferred

from hooks.tpu import TpuHook, forget
from operators import tpu as operators
from operators.tpu import (
    TpuCreateOperator,
    TpuDeleteOperator,
    TpuReaperOperator,
    TpuReserveOperator,
    TpuRunOperator,
)
from pipeline_store import uris
from pipeline_store.formats import (
    AttemptEvent,
    ExitKind,
    Heartbeat,
    Holder,
    JobKey,
    JobStatus,
    Ledger,
    Released,
)
from tests.plugins.driver import CONN_ID, Driver, first_event, from_wire
from tests.tpu_lifecycle.world import OTHER_ZONE, OWNER, ZONE
from tpu_emulator.testing import wait_for
from tpu_lifecycle.boot.bundle import build_bundle

QUICK_JOB: dict[str, Any] = {
    "job_id": "010-train",
    "entry_point": "training.quick",
    "arguments": ["--any"],
}
ENDLESS_JOB = QUICK_JOB | {"entry_point": "training.endless"}


def reserve(driver: Driver) -> dict[str, int]:
    operator = TpuReserveOperator(task_id="reserve", tpu_owner=OWNER, **driver.arguments)
    return operator.execute(driver.context())


def create(driver: Driver) -> int:
    soon = timedelta(seconds=0.1)
    attempt: int = driver.finish(
        TpuCreateOperator(task_id="create", retry_delay=soon, **driver.arguments)
    )
    return attempt


def run_operator(driver: Driver, job: dict[str, Any], task_id: str = "train") -> TpuRunOperator:
    return TpuRunOperator(task_id=task_id, **job, **driver.arguments)


def event_of(driver: Driver, **changes: Any) -> dict[str, Any]:
    sequence = Holder.load(driver.run.holder).sequence
    return {"generation": 1, "attempt": 1, "holder_sequence": sequence} | changes


def delete(driver: Driver) -> dict[str, Any]:
    return TpuDeleteOperator(task_id="delete", **driver.arguments).execute(driver.context())


def test_two_jobs_on_one_tpu_that_is_given_back(
    driver: Driver, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reserve(driver) == {"generation": 1}
    key = driver.world.store.job_key(driver.record.run_key, 1)
    assert uris.exists(key)
    assert create(driver) == 1
    trained = driver.finish(run_operator(driver, QUICK_JOB))
    assert trained == {"status": "succeeded", "attempt": 1, "attempts_lost": 0}
    second = QUICK_JOB | {"job_id": "020-evaluate"}
    evaluated = driver.finish(run_operator(driver, second, "evaluate"))
    assert evaluated["attempt"] == 1
    # The job's own output is in the task's log.
    assert "010-train | hello from the job" in capsys.readouterr().out
    assert len(driver.world.nodes()) == 1
    secret = JobKey.load(key).key
    report = delete(driver)
    # It is in no log, and goes with the TPU.
    said = capsys.readouterr().out
    assert "No TPU left" in said
    assert secret not in said
    assert not uris.exists(key)
    assert report["deleted"] == [str(driver.reservation.attempt(1).name)]
    assert report["chip_seconds"] > 0
    driver.world.assert_nothing_left()
    assert delete(driver)["deleted"] == []


def test_a_job_that_fails_fails_the_task_with_its_last_words(driver: Driver) -> None:
    reserve(driver)
    create(driver)
    job = QUICK_JOB | {"entry_point": "training.broken"}
    with pytest.raises(AirflowFailException, match=r"worker 0: failed(.|\n)*the last words"):
        driver.finish(run_operator(driver, job))
    delete(driver)


def test_advice_comes_with_the_failures_that_have_one(driver: Driver) -> None:
    reserve(driver)
    record = driver.reservation.new_attempt(1, ZONE)
    fail = run_operator(driver, QUICK_JOB)._fail_job
    event = {"exit_kind": "out_of_memory", "worker": 3, "reason": "hbm is full"}
    with pytest.raises(AirflowFailException, match=r"worker 3(.|\n)*global_batch_size(.|\n)*hbm"):
        fail(driver.reservation, record, event)
    event = {"exit_kind": "deadline", "worker": 0, "reason": "late"}
    with pytest.raises(AirflowFailException, match=re.escape(driver.run.config)):
        fail(driver.reservation, record, event)


def test_a_lost_tpu_is_replaced_and_the_job_submitted_again(driver: Driver) -> None:
    driver.configure({"budget.max_preemptions": 1})
    reserve(driver)
    create(driver)
    operator = run_operator(driver, ENDLESS_JOB)
    deferred = driver.start(operator)
    first = driver.reservation.attempt(1)
    driver.world.emulator.admin.preempt(first.attempt.node_id)
    event = asyncio.run(first_event(from_wire(deferred.trigger)))
    assert event["outcome"] == "lost"

    def next_deferral(deferred: TaskDeferred, event: dict[str, Any]) -> TaskDeferred:
        with pytest.raises(TaskDeferred) as again:
            driver.resume(run_operator(driver, ENDLESS_JOB), deferred, event)
        return again.value

    # The lost one is gone, the next one is asked for, waited for, and gets the same job.
    waiting = next_deferral(deferred, event)
    assert type(waiting.trigger).__name__ == "TpuReadyTrigger"
    assert AttemptEvent.GONE in driver.reservation.attempt(1).marks
    ready = asyncio.run(first_event(from_wire(waiting.trigger)))
    running = next_deferral(waiting, ready)
    second = driver.reservation.attempt(2)
    holder = Holder.load(driver.run.holder)
    assert (holder.attempt, holder.token) == (2, second.attempt.token)
    assert second.attempt.token != first.attempt.token
    driver.world.emulator.admin.preempt(second.attempt.node_id, node_state="GONE")
    lost = asyncio.run(first_event(from_wire(running.trigger)))
    with pytest.raises(AirflowFailException, match="max_preemptions=1"):
        driver.resume(run_operator(driver, ENDLESS_JOB), running, lost)
    delete(driver)


def test_a_run_that_waits_at_an_upgrade_finishes_with_the_code_it_began_with(
    driver: Driver,
) -> None:
    driver.configure({"budget.max_preemptions": 1})
    version = driver.source / "training" / "version.py"
    version.write_text("print('the old code')\n")
    reserve(driver)
    create(driver)
    deferred = driver.start(run_operator(driver, ENDLESS_JOB))
    version.write_text("print('the new code')\n")
    code = build_bundle(driver.world.store, driver.source).sha256
    assert driver.reservation.record.bundle_sha256 != code
    # The TPU that replaces the lost one gets the code of the reservation, not what is there now.
    driver.world.emulator.admin.preempt(driver.reservation.attempt(1).attempt.node_id)
    lost = asyncio.run(first_event(from_wire(deferred.trigger)))
    operator = run_operator(driver, QUICK_JOB | {"entry_point": "training.version"})
    with pytest.raises(TaskDeferred) as waiting:
        driver.resume(operator, deferred, lost)
    assert driver.finish(operator, waiting.value)["status"] == "succeeded"
    assert driver.reservation.attempts()[-1].number == 2
    log = driver.reservation.attempt(2).layout.log_chunk(0, QUICK_JOB["job_id"], 0)
    assert b"the old code" in uris.read(log)
    delete(driver)


def test_a_tpu_that_was_rented_before_jobs_were_signed_finishes_with_its_own_agent(
    driver: Driver,
) -> None:
    driver.configure({"budget.max_preemptions": 1})
    for package in ("pipeline_config", "pipeline_store", "tpu_agent"):
        shutil.rmtree(driver.source / package)
    with zipfile.ZipFile(Path(__file__).with_name("earlier_agent.zip")) as earlier:
        earlier.extractall(driver.source)
    reserve(driver)
    # Of that time: no key was made.
    uris.delete(driver.world.store.job_key(driver.record.run_key, 1))
    create(driver)
    deferred = driver.start(run_operator(driver, ENDLESS_JOB))
    mailbox = driver.reservation.attempt(1).layout
    assert uris.list_files(uris.join(mailbox.root, "signatures")) == []
    wait_for(lambda: (b := Heartbeat.load_or_none(mailbox.heartbeat(0))) and b.job_id)
    # The TPU that replaces a lost one has the agent of then, and today's boot script.
    driver.world.emulator.admin.preempt(driver.reservation.attempt(1).attempt.node_id)
    lost = asyncio.run(first_event(from_wire(deferred.trigger)))
    operator = run_operator(driver, QUICK_JOB)
    with pytest.raises(TaskDeferred) as waiting:
        driver.resume(operator, deferred, lost)
    assert driver.finish(operator, waiting.value)["status"] == "succeeded"
    assert driver.reservation.attempts()[-1].number == 2
    delete(driver)


def test_a_retry_goes_on_to_wait_for_the_job_that_runs(driver: Driver) -> None:
    reserve(driver)
    assert create(driver) == 1
    assert create(driver) == 1
    first = driver.start(run_operator(driver, ENDLESS_JOB), try_number=1)
    second = driver.start(run_operator(driver, ENDLESS_JOB), try_number=2)
    assert len(driver.reservation.attempts()) == 1
    # The first try's cancellation, which Airflow may deliver late, leaves the second's TPU alone.
    asyncio.run(from_wire(first.trigger).on_kill())
    name = driver.reservation.attempt(1).name
    assert driver.world.backend.describe(name).is_ready
    asyncio.run(from_wire(second.trigger).on_kill())
    wait_for(lambda: not driver.world.backend.describe(name).exists)
    asyncio.run(from_wire(second.trigger).on_kill())  # again is harmless
    delete(driver)


def test_a_run_that_is_cleared_with_its_setups_starts_a_new_generation(driver: Driver) -> None:
    reserve(driver)
    create(driver)
    old = driver.start(run_operator(driver, ENDLESS_JOB))
    old_name = driver.reservation.attempt(1).name
    assert reserve(driver) == {"generation": 2}
    create(driver)
    new_name = driver.reservation.attempt(1).name
    assert driver.world.backend.describe(new_name).is_ready
    assert not driver.world.backend.describe(old_name).exists
    # The old try's cancellation comes after the new TPU is there, as Airflow does it.
    asyncio.run(from_wire(old.trigger).on_kill())
    assert driver.world.backend.describe(new_name).is_ready
    assert delete(driver)["deleted"] == [str(new_name)]


def test_create_asks_in_the_next_zone_after_a_stockout(driver: Driver) -> None:
    driver.configure({"tpu.zones": [ZONE, OTHER_ZONE]})
    driver.world.emulator.admin.stockout(ZONE, shape="state")
    reserve(driver)
    assert create(driver) == 2
    assert [event["outcome"] for event in driver.events] == ["refused", "ready"]
    assert driver.reservation.attempt(2).attempt.zone == OTHER_ZONE
    delete(driver)


def test_create_waits_for_capacity_and_uses_up_no_retry(driver: Driver) -> None:
    driver.world.emulator.admin.stockout(ZONE, shape="sync", count=3)
    reserve(driver)
    assert create(driver) == 4
    assert [event["outcome"] for event in driver.events] == ["paused"] * 3 + ["ready"]
    delete(driver)


def test_pauses_grow_and_the_runs_time_ends_them(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.world.emulator.admin.stockout(ZONE, shape="sync", count=9)
    reserve(driver)
    minute = timedelta(minutes=1)
    operator = TpuCreateOperator(task_id="create", retry_delay=minute, **driver.arguments)
    deferred, pauses = driver.start(operator), []
    for _ in range(6):
        pauses.append(round((deferred.trigger.until - time.time()) / 60))
        with pytest.raises(TaskDeferred) as again:
            driver.resume(operator, deferred, {"outcome": "paused"})
        deferred = again.value
    assert pauses == [1, 2, 4, 8, 15, 15]
    soon = driver.reservation.record.model_copy(
        update={"expires_at": datetime.now(UTC) + 14 * minute}
    )
    soon.write(driver.reservation.layout.record)
    with pytest.raises(AirflowFailException, match=rf"\[stockout\].*None of {ZONE}.*expires at"):
        driver.resume(operator, deferred, {"outcome": "paused"})
    delete(driver)


def test_create_fails_at_once_when_the_request_can_never_work(driver: Driver) -> None:
    driver.configure({"tpu.accelerator_type": "v5litepod-7"})
    reserve(driver)
    with pytest.raises(AirflowFailException, match=r"tpu\.accelerator_type"):
        create(driver)
    delete(driver)


def test_a_task_of_a_released_reservation_fails(driver: Driver) -> None:
    reserve(driver)
    create(driver)
    deferred = driver.start(run_operator(driver, ENDLESS_JOB))
    delete(driver)
    with pytest.raises(AirflowFailException, match="released"):
        driver.finish(run_operator(driver, ENDLESS_JOB), deferred)
    with pytest.raises(AirflowFailException, match="was released"):
        create(driver)


def test_without_a_reservation_nothing_is_asked_for(driver: Driver) -> None:
    with pytest.raises(AirflowFailException, match="run the reserve task first"):
        create(driver)
    assert delete(driver)["deleted"] == []


def test_killing_the_process_of_a_task_gives_back_what_it_has_in_hand(driver: Driver) -> None:
    reserve(driver)
    operator = TpuCreateOperator(task_id="create", **driver.arguments)
    operator.on_kill()  # nothing in hand yet
    operator = TpuCreateOperator(task_id="create", **driver.arguments)
    driver.start(operator)
    operator.on_kill()
    name = driver.reservation.attempt(1).name
    wait_for(lambda: not driver.world.backend.describe(name).exists)
    # What is still running of the killed task asks for nothing any more.
    with pytest.raises(AirflowFailException, match="being cancelled"):
        operator.execute(driver.context())
    delete(driver)


def time_out(driver: Driver, operator: Any) -> Any:
    """Resume a task as Airflow does when it was away for longer than the deferral may take."""
    failure = {"error": TriggerFailureReason.TRIGGER_TIMEOUT}
    return operator.resume_execution("__fail__", failure, driver.context())


def expire(driver: Driver) -> None:
    """Let the time of the reservation be over."""
    record = driver.reservation.record
    past = {"created": record.created - timedelta(days=9), "expires_at": record.created}
    record.model_copy(update=past).write(driver.reservation.layout.record)


def test_a_deferral_that_timed_out_keeps_the_tpu_and_its_job(driver: Driver) -> None:
    reserve(driver)
    operator = TpuCreateOperator(task_id="create", **driver.arguments)
    driver.start(operator)
    wait_for(lambda: [n for n in driver.world.nodes() if n["state"] == "READY"])
    with pytest.raises(TaskDeferred) as again:
        time_out(driver, TpuCreateOperator(task_id="create", **driver.arguments))
    # Its deadline is over, but the TPU has come.
    trigger: Any = again.value.trigger
    trigger.deadline = 0.0
    assert driver.finish(operator, again.value) == 1
    driver.start(run_operator(driver, ENDLESS_JOB))
    with pytest.raises(TaskDeferred):
        time_out(driver, run_operator(driver, ENDLESS_JOB))
    name = driver.reservation.attempt(1).name
    assert driver.world.backend.describe(name).is_ready
    delete(driver)


def test_a_deferral_that_timed_out_gives_back_when_the_reservation_is_over(driver: Driver) -> None:
    reserve(driver)
    create(driver)
    driver.start(run_operator(driver, ENDLESS_JOB))
    expire(driver)
    with pytest.raises(AirflowFailException, match=r"\[budget\].*max_hours is used up"):
        time_out(driver, run_operator(driver, ENDLESS_JOB))
    record = driver.reservation.attempt(1)
    wait_for(lambda: not driver.world.backend.describe(record.name).exists)
    assert "max_hours is used up" in record.outcome
    delete(driver)


def test_a_job_that_ended_while_airflow_was_away_has_ended(driver: Driver) -> None:
    reserve(driver)
    create(driver)
    driver.start(run_operator(driver, QUICK_JOB))
    layout = driver.reservation.attempt(1).layout
    wait_for(lambda: uris.exists(layout.status(0, QUICK_JOB["job_id"])))
    broken = QUICK_JOB | {"job_id": "020-evaluate", "entry_point": "training.broken"}
    driver.start(run_operator(driver, broken))
    wait_for(lambda: uris.exists(layout.status(0, broken["job_id"])))
    expire(driver)
    assert time_out(driver, run_operator(driver, QUICK_JOB))["status"] == "succeeded"
    with pytest.raises(AirflowFailException, match="the last words"):
        time_out(driver, run_operator(driver, broken))
    delete(driver)


def test_the_end_of_a_tasks_time_leaves_another_tasks_tpu_alone(driver: Driver) -> None:
    reserve(driver)
    create(driver)
    old = driver.start(run_operator(driver, ENDLESS_JOB), try_number=1)
    event = event_of(driver, outcome="deadline", reason="late")
    driver.start(run_operator(driver, ENDLESS_JOB), try_number=2)
    with pytest.raises(AirflowFailException, match="deadline: late"):
        driver.resume(run_operator(driver, ENDLESS_JOB), old, event)
    assert driver.world.backend.describe(driver.reservation.attempt(1).name).is_ready
    delete(driver)


def test_without_its_store_delete_does_not_say_that_nothing_was_reserved(driver: Driver) -> None:
    reserve(driver)
    create(driver)
    store = Path(driver.world.store.root)
    away = store.rename(store.with_name("unmounted"))
    with pytest.raises(AirflowException, match=r"no .*run\.json.*store mounted") as error:
        delete(driver)
    assert not isinstance(error.value, AirflowFailException)
    with pytest.raises(AirflowException, match=r"\[infrastructure\] MissingRunError") as error:
        create(driver)
    assert not isinstance(error.value, AirflowFailException)
    shutil.rmtree(store, ignore_errors=True)
    away.rename(store)
    assert len(delete(driver)["deleted"]) == 1


def test_a_zone_that_refuses_for_good_after_it_accepted_is_left_out(driver: Driver) -> None:
    driver.configure({"tpu.zones": [ZONE, OTHER_ZONE]})
    reserve(driver)
    driver.world.emulator.admin.fail_operation(
        "CreateQueuedResource", code="PERMISSION_DENIED", message="no", zone=ZONE
    )
    assert create(driver) == 2
    assert [event["outcome"] for event in driver.events] == ["refused", "ready"]
    delete(driver)


def test_the_jobs_deadline_stops_it(driver: Driver) -> None:
    reserve(driver)
    create(driver)
    deferred = driver.start(run_operator(driver, ENDLESS_JOB))
    event = event_of(driver, outcome="deadline", reason="late")
    with pytest.raises(AirflowFailException, match="deadline: late"):
        driver.resume(run_operator(driver, ENDLESS_JOB), deferred, event)
    name = driver.reservation.attempt(1).name
    wait_for(lambda: not driver.world.backend.describe(name).exists)
    delete(driver)


def test_a_trigger_that_cannot_look_lets_the_task_be_retried(driver: Driver) -> None:
    reserve(driver)
    create(driver)
    deferred = driver.start(run_operator(driver, ENDLESS_JOB))
    event = event_of(driver, outcome="error", reason="store is away")
    with pytest.raises(AirflowException, match="store is away") as error:
        driver.resume(run_operator(driver, ENDLESS_JOB), deferred, event)
    assert not isinstance(error.value, AirflowFailException)
    assert len(driver.world.nodes()) == 1
    delete(driver)


def test_a_failed_delete_may_be_retried_whatever_the_reason(driver: Driver) -> None:
    reserve(driver)
    create(driver)
    driver.world.emulator.admin.fail_next(
        "ListQueuedResources", code="PERMISSION_DENIED", message="no"
    )
    with pytest.raises(AirflowException, match="TpuAccessError") as error:
        delete(driver)
    assert not isinstance(error.value, AirflowFailException)
    delete(driver)


def test_the_tombstone_needs_neither_configuration_nor_connection(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserve(driver)
    reserve(driver)
    uris.write(driver.run.config, b"not a configuration")
    variable = f"AIRFLOW_CONN_{CONN_ID.upper()}"
    connection = os.environ[variable]
    monkeypatch.setenv(variable, "{}")
    with pytest.raises(Exception):  # noqa: B017, PT011 - whatever a broken connection raises
        delete(driver)
    for number in (1, 2):
        assert uris.exists(driver.run.reservation(number).released)
    monkeypatch.setenv(variable, connection)
    assert delete(driver)["deleted"] == []


@pytest.mark.parametrize("default_retries", [None, 2, 9])
def test_delete_has_at_least_five_retries(driver: Driver, default_retries: int | None) -> None:
    defaults = {} if default_retries is None else {"retries": default_retries}
    operator = TpuDeleteOperator(task_id="delete", default_args=defaults, **driver.arguments)
    assert operator.retries == max(default_retries or 0, 5)
    assert operator.retry_exponential_backoff


def test_the_reaper_takes_what_was_released_and_left(
    driver: Driver, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tpu_lifecycle.control.reaper.PAUSE_SECONDS", 0.0)

    def reap(**changes: Any) -> list[str]:
        arguments = {"store_uri": driver.world.store.root, "gcp_conn_id": CONN_ID}
        operator = TpuReaperOperator(
            task_id="reap", tpu_owner=OWNER, zones=[ZONE], **arguments | changes
        )
        return operator.execute(driver.context())

    reserve(driver)
    create(driver)
    assert reap() == []
    reservation = driver.reservation
    an_hour_ago = datetime.now(UTC) - timedelta(hours=1)
    Released(
        run_key=reservation.record.run_key, generation=1, released=an_hour_ago, reason="test"
    ).create(reservation.layout.released)
    assert len(reap(dry_run=True)) == 1
    assert len(driver.world.nodes()) == 1
    [line] = reap()
    assert "was released" in line
    assert "TPU REAPER HAD TO ACT" in capsys.readouterr().out
    name = driver.reservation.attempt(1).name
    wait_for(lambda: not driver.world.backend.describe(name).exists)
    driver.world.emulator.admin.fail_next("ListNodes", code="PERMISSION_DENIED", message="no")
    with pytest.raises(AirflowException, match="Not everything"):
        reap()


def test_templated_fields_exist_and_links_lead_somewhere(driver: Driver) -> None:
    reserve(driver)
    operator = run_operator(driver, QUICK_JOB)
    kinds = [TpuReserveOperator, TpuCreateOperator, TpuDeleteOperator]
    for each in [operator, *(kind(task_id="t", **driver.arguments) for kind in kinds)]:
        assert {"store_uri", "gcp_conn_id"} <= set(each.template_fields)
        assert all(hasattr(each, name) for name in each.template_fields)
    folder, console = operator.operator_extra_links
    assert folder.get_link(operator, ti_key=None) == ""  # type: ignore[arg-type]
    operator.find_run(driver.context())
    # No browser opens a folder of this machine from a page.
    assert folder.get_link(operator, ti_key=None) == ""  # type: ignore[arg-type]
    operator.run_uri = "gs://bucket/store/runs/k"
    assert folder.get_link(operator, ti_key=None) == (  # type: ignore[arg-type]
        "https://console.cloud.google.com/storage/browser/bucket/store/runs/k"
    )
    assert console.get_link(operator, ti_key=None) == ""  # type: ignore[arg-type]
    name = driver.reservation.new_attempt(1, ZONE).name
    operator.tpu_place = ("my-project", name)
    assert console.get_link(operator, ti_key=None) == (  # type: ignore[arg-type]
        f"https://console.cloud.google.com/compute/tpus/details/{ZONE}/{name.resource_id}"
        "?project=my-project"
    )


@pytest.mark.parametrize("said", [False, "false", "False", "", None])
def test_a_connection_is_insecure_only_if_it_says_so(
    monkeypatch: pytest.MonkeyPatch, said: object
) -> None:
    for extra, expected in ((said, False), ("true", True), (True, True)):
        connection = {"conn_type": "google_cloud_platform", "extra": {"tpu_insecure": extra}}
        monkeypatch.setenv("AIRFLOW_CONN_SOME_CLOUD", json.dumps(connection))
        assert TpuHook("some_cloud").is_insecure is expected


def test_the_hook_keeps_one_channel_per_connection(driver: Driver) -> None:
    hook = TpuHook(CONN_ID)
    assert hook.is_insecure
    assert hook.endpoint == driver.world.emulator.endpoint
    assert hook.backend() is TpuHook(CONN_ID).backend(driver.world.emulator.project)
    assert hook.backend("other-project") is not hook.backend()
    old = hook.backend()
    forget(old)
    assert hook.backend() is not old
    assert hook.test_connection()[0]


def test_every_way_a_job_ends_is_known(driver: Driver) -> None:
    assert set(operators.JOB_ADVICE) <= set(ExitKind)
    assert JobStatus.model_fields["exit_kind"].annotation is ExitKind


STEPS = """
import datetime, json, os
now = datetime.datetime.now(datetime.UTC).isoformat()
progress = {"step": 3, "train_steps": 3, "first_step": now, "stepping_seconds": 0.25}
target = os.environ["REPRETRAIN_PROGRESS_FILE"]
with open(target + ".new", "w") as file:
    json.dump(progress, file)
os.replace(target + ".new", target)
"""


def test_the_end_of_a_run_shows_what_the_tpu_did(
    driver: Driver, capsys: pytest.CaptureFixture[str]
) -> None:
    (driver.source / "training" / "steps.py").write_text(STEPS)
    reserve(driver)
    create(driver)
    driver.finish(run_operator(driver, QUICK_JOB | {"entry_point": "training.steps"}))
    beat = driver.reservation.attempt(1).layout.heartbeat(0)
    wait_for(lambda: any(job.first_step for job in Heartbeat.load(beat).usage))
    capsys.readouterr()
    report = delete(driver)
    assert 0.0 < report["idle_share"] < 1.0
    [entry] = Ledger.load(driver.reservation.layout.ledger).entries
    assert entry.stepping_seconds == pytest.approx(0.25)
    assert entry.ready_to_first_step_seconds is not None
    said = capsys.readouterr().out
    assert "Ledger: a1 in us-central1-a: 1 chip(s)" in said
    assert "after READY, 0 s in steps" in said
    assert "without a training step" in said
