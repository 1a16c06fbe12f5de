"""What the alert about a TPU task advises, done as it says: it helps."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from operators.tpu_failures import TpuTaskFailed, TpuTaskRetry
from pipeline_alerts.causes import Remedy
from tests.plugins.driver import Driver
from tests.plugins.test_tpu_failures import QUOTA
from tests.plugins.test_tpu_operators import (
    ENDLESS_JOB,
    QUICK_JOB,
    create,
    delete,
    reserve,
    run_operator,
)


def remedy_of(act: Callable[[], object]) -> Remedy:
    """Return what is advised when a task fails."""
    with pytest.raises((TpuTaskFailed, TpuTaskRetry)) as failed:
        act()
    return failed.value.remedy


def clear(driver: Driver) -> None:
    """Begin again as Airflow does with a task that a person clears: its setups come first."""
    reserve(driver)
    create(driver)


def finish_quick_job(driver: Driver, entry_point: str = "training.quick") -> None:
    driver.finish(run_operator(driver, QUICK_JOB | {"entry_point": entry_point}))
    delete(driver)


@pytest.mark.parametrize(
    ("code", "message", "remedy"),
    [
        ("RESOURCE_EXHAUSTED", f"{QUOTA}0", Remedy.ASK_FOR_QUOTA),
        ("PERMISSION_DENIED", "tpu.nodes.create is missing", Remedy.MEND_AND_CLEAR),
    ],
)
def test_what_a_person_has_to_be_given_is_given_and_the_task_cleared(
    driver: Driver, code: str, message: str, remedy: Remedy
) -> None:
    reserve(driver)
    driver.world.emulator.admin.fail_next("CreateQueuedResource", code=code, message=message)
    assert remedy_of(lambda: create(driver)) is remedy
    # Whatever failed, the teardown has run before a person looks.
    delete(driver)
    clear(driver)
    finish_quick_job(driver)


def test_after_a_budget_that_was_used_up_reserve_is_cleared(driver: Driver) -> None:
    driver.configure({"budget.max_preemptions": 0})
    reserve(driver)
    create(driver)
    operator = run_operator(driver, ENDLESS_JOB)
    deferred = driver.start(operator)
    driver.world.emulator.admin.preempt(driver.reservation.attempt(1).attempt.node_id)
    assert remedy_of(lambda: driver.finish(operator, deferred)) is Remedy.RESERVE_AGAIN
    # Without a new reservation the budget stays used up.
    assert remedy_of(lambda: create(driver)) is Remedy.RESERVE_AGAIN
    delete(driver)
    assert remedy_of(lambda: create(driver)) is Remedy.RESERVE_AGAIN
    clear(driver)
    finish_quick_job(driver)


def test_what_broke_a_job_is_mended_and_the_task_cleared(driver: Driver) -> None:
    reserve(driver)
    create(driver)
    broken = QUICK_JOB | {"entry_point": "training.broken"}
    failed = remedy_of(lambda: driver.finish(run_operator(driver, broken)))
    assert failed is Remedy.LOOK_AT_JOB
    delete(driver)
    (driver.source / "training" / "broken.py").write_text("print('mended')\n")
    clear(driver)
    finish_quick_job(driver, "training.broken")
