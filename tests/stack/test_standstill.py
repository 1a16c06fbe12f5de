"""A run that stands still with its TPU rented, on a real Airflow: told from outside, then over."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
import pytest

from local.stack import parts
from local.stack.paths import RuntimePaths
from local.stack.stack import Stack
from pipeline_alerts.causes import CLEARING
from pipeline_alerts.findings import open_alerts
from pipeline_store import identity, uris
from pipeline_store.layout import StoreLayout
from tests.pipeline_alerts.cron import Called, call
from tests.pipeline_alerts.servers import Endpoint, web_endpoint
from tests.stack.driver import DAG_ID, Pipeline, until
from tests.stack.story import FIRST
from tpu_emulator.admin import AdminClient

pytestmark = [pytest.mark.stack, pytest.mark.slow]

WATCH = "pipeline_watch"
TRAIN = "010-train"
# Beats and leases come each second; on a busy machine some are missed.
PATIENCE = {"REPRETRAIN_STALLED_MINUTES": "0.35", "REPRETRAIN_IDLE_TPU_MINUTES": "0.3"}
STALLED, UNUSED, PAUSED = "run-stalled", "tpu-without-job", "paused-with-tpu"


@dataclass(frozen=True)
class Watched:
    """A stack that tells a web endpoint, and the command for cron beside it."""

    pipeline: Pipeline
    endpoint: Endpoint
    home: Path

    def from_outside(self) -> Called:
        """Call the command with the stack's connections and without its Airflow."""
        names = ("AIRFLOW_CONN_GOOGLE_CLOUD_DEFAULT", "AIRFLOW_CONN_ALERTS_WEB")
        environment = self.pipeline.stack.environment()
        connections = {name: environment[name] for name in names}
        ways = {"REPRETRAIN_ALERT_CONN_IDS": "alerts_web"}
        return call(self.pipeline.store, self.home, **connections, **ways, **PATIENCE)

    def watch(self) -> None:
        """Let the watch in Airflow make a pass."""
        run_id = self.pipeline.api.trigger(WATCH)
        ended = self.pipeline.api.wait_for_run(WATCH, run_id, seconds=300.0)
        assert ended.state == "success"

    def told(self, run_id: str) -> list[str]:
        """Return the causes that the endpoint was told of a run."""
        scope = identity.run_key(DAG_ID, run_id)
        bodies = (request.body for request in self.endpoint.requests)
        return sorted(body["cause"] for body in bodies if body["scope"] == scope)

    def open(self) -> list[str]:
        """Return the causes of the alerts that have not cleared."""
        found = open_alerts(self.pipeline.store, CLEARING)
        return sorted(name.partition(".")[0] for _, name in found)

    def page(self, run_id: str) -> str:
        """Return the tab Model of a run."""
        api = self.pipeline.api
        answer = httpx.get(
            f"{api.base_url}/repretraining/run",
            params={"dag_id": DAG_ID, "run_id": run_id},
            headers={"Authorization": f"Bearer {api.login()}"},
            trust_env=False,
        )
        return answer.raise_for_status().text


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    folder = tmp_path_factory.mktemp("standstill")
    with web_endpoint() as endpoint:
        environment = {
            "REPRETRAIN_ALERT_CONN_IDS": "alerts_web",
            "AIRFLOW_CONN_ALERTS_WEB": endpoint.connection(),
            "NO_PROXY": "127.0.0.1",
        }
        stack = Stack(folder / "state", extra_environment=environment)
        with stack, stack.api() as api:
            socket = RuntimePaths.of(stack.paths.root).emulator_socket
            with AdminClient(socket) as admin:
                pipeline = Pipeline(stack, api, admin, StoreLayout(str(stack.paths.store)))
                pipeline.write_corpus(FIRST, seed=0)
                for dag_id in (DAG_ID, WATCH):
                    api.wait_for_dag(dag_id)
                    api.unpause(dag_id)
                yield Watched(pipeline, endpoint, folder)


@contextmanager
def halted(processes: list[psutil.Process]) -> Iterator[None]:
    """Halt processes while the block runs."""
    for process in processes:
        process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            process.send_signal(signal.SIGCONT)


def scheduler(stack: Stack) -> psutil.Process:
    [pid] = [part.pid for part in stack.status().parts if part.name == parts.SCHEDULER]
    return psutil.Process(pid)


def pause_is_told(watched: Watched, run_id: str) -> None:
    """Pause the DAG while its run has a TPU; the page and the watch say so, until it goes on."""
    api = watched.pipeline.api
    assert "paused" not in watched.page(run_id)
    api.pause(DAG_ID)
    watched.watch()
    page = watched.page(run_id)
    assert "The DAG is paused" in page
    assert "A TPU is rented" in page
    assert (watched.told(run_id), watched.open()) == ([PAUSED], [PAUSED])
    api.unpause(DAG_ID)
    watched.watch()
    assert (watched.told(run_id), watched.open()) == ([PAUSED], [])


def test_a_halted_scheduler_and_a_pause_are_told_and_clear(watched: Watched) -> None:
    pipeline = watched.pipeline
    quick = {"training__train_steps": 150, "promotion__export_formats": []}
    run_id = pipeline.trigger(FIRST, "standstill", **quick)
    pipeline.wait_for_checkpoint(run_id)
    mailbox = pipeline.run(run_id).reservation(1).attempt(1)
    with ExitStack() as dead:
        # The job is kept from its end for as long as this takes; its agent goes on to beat.
        with halted(pipeline.vm_processes("training.train")):
            pause_is_told(watched, run_id)
            well = watched.from_outside()
            assert (well.code, well.causes) == (0, []), well.said
            dead.enter_context(halted([scheduler(pipeline.stack)]))
        until(lambda: uris.exists(mailbox.status(0, TRAIN)), name="the end of the job")
        time.sleep(60 * float(PATIENCE["REPRETRAIN_STALLED_MINUTES"]) + 2)
        found = watched.from_outside()
        assert (found.code, found.causes) == (1, [STALLED, UNUSED]), found.said
        said = "The TPU service says: queued resource ACTIVE, node READY"
        assert said in found.report["findings"][1]["reason"]
        again = watched.from_outside()
        assert (again.code, again.causes) == (1, [STALLED, UNUSED])
        assert watched.told(run_id) == [PAUSED, STALLED, UNUSED]
        assert watched.open() == [STALLED, UNUSED]
    state, tasks = pipeline.finish(run_id)
    assert state == "success", tasks
    over = watched.from_outside()
    assert (over.code, over.causes) == (0, []), over.said
    assert watched.open() == []
    assert watched.told(run_id) == [PAUSED, STALLED, UNUSED]
    pipeline.assert_nothing_left()
