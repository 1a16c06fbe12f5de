"""The stack's PostgreSQL alone, for tests of what it does to sessions."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import OperationalError

from local.stack import settings
from local.stack.paths import REPOSITORY, RuntimePaths


@pytest.fixture(scope="module")
def runtime() -> Iterator[RuntimePaths]:
    """Run the stack's PostgreSQL. Its socket has to have a short path."""
    with tempfile.TemporaryDirectory(prefix="idle-", dir="/tmp") as folder:
        runtime = RuntimePaths(Path(folder))
        runtime.root.chmod(0o755)
        runtime.database.mkdir()
        command = [sys.executable, "-P", "-m", "local.stack.postgres"]
        command += ["--data-dir", f"{folder}/data", "--socket-dir", str(runtime.database)]
        server = subprocess.Popen(command, env={"PYTHONPATH": str(REPOSITORY), "PATH": _PATH})
        try:
            _wait(runtime, server)
            yield runtime
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(timeout=60)


_PATH = settings.search_path()


def _wait(runtime: RuntimePaths, server: subprocess.Popen[bytes]) -> None:
    engine = create_engine(settings.database_url("+psycopg2", runtime))
    while server.poll() is None:
        with contextlib.suppress(OperationalError), engine.begin() as connection:
            connection.execute(text("CREATE TABLE IF NOT EXISTS runs (id int)"))
            engine.dispose()
            return
        time.sleep(0.2)
    pytest.fail("PostgreSQL does not start")
