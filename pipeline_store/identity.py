"""Names of runs, TPU resources, shards and model versions.

Run ids contain ``:`` and ``+``, which neither Google Cloud names nor labels allow, so everything
outside Airflow is named by hash.
"""

from __future__ import annotations

import hashlib
import re

from pipeline_config.schema import PARTITION_PATTERN

RESOURCE_PREFIX = "bert"
_LINEAGE = re.compile(r"[a-z][a-z0-9-]{0,39}")


def _digest(*parts: str) -> str:
    # The length before each part keeps ("ab", "c") and ("a", "bc") apart.
    joined = "".join(f"{len(part)}:{part}" for part in parts)
    return hashlib.sha256(joined.encode()).hexdigest()


def run_key(dag_id: str, run_id: str) -> str:
    """Return the 12 hex digits that identify a run outside Airflow."""
    return _digest("run", dag_id, run_id)[:12]


def rental_key(run_key: str, number: int) -> str:
    """Return the 12 hex digits that name a TPU's folder; for number 0 the run's own key."""
    return run_key if number == 0 else _digest("rental", run_key, str(number))[:12]


def corpus_key(input_pattern: str) -> str:
    """Return the 12 hex digits that name the folder of arrivals for a corpus's input pattern."""
    return hashlib.sha256(input_pattern.encode()).hexdigest()[:12]


def trace_id(run_key: str) -> str:
    """Return the 32 hex digits of a run's OpenTelemetry trace."""
    return _digest("trace", run_key)[:32]


def check_partition(partition: str) -> str:
    """Return the partition id if it is valid.

    :raises ValueError: the id cannot serve as a folder name and part of a key.
    """
    if not re.fullmatch(PARTITION_PATTERN, partition) or ".." in partition:
        raise ValueError(
            f"Partition {partition!r} is not a valid id: use 1 to 63 of a-z, 0-9, '.', '_', '-', "
            "starting with a letter or digit, such as 2026-01-31."
        )
    return partition


def check_lineage(lineage_id: str) -> str:
    """Return the lineage id if it is valid.

    :raises ValueError: the id cannot serve as a folder name and part of a resource label.
    """
    if not _LINEAGE.fullmatch(lineage_id):
        raise ValueError(
            f"Lineage {lineage_id!r} is not a valid id: use 1 to 40 of a-z, 0-9 and '-', "
            "starting with a letter."
        )
    return lineage_id


def place_digest(root: str) -> str:
    """Return the 8 hex digits that stand for a store's root URI."""
    return _digest("place", root.rstrip("/"))[:8]


def installation_label(root: str, installation_id: str) -> str:
    """Return the label that identifies a store's TPUs, such as ``5e6f7a8b-9c0d1e2f``.

    :param root: the store's root URI, from which the first half is made.
    :param installation_id: the id in the store's installation file.
    """
    return f"{place_digest(root)}-{_digest('installation', installation_id)[:8]}"


def resource_id(run_key: str, generation: int, attempt: int, installation: str | None) -> str:
    """Return the id of an attempt's queued resource and node.

    Such as ``bert-5e6f7a8b-9c0d1e2f-0a1b2c3d4e5f-g1-a2``. The same attempt always has the same
    name, so a retry after a lost reply finds its own TPU.

    :param installation: label of the store; None for reservations of releases without labels.
    """
    prefix = f"{RESOURCE_PREFIX}-{installation}" if installation else RESOURCE_PREFIX
    return f"{prefix}-{run_key}-g{generation}-a{attempt}"


def shard_key(
    input_sha256: str, vocabulary_sha256: str, config_sha256: str, decisions_sha256: str
) -> str:
    """Return the key of a processed shard: equal inputs, settings and decisions give equal keys."""
    parts = (input_sha256, vocabulary_sha256, config_sha256, decisions_sha256)
    return _digest("shard", *parts)[:32]


def signature_key(input_sha256: str, settings_sha256: str) -> str:
    """Return the key of a file's signatures: equal bytes and reading settings give equal keys."""
    return _digest("signatures", input_sha256, settings_sha256)[:32]


def manifest_id(partition: str, shard_keys: list[str]) -> str:
    """Return the key of a partition manifest; it changes when any of the shards changes."""
    return _digest("partition", partition, *sorted(shard_keys))[:16]


def version_id(run_key: str) -> str:
    """Return the id of the model version that a run publishes; a run publishes at most one."""
    return f"v-{run_key}"
