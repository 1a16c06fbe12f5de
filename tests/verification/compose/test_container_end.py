"""A container ends with its main process: nothing that a killed scheduler has started lives on."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.verification.compose.compose_file import MAIN, ComposeFile
from tests.verification.compose.engine import Engine, why_not

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(why_not() is not None, reason=str(why_not())),
]
# As Airflow's tasks do, the worker makes a session of its own and hears no polite signal.
WORKER = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
SCHEDULER = f"""
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", {WORKER!r}], start_new_session=True)
time.sleep(600)
"""
PATIENCE = 60.0


@pytest.fixture
def engine(settings: dict[str, str]) -> Iterator[Engine]:
    compose = ComposeFile.load(settings, MAIN)
    body = dict(compose.content["services"]["scheduler"])
    body |= {"entrypoint": ["python", "-c"], "command": [SCHEDULER], "depends_on": {}}
    del body["healthcheck"]
    alone = ComposeFile({**compose.content, "services": {"scheduler": body}})
    state = Path(tempfile.mkdtemp(prefix="cc-", dir="/tmp"))
    engine = Engine(alone, state)
    try:
        engine.up()
        yield engine
    finally:
        engine.down()
        shutil.rmtree(state, ignore_errors=True)


def _of_the_service(engine: Engine) -> list[psutil.Process]:
    """Return scheduler and worker, without what stands for the container's own init."""
    found = [psutil.Process(pid) for pid in engine.pids()]
    return [process for process in found if "time.sleep(600)" in " ".join(process.cmdline())]


def test_what_a_killed_scheduler_has_started_ends_with_its_container(engine: Engine) -> None:
    deadline = time.monotonic() + PATIENCE
    while len(found := _of_the_service(engine)) < 2:
        assert time.monotonic() < deadline, engine.log("scheduler")
        time.sleep(0.5)
    [main] = [process for process in found if "subprocess" in " ".join(process.cmdline())]

    os.kill(main.pid, signal.SIGKILL)

    code = engine.running["scheduler"].process.wait(timeout=PATIENCE)
    assert code == 128 + signal.SIGKILL
    assert engine.pids() == []
