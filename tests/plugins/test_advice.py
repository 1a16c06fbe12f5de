"""What the alert about a task advises, done as it says: it helps.

Of what is waited for, of requests and of the registry see also `test_lineage` and
`test_repretraining`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from operators import python_module
from operators.failures import PipelineFailure
from operators.python_module import PythonModuleOperator
from operators.tpu import TpuCreateOperator
from operators.tpu_failures import TpuTaskFailed, TpuTaskRetry
from pipeline_alerts.causes import Remedy
from pipeline_store import uris
from tests.plugins.contexts import context_of
from tests.plugins.driver import Driver
from tests.plugins.test_tpu_failures import QUOTA, ZONE
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


def test_what_the_service_never_grants_is_changed_in_a_new_run(driver: Driver) -> None:
    driver.configure({"tpu.runtime_version": "v9-nobody-has-it"})
    reserve(driver)
    assert remedy_of(lambda: create(driver)) is Remedy.CHANGE_REQUEST
    delete(driver)
    # As it says, clearing cannot help.
    assert remedy_of(lambda: clear(driver)) is Remedy.CHANGE_REQUEST
    delete(driver)
    driver.configure({})
    clear(driver)
    finish_quick_job(driver)


def test_when_no_tpu_was_free_the_task_is_cleared_once_some_are(driver: Driver) -> None:
    driver.configure({"budget.max_hours": 0.08})
    reserve(driver)
    driver.world.emulator.admin.stockout(ZONE, count=20)
    # Between its rounds through the zones it pauses for longer than the reservation lasts.
    patient = TpuCreateOperator(
        task_id="create", retry_delay=timedelta(hours=1), **driver.arguments
    )
    assert remedy_of(lambda: driver.finish(patient)) is Remedy.WAIT_FOR_TPUS
    delete(driver)
    driver.world.emulator.admin.clear_faults()
    clear(driver)
    finish_quick_job(driver)


def test_once_the_store_answers_again_the_task_is_cleared(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserve(driver)

    def away(uri: str) -> bool:
        raise OSError(f"{uri} cannot be reached")

    with monkeypatch.context() as patch:
        patch.setattr(uris, "exists", away)
        assert remedy_of(lambda: create(driver)) is Remedy.LOOK_AT_SERVICES
    create(driver)
    finish_quick_job(driver)


def test_a_file_that_the_reason_names_is_mended_and_the_task_cleared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(python_module, "REPOSITORY", str(tmp_path))
    (tmp_path / "some_job.py").write_text(
        "import json, pathlib, sys\n"
        "if pathlib.Path('corpus.txt').read_text() != 'mended':\n"
        "    print('some_job: bad_data: corpus.txt is damaged', file=sys.stderr)\n"
        "    sys.exit(41)\n"
        "print(json.dumps({'read': 1}))\n"
    )
    (tmp_path / "corpus.txt").write_text("damaged")

    def run() -> Any:
        operator = PythonModuleOperator(task_id="job", module="some_job", store_uri=str(tmp_path))
        return operator.execute(context_of("dag", "run"))

    with pytest.raises(PipelineFailure, match=r"corpus\.txt is damaged") as failed:
        run()
    assert failed.value.remedy is Remedy.MEND_INPUT
    (tmp_path / "corpus.txt").write_text("mended")
    assert run() == {"read": 1}
