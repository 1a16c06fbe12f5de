"""Describes the other hosts of its slice to a job, in the variable that TensorFlow reads."""

from __future__ import annotations

import json
import zlib

from tpu_agent import metadata

_FIRST_PORT, _PORTS = 20_000, 10_000


def environment(worker: int, token: str) -> dict[str, str]:
    """Return the environment variable that joins a job with those on its slice's other hosts.

    ``TF_CONFIG`` names all hosts, whether each of them trains or all lend their chips to worker 0.
    It is not set on a slice of one host, with several slices, or on a machine that is no TPU VM.

    Source: https://www.tensorflow.org/guide/distributed_training#TF_CONFIG

    :param worker: number of this host.
    :param token: of the attempt. It determines the ports, so that a job does not connect to the
        remains of another attempt's job; each host has its own port, because an emulator runs all
        hosts on one machine.
    :raises OSError: the metadata server does not answer.
    """
    endpoints = (metadata.attribute("worker-network-endpoints") or "").split(",")
    tpu_env = metadata.tpu_env() if len(endpoints) > 1 else {}
    if "NODE_ID" not in tpu_env or "MEGASCALE_SLICE_ID" in tpu_env:
        return {}
    addresses = [endpoint.rpartition(":")[2] for endpoint in endpoints]
    port = _FIRST_PORT + zlib.crc32(token.encode()) % _PORTS
    workers = [f"{address}:{port + number}" for number, address in enumerate(addresses)]
    task = {"type": "worker", "index": worker}
    return {"TF_CONFIG": json.dumps({"cluster": {"worker": workers}, "task": task})}
