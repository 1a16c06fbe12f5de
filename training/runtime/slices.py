"""Drives a TPU slice of several hosts: each lends its chips to worker 0, which uses them all.

TensorFlow reaches the chips of another host through a TensorFlow server there, which runs what it
is sent and no program of ours. Each host has one, including worker 0's, so that all are
alike. Worker 0's job holds a connection to each server, which ends when that connection is closed,
however the job ends.

``python -m training.runtime.slices v5litepod-16`` lends the chips of worker 0's own host to its
job, which starts this command.

The module also sets the environment variables that TensorFlow reads about TPUs when imported.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable

from pipeline_config import PipelineConfig
from pipeline_config.rental_schema import TpuConfig
from pipeline_store.formats import PhaseName
from trained_models.errors import LostWorkerError, UserError
from training.runtime.job import run_job
from training.runtime.phases import PHASE_FILE, phase
from training.runtime.workers import Cluster

log = logging.getLogger("training")

PATIENCE = 300.0
"""Seconds for all hosts to lend their chips, on top of the heartbeat timeout."""

HELD_PORT = 1000
"""Offset of the port for worker 0's held connection from the server's port in ``TF_CONFIG``."""

_LOOK_SECONDS = 5.0
# Connections to all hosts. Only the end of this process closes them.
_held: list[socket.socket] = []
PJRT_FAMILIES = frozenset({"v5litepod", "v5p", "v6e"})
"""TPU families that TensorFlow reaches only through PJRT; earlier ones need no PJRT."""


def is_driven(config: PipelineConfig) -> bool:
    """Return whether the job runs on a TPU slice of several hosts, which worker 0 drives."""
    is_tpu = config.training.distribution_strategy == "tpu"
    return is_tpu and len(Cluster.from_environment().workers) > 1


def prepare(config: PipelineConfig) -> None:
    """Set which chips this process takes; must be called before TensorFlow is imported."""
    if is_driven(config):
        leave_chips()
    elif config.training.distribution_strategy == "tpu":
        use_chips(config.tpu.accelerator_type)


def lend(config: PipelineConfig, is_done: Callable[[], bool]) -> None:
    """Lend this host's chips to worker 0 until its job is done; return at once if it needs none.

    :param is_done: returns whether the job's output exists.
    :raises LostWorkerError: worker 0's job ended without its output.
    """
    if not is_driven(config):
        log.info("Worker 0 does this job alone; this host of the slice has nothing to do.")
        return
    cluster = Cluster.from_environment()
    with phase(PhaseName.LENDING):
        _serve(cluster, config.tpu.accelerator_type, is_done)
    if not is_done():
        raise LostWorkerError(
            f"{cluster.name(0)} ended before its job was done. Start all machines again; the job "
            "goes on from what it has saved."
        )


def _serve(cluster: Cluster, accelerator_type: str, is_done: Callable[[], bool]) -> None:
    """Serve until worker 0's job has disconnected, or is done without having connected."""
    use_chips(accelerator_type)
    import tensorflow as tf

    server = tf.distribute.Server(
        tf.train.ClusterSpec({"worker": list(cluster.workers)}),
        job_name="worker",
        task_index=cluster.index,
    )
    with socket.create_server(("", _held_port(cluster.workers[cluster.index]))) as holding:
        holding.settimeout(_LOOK_SECONDS)
        log.info("Worker 0 drives the chips of worker %d, at %s.", cluster.index, server.target)
        while not is_done():
            try:
                connection, _ = holding.accept()
            except TimeoutError:
                continue
            with connection:
                _wait_for_the_end(connection)
            return


def _wait_for_the_end(connection: socket.socket) -> None:
    """Return when the other end closes the connection or has not answered for a minute."""
    connection.settimeout(None)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL):
        connection.setsockopt(socket.IPPROTO_TCP, option, 10)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 5)
    # Nothing is ever sent.
    with contextlib.suppress(OSError):
        connection.recv(1)


def join(cluster: Cluster, tpu: TpuConfig) -> None:
    """Lend the chips of worker 0's own host, and wait until all hosts of the slice lend theirs.

    :raises UserError: a host does not lend its chips; the message names it.
    """
    # Only this process reports the phase of the job.
    environment = {name: value for name, value in os.environ.items() if name != PHASE_FILE}
    command = [sys.executable, "-m", "training.runtime.slices", tpu.accelerator_type]
    subprocess.Popen(command, env=environment)
    log.info("Waiting for the chips of %s hosts.", len(cluster.workers))
    # Lost hosts are detected and replaced by the side that rents the slice.
    deadline = time.monotonic() + tpu.heartbeat_timeout_seconds + PATIENCE
    for index, address in enumerate(cluster.workers):
        _held.append(_hold(cluster.name(index), address, deadline))
    log.info("All lend them.")


def _hold(name: str, address: str, deadline: float) -> socket.socket:
    place = address.rpartition(":")[0], _held_port(address)
    while True:
        try:
            connection = socket.create_connection(place, timeout=5.0)
        except OSError as error:
            if time.monotonic() > deadline:
                raise UserError(
                    f"{name} does not lend its chips ({error}). Its log says why. If it says that "
                    "it does, the network has to let the hosts of a slice connect to each other; "
                    "see docs/explain/hosts.md."
                ) from error
            time.sleep(1.0)
        else:
            return connection


def _held_port(address: str) -> int:
    return int(address.rpartition(":")[2]) + HELD_PORT


def main(argv: list[str] | None = None) -> int:
    """Lend the chips of worker 0's own host to the process that has started this one."""
    [accelerator_type] = sys.argv[1:] if argv is None else argv
    parent = os.getppid()
    cluster = Cluster.from_environment()
    return run_job(lambda: _serve(cluster, accelerator_type, lambda: os.getppid() != parent))


def use_chips(accelerator_type: str) -> None:
    """Set the environment so that TensorFlow, once imported, takes the chips of this host.

    ``tensorflow-tpu`` reaches TPUs up to v4 by itself. Later ones need the plugin in ``libtpu``,
    whose path has to be set; with v4 it must not be. Without ``libtpu`` nothing more is set, and
    TensorFlow will find no TPU.

    Source: https://cloud.google.com/tpu/docs/run-calculation-tensorflow

    :param accelerator_type: such as ``v5litepod-8``.
    """
    os.environ.pop("TPU_LOAD_LIBRARY", None)
    if accelerator_type.rpartition("-")[0] not in PJRT_FAMILIES:
        return
    try:
        libtpu = importlib.import_module("libtpu")
    except ImportError:
        return
    os.environ["PJRT_DEVICE"] = "TPU"
    os.environ["NEXT_PLUGGABLE_DEVICE_USE_C_API"] = "true"
    os.environ["TF_PLUGGABLE_DEVICE_LIBRARY_PATH"] = libtpu.get_library_path()


def leave_chips() -> None:
    """Keep TensorFlow off the chips of this host: another process has them."""
    os.environ["TPU_LOAD_LIBRARY"] = "0"


if __name__ == "__main__":
    sys.exit(main())
