"""What a job is told of the other hosts of its slice, in the variable that TensorFlow reads."""

from __future__ import annotations

import json
import zlib

from tpu_agent import metadata

_FIRST_PORT, _PORTS = 20_000, 10_000


def environment(worker: int, token: str) -> dict[str, str]:
    """Return the variable of a job that joins it with those on the other hosts of its slice.

    ``TF_CONFIG`` names all hosts, whether each of them trains or all lend their chips to worker 0.
    On a slice of one host, with several slices, and on a machine that is no TPU VM there is none.

    Source: https://www.tensorflow.org/guide/distributed_training#TF_CONFIG

    :param worker: number of this host.
    :param token: of the attempt. The ports follow from it, so that a job does not meet what is left
        of one of another attempt; each host has its own, as an emulator has them all on one.
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
