"""The data job as a task: what it logs, returns and links to, and that nothing outlives it."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from airflow.sdk.exceptions import AirflowException

from alerting.callbacks import describe
from hooks.notes import NOTE
from operators import python_module
from operators.failures import PipelineFailure
from operators.prepare_corpus import PrepareCorpusOperator
from operators.python_module import PythonModuleOperator, summary_lines
from pipeline_config import load_preset, with_overrides
from pipeline_config.settings import load_settings
from pipeline_store import identity, request_paths, uris
from pipeline_store.formats import PreparedInput, RunRecord
from pipeline_store.layout import StoreLayout
from preflight.request import request_roots
from tests.plugins.contexts import context_of
from tpu_emulator.testing import wait_for

REPOSITORY = Path(__file__).parents[2]
DATAFLOW_URL = "https://console.cloud.google.com/dataflow/jobs/us-central1/2026-01_x?project=p"

# A job with a child and a grandchild; the grandchild does not care for being told to stop.
TREE = """
import os, signal, subprocess, sys, time
folder, role = sys.argv[1:3]
if role == "grandchild":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
else:
    following = {"job": "child", "child": "grandchild"}[role]
    child = subprocess.Popen([sys.executable, __file__, folder, following])
if role == "job":
    def cancel(number, frame):
        time.sleep(0.2)
        print("cancelled in the cloud", file=sys.stderr, flush=True)
        open(f"{folder}/cancelled", "w").close()
        sys.exit(44)
    signal.signal(signal.SIGTERM, cancel)
open(f"{folder}/{role}.pid", "w").write(str(os.getpid()))
while True:
    time.sleep(60)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., PythonModuleOperator]:
    """Makes an operator that runs the given code as a module."""
    monkeypatch.setattr(python_module, "REPOSITORY", str(tmp_path))

    def make(code: str, *arguments: str) -> PythonModuleOperator:
        (tmp_path / "some_job.py").write_text(code)
        return PythonModuleOperator(
            task_id="job", module="some_job", store_uri=str(tmp_path), arguments=arguments
        )

    return make


def context() -> Any:
    return context_of("My.DAG", "r:1")


def is_running(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def pids(folder: Path) -> list[int]:
    """Return the processes of the tree, once all of them are there."""
    files = [folder / f"{role}.pid" for role in ("job", "child", "grandchild")]
    wait_for(lambda: all(path.exists() and path.read_text() for path in files))
    found = [int(path.read_text()) for path in files]
    assert all(map(is_running, found))
    return found


# What is logged and returned


def test_summary_is_returned_and_the_rest_logged(
    module: Any, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = {"documents": 12345, "row_fill": 0.97, "dropped": {"duplicate": 3}, "report": "/r"}
    code = "import sys, json\nprint('10% done', file=sys.stderr)\nprint('a word')\n"
    with caplog.at_level(logging.INFO):
        result = module(code + f"print({json.dumps(json.dumps(summary))})").execute(context())
    assert result == summary
    logged = caplog.text + "".join(capsys.readouterr())
    for expected in ("10% done", "a word", "documents          12,345", "dropped duplicate  3"):
        assert expected in logged


def test_summary_as_a_table() -> None:
    summary = {
        "partition": "2026-01-31",
        "records": {"train": 1234567, "validation": 2},
        "dropped": {},
        "row_fill": 0.9712,
        "files": ["a", "b"],
        "reused": True,
        "link": None,
    }
    assert summary_lines(summary) == [
        "partition           2026-01-31",
        "records train       1,234,567",
        "records validation  2",
        "dropped             none",
        "row_fill            0.9712",
        "files               a, b",
        "reused              True",
        "link                None",
    ]


def test_a_module_gets_its_arguments_and_no_secrets(
    module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__FERNET_KEY", "secret")
    for name in ("SMTP_PASSWORD", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/login.json")
    monkeypatch.setenv("HARMLESS", "kept")
    code = (
        "import os, sys, json\nprint(json.dumps({'env': dict(os.environ), 'argv': sys.argv[1:]}))"
    )
    result = module(code, "--a", "b c; exit").execute(context())
    assert result["argv"] == ["--a", "b c; exit"]
    assert result["env"]["HARMLESS"] == "kept"
    assert result["env"]["GOOGLE_APPLICATION_CREDENTIALS"] == "/login.json"
    assert not any(name.startswith("AIRFLOW") for name in result["env"])
    assert "secret" not in result["env"].values()


def test_a_module_is_held_to_what_requests_may_read(
    module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPRETRAIN_INPUT_ROOTS", "corpus,/somewhere")
    code = "import os, json\nprint(json.dumps(dict(os.environ)))"
    given = module(code).execute(context())
    roots = request_roots(load_settings(), StoreLayout(str(tmp_path)))
    assert "/somewhere" in roots.roots
    [(name, value)] = request_paths.variables(roots).items()
    assert given[name] == value


@pytest.mark.parametrize(
    ("code", "error", "message"),
    [
        ("sys.exit(40)", PipelineFailure, "some_job: user_error: the last words"),
        ("sys.exit(41)", PipelineFailure, "some_job: bad_data: the last words"),
        ("sys.exit(1)", AirflowException, "exit code 1 (failed): the last words"),
        ("os.kill(os.getpid(), 9)", AirflowException, "exit code -9 (killed): the last words"),
        ("os.kill(os.getpid(), 15)", AirflowException, "exit code -15 (killed): the last words"),
        ("print('no json')", AirflowException, "its last line is not its summary: 'no json'"),
        ("print('[1]')", AirflowException, "its last line is not its summary: '[1]'"),
        ("pass", AirflowException, "its last line is not its summary: ''"),
    ],
)
def test_failures(module: Any, code: str, error: type[Exception], message: str) -> None:
    words = "import os, sys\nprint('the last words', file=sys.stderr, flush=True)\n"
    with pytest.raises(AirflowException) as raised:
        module(words + code).execute(context())
    assert type(raised.value) is error
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ("some_job: a quoted line", 1, False),
        ("some_job: bad_data: 3 of 4 documents", 41, True),
        ("2026-11-27 01:02:03,456 ERROR user_error: no such thing", 40, True),
        ("some_job: failed: No space left on device at /x.", 45, True),
        ("ValueError: invalid literal: a quoted line", 1, False),
        ("KeyError: failed: a quoted line", 45, False),
    ],
)
def test_an_alert_quotes_what_a_module_words_itself_and_nothing_else(
    module: Any, words: str, code: int, told: bool
) -> None:
    program = f"import sys\nprint({words!r}, file=sys.stderr, flush=True)\nsys.exit({code})"
    with pytest.raises(AirflowException) as raised:
        module(program).execute(context())
    shown = describe(raised.value, with_text=False)
    assert (words.rpartition(": ")[2] in shown) is told
    assert hasattr(raised.value, "remedy") is told


# Nothing outlives the task


def test_cancelling_ends_the_whole_tree_and_waits_for_the_job_to_cancel(
    module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(python_module, "GRACE_SECONDS", 2.0)
    operator = module(TREE, str(tmp_path), "job")
    failures: list[Exception] = []

    def execute() -> None:
        try:
            operator.execute(context())
        except AirflowException as error:
            failures.append(error)

    thread = threading.Thread(target=execute, daemon=True)
    thread.start()
    tree = pids(tmp_path)
    operator.on_kill()
    thread.join(60)
    assert not any(map(is_running, tree))
    assert (tmp_path / "cancelled").exists()
    [failure] = failures
    assert "killed" in str(failure)
    assert "cancelled in the cloud" in str(failure)


def test_a_task_that_is_killed_at_once_leaves_nothing(tmp_path: Path) -> None:
    # Airflow kills a task's process five seconds after asking it to stop.
    (tmp_path / "some_job.py").write_text(TREE)
    code = f"""
import sys
sys.path[:0] = [{str(REPOSITORY)!r}, {str(REPOSITORY / "plugins")!r}]
from operators import python_module
python_module.REPOSITORY = {str(tmp_path)!r}
python_module.GRACE_SECONDS = 2.0
arguments = [{str(tmp_path)!r}, "job"]
operator = python_module.PythonModuleOperator(
    task_id="job", module="some_job", store_uri="/data/store", arguments=arguments
)
operator.execute({{}})
"""
    task = subprocess.Popen(
        [sys.executable, "-c", code], env=os.environ | {"AIRFLOW_HOME": str(tmp_path)}
    )
    try:
        tree = pids(tmp_path)
    finally:
        task.send_signal(signal.SIGKILL)
        task.wait()
    wait_for(lambda: not any(map(is_running, tree)))
    # The job was told, not shot, and its last words did not break it, though nobody read them.
    assert (tmp_path / "cancelled").exists()


def test_children_do_not_outlive_a_job_that_ends_by_itself(module: Any, tmp_path: Path) -> None:
    code = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print('{"pid": %d}' % child.pid)
"""
    pid = module(code).execute(context())["pid"]
    assert not is_running(pid)


def test_a_run_that_a_data_job_ends_has_the_reason_as_its_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Before the run has its lineage no later task says how it ended.
    monkeypatch.setattr(python_module, "REPOSITORY", str(tmp_path))
    (tmp_path / "beam_jobs").mkdir()
    code = "import sys\nprint('prepare_corpus: bad_data: 3 of 4', file=sys.stderr)\nsys.exit(41)"
    (tmp_path / "beam_jobs" / "prepare_corpus.py").write_text(code)
    seen = context()
    with pytest.raises(PipelineFailure):
        prepare(tmp_path).execute(seen)
    about = "Partition day-1, lineage default"
    said = f"Failed: beam_jobs.prepare_corpus: bad_data: 3 of 4 {about}"
    assert seen["pushed"] == {NOTE: said}


# What a task page links to


def prepare(tmp_path: Path, **settings: Any) -> PrepareCorpusOperator:
    config = with_overrides(
        load_preset("smoke"), {name.replace("__", "."): value for name, value in settings.items()}
    )
    key = identity.run_key("My.DAG", "r:1")
    run = StoreLayout(str(tmp_path)).run(key)
    uris.write(run.config, config.to_bytes())
    RunRecord(
        run_key=key,
        dag_id="My.DAG",
        run_id="r:1",
        partition="day-1",
        lineage_id="default",
        config_sha256=config.sha256,
        created=datetime(2026, 1, 31, tzinfo=UTC),
    ).write(run.record)
    return PrepareCorpusOperator(task_id="prepare", store_uri=str(tmp_path))


def links(operator: PrepareCorpusOperator) -> dict[str, str]:
    key: Any = SimpleNamespace(dag_id="My.DAG", run_id="r:1")
    return {
        link.name: link.get_link(operator, ti_key=key) for link in operator.operator_extra_links
    }


def test_links_are_empty_until_there_is_something_to_see(tmp_path: Path) -> None:
    assert links(prepare(tmp_path)) == {"Data report": "", "Dataflow job": ""}


@pytest.mark.parametrize("report", ["/data/store/a b.html", "gs://bucket/x/a b.html"])
def test_link_to_the_report_is_a_page_wherever_the_store_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, report: str
) -> None:
    monkeypatch.setattr(python_module, "REPOSITORY", str(tmp_path))
    (tmp_path / "beam_jobs").mkdir()
    code = f'print(\'{{"manifest": "/m.json", "report": "{report}"}}\')'
    (tmp_path / "beam_jobs" / "prepare_corpus.py").write_text(code)
    operator = prepare(tmp_path)
    assert operator.execute(context())["report"] == report
    address = "/repretraining/data-report?dag_id=My.DAG&run_id=r%3A1&partition=day-1"
    assert links(operator)["Data report"] == address
    run = StoreLayout(str(tmp_path)).run(identity.run_key("My.DAG", "r:1"))
    assert PreparedInput.load(run.prepared_partition).manifest == "/m.json"


def test_dataflow_job_is_shown_as_soon_as_the_job_names_it(tmp_path: Path) -> None:
    operator, seen = prepare(tmp_path), context()
    for line in (
        "12:00:00 10 of 20 shards",
        "12:00:01 reading dataflow job x https://evil.example/dataflow/y",
        "dataflow job x https://console.cloud.google.com.evil.example/dataflow/y",
    ):
        operator.heard(line, seen)
    assert seen["pushed"] == {}
    operator.heard(f"12:00:02 dataflow job 2026-01_x {DATAFLOW_URL}", seen)
    # Airflow's pages read a link from the XCom of this key.
    assert seen["pushed"] == {"dataflow_job": "2026-01_x", "_link_DataflowJobLink": DATAFLOW_URL}
    assert links(operator)["Dataflow job"] == DATAFLOW_URL


def test_only_dataflow_jobs_get_a_project_and_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = {
        "conn_type": "google_cloud_platform",
        "extra": {"is_anonymous": True, "project": "my-project"},
    }
    monkeypatch.setenv("AIRFLOW_CONN_GOOGLE_CLOUD_DEFAULT", json.dumps(connection))
    folder = f"{tmp_path}/runs/{identity.run_key('My.DAG', 'r:1')}"
    own = ["--config", f"{folder}/config.json", "--store", str(tmp_path), "--partition", "day-1"]
    assert prepare(tmp_path).command_line(context()) == own
    operator = prepare(
        tmp_path,
        beam__runner="DataflowRunner",
        beam__region="us-central1",
        beam__temp_location="gs://bucket/temp",
        beam__sdk_container_image=f"image@sha256:{0:064}",
        tpu__zones=["us-central1-a"],
    )
    run_key = identity.run_key("My.DAG", "r:1")
    labels = ["--label", "dag=my-dag", "--label", f"run-key={run_key}"]
    assert operator.command_line(context()) == [*own, *labels, "--project=my-project"]
