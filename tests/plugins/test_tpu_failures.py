"""However a TPU task ends badly, it says why in one line, and whether a retry can help."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta
from pathlib import Path

import pytest
from airflow.sdk.bases.operator import TriggerFailureReason
from google.api_core.exceptions import ServiceUnavailable
from google.auth.exceptions import TransportError

from operators.tpu import TpuCreateOperator, TpuDeleteOperator, TpuReserveOperator
from operators.tpu_failures import (
    JOB_KINDS,
    FailureKind,
    TpuTaskFailed,
    TpuTaskRetry,
    typed_failures,
)
from pipeline_store import uris
from pipeline_store.formats import AttemptEvent, ExitKind, FormatError
from tests.plugins.driver import Driver, connect, first_event, from_wire
from tests.plugins.test_tpu_operators import (
    ENDLESS_JOB,
    QUICK_JOB,
    create,
    delete,
    reserve,
    run_operator,
)
from tests.tpu_lifecycle.world import OTHER_ZONE, OWNER, ZONE
from tpu_emulator.testing import wait_for
from tpu_lifecycle.control import capacity
from tpu_lifecycle.records import budgets, reservation
from tpu_lifecycle.service import backend

QUOTA = "Quota limit 'TPUV5PerProjectPerZoneForTPUAPI' has been exceeded. Limit: "


def failure_of(error: Exception, **how: bool) -> TpuTaskFailed | TpuTaskRetry:
    with pytest.raises((TpuTaskFailed, TpuTaskRetry)) as caught, typed_failures(**how):
        raise error
    return caught.value


@pytest.mark.parametrize(
    ("error", "kind", "may_retry"),
    [
        (capacity.StockoutError("none left"), FailureKind.STOCKOUT, True),
        (capacity.QuotaInUseError("all used"), FailureKind.QUOTA, True),
        (capacity.QuotaExhaustedError("none allowed"), FailureKind.QUOTA, False),
        (backend.TpuQuotaTooSmallError("none allowed"), FailureKind.QUOTA, False),
        (backend.TpuPermissionError("no"), FailureKind.PERMISSION, False),
        (backend.TpuAccessError("not now"), FailureKind.PERMISSION, True),
        (backend.TpuInvalidRequestError("no"), FailureKind.INVALID_REQUEST, False),
        (backend.TpuConflictError("taken"), FailureKind.CONFLICT, False),
        (backend.TpuUnavailableError("away"), FailureKind.INFRASTRUCTURE, True),
        (budgets.PreemptionBudgetError("lost"), FailureKind.PREEMPTION, False),
        (budgets.StalledError("again"), FailureKind.BUDGET, False),
        (budgets.ChipHoursBudgetError("used up"), FailureKind.BUDGET, False),
        (budgets.BootFailureError("silent"), FailureKind.INFRASTRUCTURE, False),
        (reservation.ExpiredError("late"), FailureKind.BUDGET, False),
        (reservation.ReleasedError("given back"), FailureKind.RELEASED, False),
        (reservation.SupersededError("taken over"), FailureKind.INFRASTRUCTURE, True),
        (reservation.ReservationError("none"), FailureKind.USER_ERROR, False),
        (FileNotFoundError("/store/run.json"), FailureKind.USER_ERROR, False),
        (FormatError("damaged"), FailureKind.INFRASTRUCTURE, False),
        (OSError("the store is away"), FailureKind.INFRASTRUCTURE, True),
        (ServiceUnavailable("the bucket is away"), FailureKind.INFRASTRUCTURE, True),
        (TransportError("no credentials now"), FailureKind.INFRASTRUCTURE, True),
    ],
)
def test_every_error_has_a_kind(error: Exception, kind: FailureKind, may_retry: bool) -> None:
    failure = failure_of(error)
    assert isinstance(failure, TpuTaskRetry if may_retry else TpuTaskFailed)
    assert failure.kind is kind
    assert str(failure).startswith(f"[{kind}] {type(error).__name__}: ")
    # Giving back is always worth another try.
    assert isinstance(failure_of(error, always_retry=True), TpuTaskRetry)


def test_a_mistake_in_the_program_stays_one() -> None:
    with pytest.raises(ZeroDivisionError), typed_failures():
        raise ZeroDivisionError


def test_every_end_of_a_job_has_a_kind() -> None:
    assert set(JOB_KINDS) == set(ExitKind) - {ExitKind.OK, ExitKind.PREEMPTED}


@pytest.mark.parametrize(
    ("code", "message", "kind"),
    [
        ("PERMISSION_DENIED", "tpu.nodes.create denied", "permission"),
        ("INVALID_ARGUMENT", "unknown runtime version", "invalid-request"),
    ],
)
def test_what_the_service_refuses_is_told_apart(
    driver: Driver, code: str, message: str, kind: str
) -> None:
    reserve(driver)
    driver.world.emulator.admin.fail_next("CreateQueuedResource", code=code, message=message)
    with pytest.raises((TpuTaskFailed, TpuTaskRetry), match=re.escape(f"[{kind}]")):
        create(driver)
    delete(driver)


def test_a_quota_in_use_is_asked_again_after_a_pause(driver: Driver) -> None:
    reserve(driver)
    driver.world.emulator.admin.fail_next(
        "CreateQueuedResource", code="RESOURCE_EXHAUSTED", message=f"{QUOTA}8"
    )
    assert create(driver) == 2
    assert [event["outcome"] for event in driver.events] == ["paused", "ready"]
    delete(driver)


def test_too_small_a_quota_is_asked_in_every_zone_before_it_fails_the_task(
    driver: Driver,
) -> None:
    driver.configure({"tpu.zones": [ZONE, OTHER_ZONE]})
    reserve(driver)
    driver.world.emulator.admin.fail_next(
        "CreateQueuedResource", code="RESOURCE_EXHAUSTED", message=f"{QUOTA}0", count=2
    )
    with pytest.raises(TpuTaskFailed, match=r"\[quota\].*Ask for quota"):
        create(driver)
    assert [r.attempt.zone for r in driver.reservation.attempts()] == [ZONE, OTHER_ZONE]
    delete(driver)


def test_a_run_that_was_never_validated_is_refused(driver: Driver) -> None:
    uris.delete(driver.run.config)
    with pytest.raises(TpuTaskFailed, match=r"\[user-error\].*config\.json"):
        reserve(driver)


def test_a_store_that_is_away_may_be_back_at_the_next_try(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserve(driver)

    def away(uri: str) -> bool:
        raise OSError(f"{uri} cannot be reached")

    monkeypatch.setattr(uris, "exists", away)
    with pytest.raises(TpuTaskRetry, match=r"\[infrastructure\].*cannot be reached"):
        TpuCreateOperator(task_id="create", **driver.arguments).execute(driver.context())
    with pytest.raises(TpuTaskRetry, match=r"\[infrastructure\]"):
        TpuDeleteOperator(task_id="delete", **driver.arguments).execute(driver.context())
    monkeypatch.undo()


def test_a_trigger_that_broke_lets_the_task_go_on_with_its_tpu(driver: Driver) -> None:
    reserve(driver)
    create(driver)
    driver.start(run_operator(driver, ENDLESS_JOB))
    failure = {"error": TriggerFailureReason.TRIGGER_FAILURE}
    with pytest.raises(TpuTaskRetry, match="trigger itself failed"):
        run_operator(driver, ENDLESS_JOB).resume_execution("__fail__", failure, driver.context())
    assert len(driver.world.nodes()) == 1
    delete(driver)


def test_used_up_chip_hours_give_the_tpu_back(driver: Driver) -> None:
    driver.configure({"budget.max_chip_hours": 1e-5})
    reserve(driver)
    create(driver)
    with pytest.raises(TpuTaskFailed, match=r"\[budget\].*(.|\n)*max_chip_hours"):
        driver.finish(run_operator(driver, ENDLESS_JOB))
    name = driver.reservation.attempt(1).name
    wait_for(lambda: not driver.world.backend.describe(name).exists)
    # A retry asks for no other one.
    driver.reservation.attempt(1).mark(AttemptEvent.LOST, "the test says so")
    with pytest.raises(TpuTaskFailed, match=r"\[budget\].*max_chip_hours"):
        create(driver)
    delete(driver)


def test_a_queue_that_is_waited_in_too_long_is_left(driver: Driver) -> None:
    driver.configure({"tpu.zones": [ZONE, OTHER_ZONE]})
    reserve(driver)
    driver.world.emulator.admin.stockout(ZONE, shape="wait")
    operator = TpuCreateOperator(task_id="create", **driver.arguments)
    deferred = driver.start(operator)
    deferred.trigger.deadline = 0.0  # type: ignore[attr-defined]
    assert driver.finish(operator, deferred) == 2
    assert [event["outcome"] for event in driver.events] == ["deadline", "ready"]
    delete(driver)


def test_a_create_that_was_cleared_while_it_waited_keeps_the_new_tries_request(
    driver: Driver,
) -> None:
    reserve(driver)
    driver.world.emulator.admin.stockout(ZONE, shape="wait")
    old = driver.start(TpuCreateOperator(task_id="create", **driver.arguments), try_number=1)
    new = driver.start(TpuCreateOperator(task_id="create", **driver.arguments), try_number=2)
    asyncio.run(from_wire(old.trigger).on_kill())
    name = driver.reservation.attempt(1).name
    assert driver.world.backend.describe(name).exists
    asyncio.run(from_wire(new.trigger).on_kill())
    wait_for(lambda: not driver.world.backend.describe(name).exists)
    # The third try finds that its request was cancelled and makes another one.
    driver.world.emulator.admin.clear_faults()
    assert create(driver) == 2
    delete(driver)


def test_the_code_of_another_folder_is_shipped(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # of the driver's own way to do so
    connect(driver.world, monkeypatch)
    operator = TpuReserveOperator(
        task_id="reserve", tpu_owner=OWNER, code_root=str(driver.source), **driver.arguments
    )
    operator.execute(driver.context())
    create(driver)
    assert driver.finish(run_operator(driver, QUICK_JOB))["status"] == "succeeded"
    delete(driver)
    missing = str(Path(driver.source) / "missing")
    operator = TpuReserveOperator(task_id="reserve", code_root=missing, **driver.arguments)
    with pytest.raises(TpuTaskFailed, match="missing"):
        operator.execute(driver.context())


def test_every_call_says_which_layer_made_it(driver: Driver) -> None:
    reserve(driver)
    create(driver)
    deferred = driver.start(run_operator(driver, ENDLESS_JOB))
    known = max(call["id"] for call in driver.world.emulator.admin.calls())

    def callers(method: str) -> set[str]:
        calls = driver.world.emulator.admin.calls(method, after=known)
        return {call["caller"].rpartition("bert-repretraining/")[2].split()[0] for call in calls}

    asyncio.run(from_wire(deferred.trigger).on_kill())
    assert "on-kill" in callers("DeleteQueuedResource")
    delete(driver)
    assert "teardown" in callers("ListQueuedResources")
    assert "task" not in callers("DeleteQueuedResource")


def test_a_worker_that_never_reports_is_named(driver: Driver) -> None:
    driver.configure({"tpu.accelerator_type": "v5litepod-16", "tpu.boot_timeout_seconds": 10})
    (driver.source / "tpu_agent" / "__main__.py").write_text("import time\ntime.sleep(600)\n")
    reserve(driver)
    create(driver)
    deferred = driver.start(run_operator(driver, ENDLESS_JOB))
    # The shortest timeout that may be set, but for a moment, passed before this test began.
    record = driver.reservation.attempt(1)
    ready = record.marks[AttemptEvent.READY]
    earlier = ready.model_copy(update={"time": ready.time - timedelta(seconds=9)})
    earlier.write(record.layout.mark(AttemptEvent.READY))
    event = asyncio.run(first_event(from_wire(deferred.trigger)))
    assert (event["outcome"], event["cause"]) == ("lost", "never-reported")
    assert event["reason"].startswith("worker 0 never reported within 10 s of READY (4 of 4")
    delete(driver)
