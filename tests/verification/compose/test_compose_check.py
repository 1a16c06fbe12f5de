"""From the compose file alone: Airflow with PostgreSQL and a login, and the DAG from end to end."""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from local.demo import tiny
from local.stack.airflow_api import AirflowApi, AirflowApiError
from pipeline_store import identity
from pipeline_store.formats import OutcomeKind, ReaperPass, RunOutcome
from pipeline_store.layout import StoreLayout
from tests.verification.compose.compose_file import MAIN, ComposeFile
from tests.verification.compose.engine import Engine, why_not
from tests.verification.compose.images import REPOSITORY
from tpu_emulator.admin import AdminClient
from verification.reach.attempts import Found
from verification.reach.doors import DOORS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3000),
    pytest.mark.skipif(why_not() is not None, reason=str(why_not())),
]

DAG_ID = "bert_repretraining"
REACH = "reach_check"
PARTITION = "2026-01-01"
URL = "http://127.0.0.1:8080"
STORE = "/home/airflow/store"
EMULATOR = {
    "conn_type": "google_cloud_platform",
    "extra": {
        "is_anonymous": True,
        "project": "local-project",
        "tpu_api_endpoint": "unix:/home/airflow/tpu/api.sock",
        "tpu_insecure": True,
    },
}


@dataclass
class Server:
    engine: Engine
    password: str
    home: Path

    @property
    def store(self) -> StoreLayout:
        return StoreLayout(str(self.home / "store"))


@pytest.fixture
def running(settings: dict[str, str], server: Path) -> Iterator[Server]:
    # Sockets have to have short paths.
    state = Path(tempfile.mkdtemp(prefix="cc-", dir="/tmp"))
    given = settings | {
        "GOOGLE_CLOUD_CONNECTION": json.dumps(EMULATOR),
        "GOOGLE_CLOUD_PROJECT": "local-project",
        "REPRETRAIN_STORE_URI": STORE,
        "REPRETRAIN_PRESET": "smoke",
        "AIRFLOW_PARALLELISM": "4",
        "REPOSITORY": str(REPOSITORY),
    }
    compose = ComposeFile.load(given, MAIN, Path(__file__).with_name("emulator.yaml"))
    engine = Engine(compose, state)
    try:
        engine.up()
        logins = json.loads((server / "secrets" / "logins").read_text())
        yield Server(engine, logins["admin"], engine.volume("airflow-home"))
    finally:
        engine.down()
        shutil.rmtree(state, ignore_errors=True)


def nobody_gets_in_without_the_login() -> None:
    dags = f"{URL}/api/v2/dags/{DAG_ID}"
    with httpx.Client(trust_env=False, timeout=30) as stranger:
        assert stranger.get(dags).status_code == httpx.codes.UNAUTHORIZED
        started = stranger.post(f"{dags}/dagRuns", json={"logical_date": None})
        assert started.status_code == httpx.codes.UNAUTHORIZED
        forged = stranger.get(dags, headers={"Authorization": "Bearer eyJhbGciOiJub25lIn0.e30."})
        assert forged.status_code in {httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN}
    with pytest.raises(AirflowApiError) as refused, AirflowApi(URL, "admin", "admin") as guess:
        guess.import_errors()
    assert refused.value.status == httpx.codes.UNAUTHORIZED


def run_the_dag(password: str) -> str:
    with AirflowApi(URL, "admin", password) as api:
        api.wait_for_dag(DAG_ID, seconds=300)
        assert api.import_errors() == {}
        api.unpause(DAG_ID)
        settings = tiny.SETTINGS | {"corpus.partition": PARTITION, "model.lineage_id": "team"}
        run_id = api.trigger(DAG_ID, settings)
        run = api.wait_for_run(DAG_ID, run_id, seconds=1500)
        states = {task.task_id: task.state for task in api.task_instances(DAG_ID, run_id)}
        others = {task: state for task, state in states.items() if state != "success"}
        # No labelled tasks are named.
        skipped = dict.fromkeys(("lineage.probe_data", "tpu.probe"), "skipped")
        assert (run.state, others) == ("success", skipped)
        # The log is there for people, from another container than the one that wrote it.
        assert "60/60" in api.task_log(DAG_ID, run_id, "tpu.train")
    return run_id


def try_the_doors(password: str) -> dict[str, dict[str, str]]:
    """Return how each door was found in a data job's place, by task."""
    with AirflowApi(URL, "admin", password) as api:
        api.wait_for_dag(REACH, seconds=300)
        api.unpause(REACH)
        run_id = api.trigger(REACH)
        assert api.wait_for_run(REACH, run_id, seconds=600).state == "success"
        path = f"/dags/{REACH}/dagRuns/{run_id}/taskInstances/{{}}/xcomEntries/return_value"
        return {
            task: api.request("GET", path.format(task), params={"deserialize": True})["value"]
            for task in ("reach", "unhidden")
        }


def test_the_dag_runs_from_the_compose_file(running: Server) -> None:
    engine = running.engine
    tiny.write_partition(running.store, PARTITION, seed=0)
    for path in (running.home / "store").rglob("*"):
        shutil.chown(path, 10001, 10001)
    shutil.chown(running.home / "store", 10001, 10001)

    with engine.network():
        nobody_gets_in_without_the_login()
        run_id = run_the_dag(running.password)
        found = try_the_doors(running.password)

    asked = {door.name: door.server for door in DOORS if door.server is not None}
    assert {name: found["reach"][name] for name in asked} == asked
    # All of it by the kernel: the job has the user whom the scheduler's secrets are for.
    for name in ("secrets", "logs", "processes"):
        assert found["unhidden"][name] == Found.OPEN, name

    outcome = RunOutcome.load(running.store.run(identity.run_key(DAG_ID, run_id)).outcome)
    assert outcome.outcome is OutcomeKind.PROMOTED
    with AdminClient(running.home / "tpu" / "api.sock") as admin:
        table = admin.table()
    assert (table["nodes"], table["queued_resources"], table["orphan_pids"]) == ([], [], [])
    passes = ReaperPass.load(running.store.reaper_pass("repretraining", "local-project"))
    assert passes.problems == []

    # A secret is in a file of its own service, not in what each process of it inherits.
    secrets = {
        path.read_text() for path in Path(engine.compose.secret("fernet_key")).parent.iterdir()
    }
    looked_at = 0
    for pid in engine.pids():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            inherited = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
            assert not any(secret in inherited for secret in secrets)
            looked_at += 1
    assert looked_at >= len(engine.running)

    engine.down()
    assert engine.left == []
    assert {name: code for name, code in engine.exit_codes.items() if code not in {0, 143}} == {}
