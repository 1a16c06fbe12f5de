"""What a run on a real Airflow tells other tools: OpenLineage's provider, and a real MLflow.

The way of the data is rebuilt from events alone, and the TPU's bill from a trace alone.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from local.stack.paths import REPOSITORY, RuntimePaths
from local.stack.stack import Stack
from pipeline_store.formats import Ledger, PartitionManifest, PreparedInput, ProductionPointer
from pipeline_store.layout import StoreLayout
from tests.serving import free_ports
from tests.stack.driver import DAG_ID, Pipeline, processes_of, until
from tests.stack.story import FIRST
from tpu_emulator.admin import AdminClient

PROVIDER = REPOSITORY / ".venv-openlineage"
MLFLOW = REPOSITORY / ".venv-mlflow" / "bin"

pytestmark = [
    pytest.mark.stack,
    pytest.mark.slow,
    pytest.mark.skipif(
        not PROVIDER.exists(), reason="`make openlineage-check` installs the provider"
    ),
]

ENDS = ("COMPLETE", "FAIL", "ABORT")
DEFERRED = ("tpu.create", "tpu.train", "tpu.evaluate")


@dataclass(frozen=True)
class Told:
    """What events say.

    :ivar states: of each try of a task, by its name and id, in order.
    :ivar ended: the last event of each run of a task.
    """

    states: dict[tuple[str, str], list[str]] = field(default_factory=lambda: defaultdict(list))
    ended: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def read(cls, file: Path, run_ids: set[str]) -> Told:
        """Read what is told of some runs: one more is started by the schedule."""
        told = cls()
        for event in map(json.loads, file.read_text().splitlines()):
            is_task = event["job"]["name"].startswith(f"{DAG_ID}.")
            if is_task and event["run"]["facets"]["airflow"]["dagRun"]["run_id"] in run_ids:
                name = event["job"]["name"].removeprefix(f"{DAG_ID}.")
                told.states[name, event["run"]["runId"]].append(event["eventType"])
                if event["eventType"] in ENDS:
                    told.ended.append(event)
        return told

    def have_ended(self) -> bool:
        """Return whether no try goes on: Airflow hands events on in processes of their own."""
        return all(set(states) & set(ENDS) for states in self.states.values())

    def of(self, task_id: str) -> list[dict[str, Any]]:
        """Return the ends of a task's tries."""
        return [one for one in self.ended if one["job"]["name"] == f"{DAG_ID}.{task_id}"]


def names(datasets: list[dict[str, Any]]) -> set[str]:
    assert {one["namespace"] for one in datasets} <= {"file"}
    return {one["name"] for one in datasets}


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("openlineage") / "events.jsonl"


@pytest.fixture(scope="module")
def mlflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real MLflow; where there is none nothing is listened to."""
    [port] = free_ports(1)
    address = f"http://127.0.0.1:{port}"
    if not (MLFLOW / "mlflow").exists():
        yield address
        return
    folder = tmp_path_factory.mktemp("mlflow")
    command = [
        *(str(MLFLOW / "mlflow"), "server", "--host", "127.0.0.1", "--port", str(port)),
        *("--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--workers", "1"),
    ]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            command,
            cwd=folder,
            stdout=log,
            stderr=log,
            start_new_session=True,
            # Its seven processes for jobs have none to do here.
            env=os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
        )
    try:
        until(lambda: _answers(f"{address}/health"), name="MLflow")
        yield address
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait()


def _answers(address: str) -> bool:
    try:
        return httpx.get(address, trust_env=False).is_success
    except httpx.TransportError:
        return False


@pytest.fixture(scope="module")
def watched(
    tmp_path_factory: pytest.TempPathFactory, events: Path, mlflow: str
) -> Iterator[Pipeline]:
    """A stack whose Airflow has the provider, and is told where MLflow is."""
    environment = {
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{mlflow}/v1/traces",
        "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "x-mlflow-experiment-id=0",
        "NO_PROXY": "127.0.0.1",
        "PYTHONPATH": os.pathsep.join([str(REPOSITORY), str(PROVIDER)]),
        "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(
            {"type": "file", "log_file_path": str(events), "append": True}
        ),
        # Forks of a busy machine take their time.
        "AIRFLOW__OPENLINEAGE__EXECUTION_TIMEOUT": "120",
    }
    folder = tmp_path_factory.mktemp("stack")
    stack = Stack(folder / "state", extra_environment=environment)
    # Beside MLflow, on a busy machine.
    stack.up(start_seconds=900.0)
    with stack:
        api = stack.api()
        api.wait_for_dag(DAG_ID)
        api.unpause(DAG_ID)
        socket = RuntimePaths.of(stack.paths.root).emulator_socket
        with AdminClient(socket) as admin:
            yield Pipeline(stack, api, admin, StoreLayout(str(stack.paths.store)))


@pytest.fixture(scope="module")
def told(watched: Pipeline, events: Path) -> Told:
    """What is told of a run whose data job is killed once, and of one that is refused."""
    refused = watched.trigger("no-such-day", "default")
    assert watched.finish(refused)[0] == "failed"
    watched.write_corpus(FIRST, seed=0)
    run_id = watched.trigger(FIRST, "default")
    # Of this stack alone: others may run on this machine.
    words = ("beam_jobs.prepare_corpus", watched.store.root)
    for process in until(lambda: processes_of(*words), name="the data job"):
        os.kill(process.pid, signal.SIGKILL)
    state, tasks = watched.finish(run_id)
    assert (state, tasks["promotion.promote"]) == ("success", "success")
    watched.assert_nothing_left()
    until(lambda: Told.read(events, {refused, run_id}).have_ended(), name="the last events")
    return Told.read(events, {refused, run_id})


def run_of(told: Told, watched: Pipeline) -> Any:
    [promote] = told.of("promotion.promote")
    return watched.run(promote["run"]["facets"]["airflow"]["dagRun"]["run_id"])


def test_each_try_ends_once_also_of_deferred_failed_and_retried_tasks(told: Told) -> None:
    ends = {
        name: [state for state in states if state in ENDS] for name, states in told.states.items()
    }
    assert {name: states for name, states in ends.items() if len(states) != 1} == {}
    for task_id in DEFERRED:
        assert [one["eventType"] for one in told.of(task_id)] == ["COMPLETE"]
    assert sorted(one["eventType"] for one in told.of("validate")) == ["COMPLETE", "FAIL"]
    killed, again = told.of("data.prepare")
    assert (killed["eventType"], again["eventType"]) == ("FAIL", "COMPLETE")
    assert killed["inputs"]
    assert not killed["outputs"]
    assert again["outputs"]
    assert killed["run"]["runId"] != again["run"]["runId"]


def test_from_raw_files_to_the_pointer_without_a_gap(told: Told, watched: Pipeline) -> None:
    done = [one for one in told.ended if one["eventType"] == "COMPLETE"]
    made_by = {name: one for one in done for name in names(one["outputs"])}
    lineage = watched.store.lineage("default")
    corpus = f"{watched.store.root}/corpus/{FIRST}"
    # Backwards, by events alone: what was it made of?
    open_names, seen, jobs = [lineage.production], set(), set()
    while open_names:
        name = open_names.pop()
        if name in seen or name.startswith(corpus):
            seen.add(name)
            continue
        seen.add(name)
        # The gap, if there is one, is named here.
        assert name in made_by
        jobs.add(made_by[name]["job"]["name"].removeprefix(f"{DAG_ID}."))
        open_names += names(made_by[name]["inputs"])
    assert {f"{corpus}/a.txt", f"{corpus}/b.txt"} <= seen
    assert jobs == {
        *("data.vocabulary", "data.prepare", "lineage.plan", "tpu.train", "tpu.evaluate"),
        *("promotion.judge", "promotion.export", "promotion.promote"),
    }


def test_facets_say_what_the_store_says(told: Told, watched: Pipeline) -> None:
    run = run_of(told, watched)
    uri = PreparedInput.load(run.prepared_partition).manifest
    manifest = PartitionManifest.load(uri)
    _, prepare = told.of("data.prepare")
    [records] = prepare["outputs"]
    assert records["name"] == uri
    assert "input_ids" in [one["name"] for one in records["facets"]["schema"]["fields"]]
    assert records["facets"]["version"]["datasetVersion"] == manifest.content_sha256
    assert records["outputFacets"]["outputStatistics"]["rowCount"] == sum(manifest.records.values())
    tokens = records["facets"]["dataQualityMetrics"]["columnMetrics"]["input_ids"]["count"]
    assert tokens == sum(manifest.tokens.values())
    raw = [
        one for one in prepare["inputs"] if one["name"].endswith(".txt") and "corpus" in one["name"]
    ]
    documents = sum(one["inputFacets"]["inputStatistics"]["rowCount"] for one in raw)
    assert documents == manifest.documents
    [promote] = told.of("promotion.promote")
    [pointer] = [one for one in promote["outputs"] if one["name"].endswith("production.json")]
    in_use = ProductionPointer.load(watched.store.lineage("default").production).version_id
    assert pointer["facets"]["version"]["datasetVersion"] == in_use
    assert pointer["facets"]["lifecycleStateChange"]["lifecycleStateChange"] == "OVERWRITE"


READ_TRACES = """
import json, sys
from mlflow import MlflowClient
client = MlflowClient(sys.argv[1])
traces = client.search_traces(locations=["0"], include_spans=True)
print(json.dumps([
    [
        {"id": span.span_id, "parent": span.parent_id, "name": span.name,
         "attributes": dict(span.attributes),
         "seconds": (span.end_time_ns - span.start_time_ns) / 1e9}
        for span in trace.data.spans
    ]
    for trace in traces
]))
"""


@pytest.mark.skipif(not (MLFLOW / "mlflow").exists(), reason="there is no MLflow in .venv-mlflow")
def test_one_trace_in_mlflow_has_every_task_and_the_bill_of_the_tpu(
    told: Told, watched: Pipeline, mlflow: str
) -> None:
    run = run_of(told, watched)

    def of_run() -> list[dict[str, Any]] | None:
        done = subprocess.run(
            [str(MLFLOW / "python"), "-c", READ_TRACES, mlflow],
            capture_output=True,
            check=True,
            env=os.environ | {"NO_PROXY": "127.0.0.1"},
        )
        traces = json.loads(done.stdout.splitlines()[-1])
        # One of them is refused, and one was started by the schedule and skipped.
        assert len(traces) <= 3
        # The scheduler sends the run's own span after all others.
        whole = [spans for spans in traces if any(s["name"].startswith("TPU ") for s in spans)]
        return next((one for one in whole if any(not s["parent"] for s in one)), None)

    spans = until(of_run, name="the trace", seconds=120, poll=2.0)
    by_id = {span["id"]: span for span in spans}
    [root] = [span for span in spans if not span["parent"]]
    assert root["name"] == DAG_ID
    assert all(span["parent"] in by_id for span in spans if span is not root)
    names = {span["name"] for span in spans}
    run_id = root["attributes"]["airflow.dag_run.run_id"]
    states = {
        task.task_id: task.state
        for task in watched.api.task_instances(DAG_ID, run_id)
        if task.state == "success"
    }
    assert set(states) <= names
    # The killed try of the data job is one span, the one that did the work another.
    assert len([span for span in spans if span["name"] == "data.prepare"]) == 2
    assert "python -m beam_jobs.prepare_corpus" in names
    assert {"job 010-train", "job 020-evaluate"} <= names
    [entry] = Ledger.load(run.reservation(1).ledger).entries
    sums: dict[str, float] = defaultdict(float)
    for span in spans:
        if span["attributes"].get("repretraining.is_billed"):
            sums[span["attributes"]["repretraining.spent_on"]] += span["seconds"]
    expected = {str(name): value for name, value in entry.seconds.items()}
    # Times of spans are rounded to microseconds.
    assert sums == pytest.approx(expected, abs=1e-4)
    assert sum(sums.values()) == pytest.approx(entry.billed_seconds)
