"""What becomes of a run whose XComs somebody has changed: nothing is spent, and nothing leaks.

That no other task takes anything from an XCom is in ``tests/dags/test_parsing.py``.
"""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from operators.finetuning import PrepareTaskOperator, TpuFinetuneOperator
from operators.own_run import own_rental, own_run
from operators.plan import PlanJobsOperator
from operators.python_module import PythonModuleOperator
from operators.tpu import TpuCreateOperator, TpuDeleteOperator, TpuReserveOperator
from operators.tpu_failures import FailureKind, TpuTaskFailed
from pipeline_store import identity, uris
from pipeline_store.formats import PreparedInput
from pipeline_store.layout import RunLayout
from tests.model_registry.runs import FinishedRun
from tests.plugins.contexts import context_of, of_finished
from tests.plugins.driver import CONN_ID, Driver
from tests.plugins.lineages import hold
from tests.plugins.test_finetuning import TASK, Request, model, request_
from tpu_lifecycle.records.trainings import rental_folders

__all__ = ["model", "request_"]
TWO_TPUS = {"finetuning__random_seeds": [1, 2], "finetuning__parallel_tpus": 2}


def tpu(kind: Any, request: Request, **arguments: Any) -> Any:
    return kind(task_id="t", store_uri=request.store.root, gcp_conn_id=CONN_ID, **arguments)


def test_a_task_finds_its_own_run_and_the_tpu_of_its_number() -> None:
    key = identity.run_key("dag", "run")
    own = own_run(context_of("dag", "run"), "/store").root
    assert own == f"/store/runs/{key}"
    folders = [own_rental(context_of("dag", "run", map_index=n), "/store").root for n in (-1, 0, 1)]
    assert folders == [own, own, f"/store/runs/{identity.rental_key(key, 1)}"]


@pytest.mark.parametrize("name", ["../../etc", "another", ""])
def test_a_task_that_is_none_of_the_runs_is_not_prepared(
    request_: Request, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    request_.validate(finetuning__tasks=[TASK])
    monkeypatch.setattr(PythonModuleOperator, "execute", lambda *_: pytest.fail("it was run"))
    operator = PrepareTaskOperator(task_id="prepare", store_uri=request_.store.root, task_name=name)
    with pytest.raises(AirflowFailException, match="XCom return_value of validate"):
        operator.execute(request_.context)


def test_a_plan_takes_what_this_run_has_prepared(request_: Request) -> None:
    # As if validate had named no task, so that none was prepared.
    request_.validate(finetuning__tasks=[TASK])
    request_.plan()
    uris.delete(request_.run.prepared_task(TASK))
    uris.delete(request_.run.finetuning_plan)
    from operators.finetuning import PlanFinetuningOperator

    operator = PlanFinetuningOperator(task_id="plan", store_uri=request_.store.root)
    with pytest.raises(AirflowFailException, match="the task prepare has prepared nothing"):
        operator.execute(request_.context)


def test_a_partition_is_planned_from_the_runs_own_manifest(tmp_path: Any) -> None:
    run = FinishedRun(str(tmp_path), "1")
    uris.delete(run.run.plan)
    hold(run)
    operator = PlanJobsOperator(task_id="plan", store_uri=run.store.root)
    with pytest.raises(AirflowFailException, match="the task prepare has prepared nothing"):
        operator.execute(of_finished(run))
    PreparedInput(manifest=run.manifest_uri).write(run.run.prepared_partition)
    assert run.manifest_uri in operator.execute(of_finished(run))["train"]


def test_a_tpu_that_the_plan_did_not_want_is_not_rented(request_: Request) -> None:
    request_.validate(finetuning__tasks=[TASK], **TWO_TPUS)
    request_.plan()
    assert len(rental_folders(request_.run)) == 2
    context = request_.context_of(2)
    with pytest.raises(TpuTaskFailed, match="XCom return_value of plan") as failed:
        tpu(TpuReserveOperator, request_).execute(context)
    assert failed.value.kind is FailureKind.USER_ERROR
    folder = own_rental(context, request_.store.root)
    assert uris.list_files(folder.root) == []


def test_each_tpu_is_given_its_share_whatever_the_xcom_says(request_: Request) -> None:
    request_.validate(finetuning__tasks=[TASK], **TWO_TPUS)
    request_.plan()
    own = ["--run", request_.run.root, "--store", request_.store.root]
    for number in (0, 1):
        operator = tpu(TpuFinetuneOperator, request_, job_id="010-finetune")
        words = operator.job_arguments(request_.context_of(number))
        assert words == [*own, "--group", f"{number}/2"]


def test_each_tpu_is_given_back_without_any_xcom(request_: Request) -> None:
    request_.validate(finetuning__tasks=[TASK], **TWO_TPUS)
    request_.plan()
    folders = rental_folders(request_.run)
    for number in (0, 1):
        tpu(TpuReserveOperator, request_).execute(request_.context_of(number))
    # The records of the plan, and what validate said, are not needed for it.
    uris.delete(request_.run.finetuning_plan)
    for number, folder in enumerate(folders):
        tpu(TpuDeleteOperator, request_).execute(request_.context_of(number))
        assert uris.exists(folder.reservation(1).released)
        assert not uris.exists(RunLayout(folder.root).reservation(2).record)


def test_a_rented_tpu_is_given_back_by_its_runs_name_alone(driver: Driver) -> None:
    reserve = TpuReserveOperator(
        task_id="reserve", code_root=str(driver.source), **driver.arguments
    )
    reserve.execute(driver.context())
    driver.finish(TpuCreateOperator(task_id="create", **driver.arguments))
    assert len(driver.world.nodes()) == 1
    report = TpuDeleteOperator(task_id="delete", **driver.arguments).execute(driver.context())
    assert len(report["deleted"]) == 1
    driver.world.assert_nothing_left()
