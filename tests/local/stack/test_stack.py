"""The real stack, once: health, login, loopback only, restarts, logs, a clean end."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from local.stack import parts, ports, processes
from local.stack.__main__ import main
from local.stack.airflow_api import AirflowApi, BackfillRequest, TaskInstance
from local.stack.airflow_session import AirflowApiError
from local.stack.paths import StackError
from local.stack.stack import Stack
from pipeline_store.formats import RunRecord
from pipeline_store.layout import RunLayout
from tests.local.stack.crashing import crash

pytestmark = [pytest.mark.stack, pytest.mark.thorough, pytest.mark.timeout(900)]
DAGS = Path(__file__).parent / "dags"
PATIENCE = 300.0
SETTINGS = {"AIRFLOW__CORE__DAGS_FOLDER": str(DAGS)}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    # A path that is much too long for a Unix socket.
    state = tmp_path_factory.mktemp("stack").joinpath(*["a-rather-long-folder-name"] * 5)
    stack = Stack(state, extra_environment=SETTINGS)
    stack.up()
    yield stack
    stack.down()
    _assert_nothing_left(stack)


@pytest.fixture(scope="module")
def api(stack: Stack) -> Iterator[AirflowApi]:
    with stack.api() as api:
        yield api


def _assert_nothing_left(stack: Stack) -> None:
    assert processes.find(stack.paths) == []
    used = json.loads(stack.paths.record.read_text())
    assert all(ports.is_free(port) for port in used["ports"].values())
    assert not Path(used["runtime_dir"]).exists()


def _wait_for_tasks(api: AirflowApi, run_id: str, states: dict[str, str]) -> list[TaskInstance]:
    deadline = time.monotonic() + PATIENCE
    while True:
        tasks = api.task_instances("probe_waiting", run_id)
        found = {task.task_id: task.state for task in tasks}
        if found == states:
            return tasks
        assert time.monotonic() < deadline, found
        time.sleep(0.5)


def test_all_parts_are_healthy(stack: Stack) -> None:
    status = stack.status()
    assert status.healthy
    assert {part.name for part in status.parts} == {part.name for part in stack.parts()}


def test_status_command_prints_json(stack: Stack, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--json", "--state-dir", str(stack.paths.root)]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["healthy"] is True
    assert printed["url"] == stack.status().url


def test_requests_without_login_are_refused(stack: Stack) -> None:
    url = stack.status().url
    for path in ("/api/v2/dags", "/api/v2/connections", "/api/v2/importErrors"):
        assert httpx.get(url + path, trust_env=False).status_code == httpx.codes.UNAUTHORIZED


def test_a_wrong_password_is_refused(stack: Stack) -> None:
    with pytest.raises(AirflowApiError) as refusal:
        AirflowApi(stack.status().url, "admin", "wrong").import_errors()
    assert refusal.value.status == httpx.codes.UNAUTHORIZED


def test_task_logs_are_not_served_without_a_token(stack: Stack) -> None:
    port = next(part.port for part in stack.status().parts if part.name == "task-logs")
    answer = httpx.get(f"http://127.0.0.1:{port}/log/any", trust_env=False)
    assert answer.status_code == httpx.codes.FORBIDDEN


def test_everything_listens_on_loopback_only(stack: Stack) -> None:
    listeners = processes.listeners(processes.find(stack.paths))
    assert {listener.address for listener in listeners} == {"127.0.0.1"}
    status = stack.status()
    expected = {part.port for part in status.parts if part.port is not None}
    assert expected <= {listener.port for listener in listeners}


def test_starting_again_changes_nothing(stack: Stack) -> None:
    before = {part.name: part.pid for part in stack.status().parts}
    assert {part.name: part.pid for part in stack.up().parts} == before


def test_starting_again_with_other_settings_is_refused(stack: Stack) -> None:
    with pytest.raises(StackError, match="Stop it first"):
        Stack(stack.paths.root, extra_environment={"REPRETRAIN_PRESET": "other"}).up()


def test_a_run_shows_its_log(api: AirflowApi) -> None:
    api.wait_for_dag("probe")
    api.unpause("probe")
    run_id = api.trigger("probe", {"greeting": "good day"})
    assert api.wait_for_run("probe", run_id, seconds=PATIENCE).state == "success"
    (task,) = api.task_instances("probe", run_id)
    assert task.state == "success"
    assert "greeting: good day" in api.task_log("probe", run_id, task.task_id)
    # An entry for the start, and one for each change of state.
    assert api.logged_events("probe", run_id, "success")
    assert api.logged_events("probe", run_id, "state mismatch") == []


def test_a_cleared_task_runs_again(api: AirflowApi) -> None:
    api.wait_for_dag("probe")
    api.unpause("probe")
    run_id = api.trigger("probe")
    api.wait_for_run("probe", run_id, seconds=PATIENCE)
    api.clear_tasks("probe", run_id, ["greet"])
    assert api.wait_for_run("probe", run_id, seconds=PATIENCE).state == "success"
    (task,) = api.task_instances("probe", run_id)
    assert task.try_number == 2
    assert "greeting: hello" in api.task_log("probe", run_id, "greet", try_number=2)


def test_a_task_marked_as_failed_is_stopped(api: AirflowApi) -> None:
    api.wait_for_dag("probe_waiting")
    api.unpause("probe_waiting")
    run_id = api.trigger("probe_waiting")
    _wait_for_tasks(api, run_id, {"hold": "running", "deferred": "deferred"})
    api.mark_task("probe_waiting", run_id, "hold", "failed")
    api.mark_task("probe_waiting", run_id, "deferred", "failed")
    assert api.wait_for_run("probe_waiting", run_id, seconds=PATIENCE).state == "failed"


def test_a_run_that_does_not_end_in_time_is_an_error_that_names_its_tasks(api: AirflowApi) -> None:
    api.wait_for_dag("probe_waiting")
    api.unpause("probe_waiting")
    run_id = api.trigger("probe_waiting")
    with pytest.raises(AirflowApiError, match="hold"):
        api.wait_for_run("probe_waiting", run_id, seconds=0)
    # While the scheduler starts a run it may overwrite a state that is set at that moment.
    _wait_for_tasks(api, run_id, {"hold": "running", "deferred": "deferred"})
    api.mark_run("probe_waiting", run_id, "failed")
    assert api.run("probe_waiting", run_id).finished


def test_a_missing_dag_is_an_error_that_shows_import_errors(api: AirflowApi) -> None:
    with pytest.raises(AirflowApiError, match="did not appear"):
        api.wait_for_dag("no_such_dag", seconds=0)


def test_backfill_runs_every_date_once(api: AirflowApi) -> None:
    api.wait_for_dag("probe")
    api.unpause("probe")
    first = datetime(2026, 2, 1, tzinfo=UTC)
    request = BackfillRequest(dag_id="probe", first=first, last=first + timedelta(days=1))
    backfill = api.create_backfill(request)
    with pytest.raises(AirflowApiError) as refusal:
        api.create_backfill(request)
    assert refusal.value.status == httpx.codes.CONFLICT
    deadline = time.monotonic() + PATIENCE
    while not api.backfill(backfill.backfill_id).completed:
        assert time.monotonic() < deadline
        time.sleep(0.5)
    dates = [run.logical_date for run in api.runs("probe") if run.run_type == "backfill"]
    assert len(dates) == 2
    assert set(dates) == {request.first, request.last}


def test_tensorboard_shows_what_a_run_wrote(stack: Stack) -> None:
    # In a process of its own: writing through TensorFlow loads it.
    write = (
        "import sys, tensorflow as tf\n"
        "with tf.summary.create_file_writer(sys.argv[1]).as_default():\n"
        "    tf.summary.scalar('loss', 2.5, step=1)"
    )
    run = RunLayout(str(stack.paths.runs / "0a1b2c3d4e5f"))
    RunRecord(
        run_key="0a1b2c3d4e5f",
        dag_id="dag",
        run_id="1",
        partition="2026-01-31",
        lineage_id="laws",
        config_sha256="c",
        created=datetime(2026, 2, 1, tzinfo=UTC),
    ).write(run.record)
    folder = run.training.events
    subprocess.run([sys.executable, "-c", write, folder], check=True, capture_output=True)
    page = f"{stack.status().tensorboard_url}/data/plugin/timeseries/tags"
    deadline = time.monotonic() + PATIENCE
    while True:
        found = httpx.get(page, trust_env=False).json()
        runs = set(found["scalars"]["runTagInfo"])
        if runs == {"laws/2026-01-31/2026-02-01_0a1b2c3d4e5f"}:
            break
        assert time.monotonic() < deadline, found
        time.sleep(0.5)


def test_backfill_dry_run_lists_the_dates(api: AirflowApi) -> None:
    api.wait_for_dag("probe")
    first = datetime(2026, 3, 1, tzinfo=UTC)
    request = BackfillRequest(dag_id="probe", first=first, last=first + timedelta(days=1))
    dates = [datetime.fromisoformat(date) for date in api.backfill_dry_run(request)]
    assert dates == [first, first + timedelta(days=1)]


def test_airflow_commands_work_in_the_printed_environment(
    stack: Stack, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["env", "--state-dir", str(stack.paths.root)]) == 0
    exports = capsys.readouterr().out
    assert stack.password() not in exports
    command = f'{exports}exec "{sys.executable}" -P -m airflow connections get google_cloud_default'
    shell = subprocess.run(
        ["/bin/sh", "-c", command], env={}, check=True, capture_output=True, text=True
    )
    assert "tpu_api_endpoint" in shell.stdout


@pytest.mark.parametrize(
    "name",
    [
        parts.SCHEDULER,
        parts.POSTGRES,
        parts.TPU_EMULATOR,
    ],
)
def test_a_killed_part_is_started_again(stack: Stack, name: str) -> None:
    before = next(part for part in stack.status().parts if part.name == name)
    assert before.pid is not None
    os.kill(before.pid, signal.SIGKILL)
    deadline = time.monotonic() + PATIENCE
    while True:
        status = stack.status()
        after = next(part for part in status.parts if part.name == name)
        if status.healthy and after.pid != before.pid:
            break
        assert time.monotonic() < deadline, status.table()
        time.sleep(0.5)
    assert after.restarts == before.restarts + 1


def test_a_crashed_supervisor_and_running_tasks_leave_nothing(
    stack: Stack, api: AirflowApi
) -> None:
    api.wait_for_dag("probe_waiting")
    api.unpause("probe_waiting")
    run_id = api.trigger("probe_waiting")
    _wait_for_tasks(api, run_id, {"hold": "running", "deferred": "deferred"})
    while "holding" not in api.task_log("probe_waiting", run_id, "hold"):
        time.sleep(0.2)
    before = stack.status()
    crash(json.loads(stack.paths.record.read_text())["supervisor"]["pid"])
    assert not stack.status().running

    assert stack.down()

    _assert_nothing_left(stack)
    after = stack.up()
    assert after.healthy
    assert dataclasses.replace(after, parts=()) == dataclasses.replace(before, parts=())
    api.mark_run("probe_waiting", run_id, "failed")
