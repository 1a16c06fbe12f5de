"""A run as a trace: what tasks send of it, to a receiver that speaks OTLP by HTTP."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from airflow.models import import_all_models
from airflow.models.taskinstance import TaskInstance
from airflow.models.taskinstancehistory import TaskInstanceHistory
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, use_span
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

import run_traces
from operators import traces
from operators.python_module import ModuleRun
from operators.tpu import TpuCreateOperator, TpuDeleteOperator, TpuReserveOperator, TpuRunOperator
from operators.traces import Task
from pipeline_store.formats import Ledger
from tests.otlp import Receiver, receiver
from tests.plugins.driver import Driver
from tests.tpu_lifecycle.world import OWNER
from tpu_emulator.testing import wait_for

REPOSITORY = Path(__file__).parents[2]
NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    """A receiver, and an environment that says where it is."""
    with receiver() as found:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", found.endpoint)
        monkeypatch.setattr(run_traces, "DAG_IDS", ("Test.DAG", "bert_repretraining"))
        yield found


def instance(driver: Driver, task: Any, **more: Any) -> Any:
    about = {"task_id": task.task_id, "map_index": -1, "try_number": 1, "task": task}
    return SimpleNamespace(dag_id=driver.record.dag_id, run_id=driver.record.run_id, **about | more)


def with_a_tpu(driver: Driver) -> TpuDeleteOperator:
    """Let a run rent a TPU, run a job and give it back; return the task that did."""
    common = driver.arguments
    TpuReserveOperator(task_id="reserve", tpu_owner=OWNER, **common).execute(driver.context())
    soon = timedelta(seconds=0.1)
    driver.finish(TpuCreateOperator(task_id="create", retry_delay=soon, **common))
    job = {"job_id": "010-train", "entry_point": "training.quick"}
    driver.finish(TpuRunOperator(task_id="train", **job, **common))
    delete = TpuDeleteOperator(task_id="tpu.delete", **common)
    delete.execute(driver.context())
    return delete


def test_the_spans_of_a_tpu_sum_up_to_its_ledger(driver: Driver, told: Receiver) -> None:
    delete = with_a_tpu(driver)
    run_traces.on_task_instance_success(None, instance(driver, delete))
    ledger = Ledger.load(driver.run.reservation(1).ledger)
    [entry] = ledger.entries
    parts = [span for span in told.spans.values() if "repretraining.seconds" in span.attributes]
    billed = [span for span in parts if span.attributes["repretraining.is_billed"]]
    sums: dict[str, float] = {}
    for span in billed:
        name = span.attributes["repretraining.spent_on"]
        sums[name] = sums.get(name, 0.0) + span.seconds
    expected = {str(name): value for name, value in entry.seconds.items()}
    # Times of spans are rounded to microseconds.
    assert sums == pytest.approx(expected, abs=1e-4)
    chips = sum(span.attributes["repretraining.chip_seconds"] for span in billed)
    assert chips == pytest.approx(entry.chip_seconds)
    # All hang together, below the run's own span, which is another's to send.
    names = {span.span_id: span.name for span in told.spans.values()}
    [tpu] = [span for span in told.spans.values() if span.parent_id not in names]
    assert tpu.name.startswith("TPU ")
    assert tpu.attributes["repretraining.tpu.cost"] == pytest.approx(entry.cost)
    assert "job 010-train" in names.values()
    assert {span.service for span in told.spans.values()} == {"bert-repretraining"}


def test_all_who_send_a_part_agree_and_may_send_it_again(driver: Driver, told: Receiver) -> None:
    delete = with_a_tpu(driver)
    dag_id, run_id, key = driver.record.dag_id, driver.record.run_id, driver.record.run_key
    task = Task("data.prepare", -1, 2, "failed", NOW, NOW + timedelta(minutes=2))
    whole = traces.run_part(dag_id, run_id, "failed", NOW, NOW + timedelta(hours=1))
    assert traces.send(key, [whole, traces.task_part(task)])
    for _ in range(2):
        run_traces.on_task_instance_success(None, instance(driver, delete))
    prepare = SimpleNamespace(
        task_id="data.prepare", ran=[ModuleRun("beam_jobs.prepare_corpus", NOW, NOW)]
    )
    failed = instance(driver, prepare, try_number=2)
    run_traces.on_task_instance_failed(None, failed, "killed")
    assert len({span.trace_id for span in told.spans.values()}) == 1
    assert [len(spans) for spans in told.requests[1:3]] == [len(told.requests[1])] * 2
    assert len(told.spans) == len(told.requests[1]) + 3
    by_name = {span.name: span for span in told.spans.values()}
    root, tried = (
        by_name[dag_id],
        by_name[task.task_id],
    )
    assert (root.parent_id, tried.parent_id) == ("", root.span_id)
    assert root.is_error
    assert by_name["python -m beam_jobs.prepare_corpus"].parent_id == tried.span_id
    [tpu] = [span for name, span in by_name.items() if name.startswith("TPU ")]
    assert tpu.parent_id == root.span_id


def test_the_unsampled_span_in_which_airflow_runs_a_task_keeps_nothing_back(
    driver: Driver, told: Receiver
) -> None:
    around = SpanContext(1, 2, is_remote=True, trace_flags=TraceFlags(TraceFlags.DEFAULT))
    dag_id, run_id = driver.record.dag_id, driver.record.run_id
    part = traces.run_part(dag_id, run_id, "success", NOW, NOW + timedelta(hours=1))
    with use_span(NonRecordingSpan(around)):
        assert traces.send(driver.record.run_key, [part])
    [span] = told.spans.values()
    assert int(span.trace_id, 16) != around.trace_id


def test_they_join_airflows_own_trace(
    driver: Driver, told: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__TRACES__OTEL_ON", "True")
    prepare = SimpleNamespace(task_id="data.prepare", ran=[ModuleRun("beam_jobs.a", NOW, NOW)])
    trace_id, span_id = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    for flags in ("01", "00"):
        carrier = {"traceparent": f"00-{trace_id}-{span_id}-{flags}"}
        run_traces.on_task_instance_success(
            None, instance(driver, prepare, context_carrier=carrier)
        )
    # That of a run that Airflow does not sample is not sent.
    [[span]] = told.requests
    assert (span.trace_id, span.parent_id) == (trace_id, span_id)


def test_a_receiver_that_is_away_or_refuses_fails_nothing(
    driver: Driver, told: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare = SimpleNamespace(task_id="data.prepare", ran=[ModuleRun("beam_jobs.a", NOW, NOW)])
    told.status = 400
    run_traces.on_task_instance_success(None, instance(driver, prepare))
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    run_traces.on_task_instance_success(None, instance(driver, prepare))
    assert told.requests == []


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"OTEL_SDK_DISABLED": "true"},
        {"OTEL_TRACES_EXPORTER": "none"},
        {"OTEL_TRACES_SAMPLER": "always_off"},
    ],
)
def test_nothing_is_sent_unasked(
    environment: dict[str, str],
    driver: Driver,
    told: Receiver,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    if not environment:
        monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT")
    prepare = SimpleNamespace(task_id="data.prepare", ran=[ModuleRun("beam_jobs.a", NOW, NOW)])
    run_traces.on_task_instance_success(None, instance(driver, prepare))
    assert told.requests == []


def test_when_off_nothing_is_imported_for_it() -> None:
    code = (
        "import sys; import run_traces; from types import SimpleNamespace as N; "
        "ended = N(dag_id='bert_repretraining', task=N()); "
        "run_traces.on_task_instance_success(None, ended); "
        "run_traces.on_dag_run_success(ended, ''); print('operators' in sys.modules)"
    )
    found = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'plugins'}"},
    )
    assert found.stdout.split()[-1] == "False"


def test_all_tries_of_a_runs_tasks_are_sent_from_airflows_records(
    told: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    import_all_models()
    engine = create_engine("sqlite://")
    later = {"try_number": 2, "state": "success", "end_date": NOW + timedelta(minutes=9)}
    rows: list[tuple[Any, dict[str, Any]]] = [
        (TaskInstanceHistory, {"task_instance_id": uuid4()}),
        (TaskInstance, {"id": uuid4()}),
        (TaskInstance, {"id": uuid4(), "start_date": None, "task_id": "never.began"}),
    ]
    with Session(engine) as session:
        for number, (model, own) in enumerate(rows):
            model.__table__.create(engine, checkfirst=True)
            values = {
                "dag_id": "bert_repretraining",
                "run_id": "r1",
                "task_id": "data.prepare",
                "map_index": -1,
                "try_number": 1,
                "state": "failed",
                "start_date": NOW,
                "end_date": NOW + timedelta(minutes=1),
                "pool": "default_pool",
                "pool_slots": 1,
                "executor_config": {},
            }
            added = model.__table__.insert().values(**values | (later if number else {}) | own)
            session.connection().execute(added)
        monkeypatch.setattr("sqlalchemy.orm.object_session", lambda run: session)
        ended = SimpleNamespace(
            dag_id="bert_repretraining",
            run_id="r1",
            start_date=NOW,
            end_date=NOW + timedelta(hours=1),
        )
        run_traces.on_dag_run_success(ended, "success")
        # By a thread: the scheduler goes on.
        wait_for(lambda: told.requests)
        # One that a person ends has no end yet, nor has one of another DAG anything to do with us.
        for change in ({"end_date": None}, {"dag_id": "theirs"}):
            run_traces.on_dag_run_failed(SimpleNamespace(**vars(ended) | change), "manually set")
    [spans] = told.requests
    [root] = [span for span in spans if not span.parent_id]
    assert (root.name, root.seconds, root.is_error) == ("bert_repretraining", 3600, False)
    tried = [span for span in spans if span.parent_id == root.span_id]
    assert [(span.name, span.is_error, span.seconds) for span in tried] == [
        ("data.prepare", True, 60),
        ("data.prepare", False, 540),
    ]
