"""Beam's job service and worker pool, each a process of its own, as a cluster would have them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.serving import free_ports

REPOSITORY = Path(__file__).parents[2]


@contextmanager
def job_service(folder: Path) -> Iterator[list[str]]:
    """Start the two processes; yield the options by which a pipeline runs there."""
    port_file = folder / "port"
    service = _start(
        "apache_beam.runners.portability.local_job_service_main",
        f"--port_file={port_file}",
        f"--staging_dir={folder / 'staging'}",
    )
    [pool_port] = free_ports(1)
    pool = _start("apache_beam.runners.worker.worker_pool_main", f"--service_port={pool_port}")
    try:
        deadline = time.monotonic() + 120
        while not port_file.exists() or not _is_open(pool_port):
            assert service.poll() is None
            assert pool.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield [
            "--runner=PortableRunner",
            f"--job_endpoint=localhost:{port_file.read_text()}",
            "--environment_type=EXTERNAL",
            f"--environment_config=localhost:{pool_port}",
        ]
    finally:
        for process in (service, pool):
            # The pool ends its workers only then.
            process.send_signal(signal.SIGINT)
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _start(module: str, *arguments: str) -> subprocess.Popen[bytes]:
    # The pool starts its workers as `python`.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        cwd=REPOSITORY,
        env=os.environ | {"PATH": path, "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("localhost", port)) == 0
