"""Converts messages of the Cloud TPU v2 API to and from our dataclasses."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from google.cloud import tpu_v2

from pipeline_config.accelerators import chips
from tpu_lifecycle.service.backend import GONE_NODE_STATES, TpuError, TpuName, TpuRequest, TpuState
from tpu_lifecycle.service.cloud_errors import failure_of_creation

_UNSPECIFIED = "STATE_UNSPECIFIED"


def queued_resource(request: TpuRequest, parent: str) -> tpu_v2.QueuedResource:
    """Return the message that asks for a TPU and waits for capacity.

    The tier is set on the queued resource only; a scheduling_config in the node as well breaks
    queueing.

    :param parent: ``projects/P/locations/Z``.
    """
    spec: dict[str, Any] = {"parent": parent, "node": _node(request)}
    if request.name.slices > 1:
        spec["multislice_params"] = {
            "node_count": request.name.slices,
            "node_id_prefix": request.name.resource_id,
        }
    else:
        spec["node_id"] = request.name.resource_id
    fields: dict[str, Any] = {
        "tpu": {"node_spec": [spec]},
        "queueing_policy": {"valid_until_duration": {"seconds": request.queue_timeout_seconds}},
    }
    tier = {"spot": "spot", "reserved": "guaranteed"}.get(request.provisioning_model)
    if tier:
        fields[tier] = {}
    if request.reservation_name:
        name = request.reservation_name
        fields["reservation_name"] = name if "/" in name else f"{parent}/reservations/{name}"
    return tpu_v2.QueuedResource(fields)


def node(request: TpuRequest) -> tpu_v2.Node:
    """Return the message that requests a TPU at once or not at all."""
    tier = {"spot": {"spot": True}, "reserved": {"reserved": True}}.get(request.provisioning_model)
    return tpu_v2.Node(_node(request) | ({"scheduling_config": tier} if tier else {}))


def _node(request: TpuRequest) -> dict[str, Any]:
    read_only = tpu_v2.AttachedDisk.DiskMode.READ_ONLY
    fields: dict[str, Any] = {
        "accelerator_type": request.accelerator_type,
        "runtime_version": request.runtime_version,
        "labels": dict(request.labels),
        "metadata": dict(request.metadata),
        "network_config": {
            "network": request.network or "",
            "subnetwork": request.subnetwork or "",
            "enable_external_ips": request.enable_external_ips,
        },
        "tags": list(request.network_tags),
        "data_disks": [{"source_disk": d, "mode": read_only} for d in request.data_disks],
    }
    if request.service_account:
        fields["service_account"] = {"email": request.service_account}
    return fields


def slices(queued: tpu_v2.QueuedResource) -> int:
    """Return how many nodes a queued resource asks for."""
    counts = [spec.multislice_params.node_count for spec in queued.tpu.node_spec]
    return max(1, *counts)


def state(
    name: TpuName, queued: tpu_v2.QueuedResource | None, nodes: Sequence[tpu_v2.Node]
) -> TpuState:
    """Return the state that the messages describe; None stands for a resource that is missing.

    :param nodes: those that exist.
    """
    # A queued resource has no labels of its own; while it waits, only its node_spec shows them.
    labels = {key: value for node in nodes for key, value in node.labels.items()}
    if queued is not None and queued.tpu.node_spec:
        labels |= queued.tpu.node_spec[0].node.labels
    worst = _worst(nodes)
    made = [moment for node in nodes if (moment := _time(node.create_time))]
    return TpuState(
        name=name,
        queued_resource=_state_name(queued.state.state) if queued is not None else None,
        node=_state_name(worst.state) if worst is not None else None,
        health=worst.health.name if worst is not None else "",
        workers=sum(len(node.network_endpoints) for node in nodes),
        missing=name.slices - len(nodes) if nodes else 0,
        labels=labels,
        taken_by_service=queued is not None and _by_service(queued),
        fault=_fault(name, queued) if queued is not None else None,
        created=_time(queued.create_time) if queued is not None else None,
        node_created=min(made, default=None),
    )


def _worst(nodes: Sequence[tpu_v2.Node]) -> tpu_v2.Node | None:
    def rank(node: tpu_v2.Node) -> int:
        name = _state_name(node.state)
        return 0 if name in GONE_NODE_STATES else 2 if name == "READY" else 1

    return min(nodes, key=rank, default=None)


def _state_name(value: Any) -> str:
    # A state that this client version does not know arrives as a bare number.
    return getattr(value, "name", None) or f"{_UNSPECIFIED}_{value}"


def _by_service(queued: tpu_v2.QueuedResource) -> bool:
    service = tpu_v2.QueuedResourceState.StateInitiator.SERVICE
    return bool(queued.state.state_initiator == service)


def _fault(name: TpuName, queued: tpu_v2.QueuedResource) -> TpuError | None:
    error = queued.state.failed_data.error
    if not (error.code or error.message):
        return None
    what = f"Queued resource {name}"
    return failure_of_creation(error.code, error.message, what, chips=_chips(queued))


def _chips(queued: tpu_v2.QueuedResource) -> int:
    """Return how many chips are requested; 0 for a foreign request that does not tell."""
    try:
        return chips(queued.tpu.node_spec[0].node.accelerator_type) * slices(queued)
    except (IndexError, ValueError):
        return 0


def _time(value: Any) -> datetime | None:
    return datetime.fromtimestamp(value.timestamp(), UTC) if value else None
