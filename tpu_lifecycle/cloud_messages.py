"""Messages of the Cloud TPU v2 API to and from our dataclasses."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from google.cloud import tpu_v2

from tpu_lifecycle.backend import TpuError, TpuName, TpuRequest, TpuState
from tpu_lifecycle.cloud_errors import failure_of_queued_resource

_UNSPECIFIED = "STATE_UNSPECIFIED"


def queued_resource(request: TpuRequest, parent: str) -> tpu_v2.QueuedResource:
    """Return the message that asks for a TPU.

    The tier is set on the queued resource only; a scheduling_config in the node as well breaks
    queueing.
    """
    node: dict[str, Any] = {
        "accelerator_type": request.accelerator_type,
        "runtime_version": request.runtime_version,
        "labels": dict(request.labels),
        "metadata": dict(request.metadata),
        "network_config": {
            "network": request.network or "",
            "subnetwork": request.subnetwork or "",
            "enable_external_ips": request.enable_external_ips,
        },
    }
    if request.service_account:
        node["service_account"] = {"email": request.service_account}
    spec = {"parent": parent, "node_id": request.name.resource_id, "node": node}
    fields: dict[str, Any] = {
        "tpu": {"node_spec": [spec]},
        "queueing_policy": {"valid_until_duration": {"seconds": request.queue_timeout_seconds}},
    }
    tier = {"spot": "spot", "reserved": "guaranteed"}.get(request.provisioning_model)
    if tier:
        fields[tier] = {}
    return tpu_v2.QueuedResource(fields)


def state(
    name: TpuName, queued: tpu_v2.QueuedResource | None, node: tpu_v2.Node | None
) -> TpuState:
    """Return what the two messages say; None stands for a resource that does not exist."""
    # A queued resource has no labels of its own; while it waits, only its node_spec shows them.
    labels = dict(node.labels) if node is not None else {}
    if queued is not None and queued.tpu.node_spec:
        labels |= queued.tpu.node_spec[0].node.labels
    return TpuState(
        name=name,
        queued_resource=_state_name(queued.state.state) if queued is not None else None,
        node=_state_name(node.state) if node is not None else None,
        health=node.health.name if node is not None else "",
        workers=len(node.network_endpoints) if node is not None else 0,
        labels=labels,
        taken_by_service=queued is not None and _by_service(queued),
        fault=_fault(name, queued) if queued is not None else None,
        created=_time(queued.create_time) if queued is not None else None,
        node_created=_time(node.create_time) if node is not None else None,
    )


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
    return failure_of_queued_resource(error.code, error.message, f"Queued resource {name}")


def _time(value: Any) -> datetime | None:
    return datetime.fromtimestamp(value.timestamp(), UTC) if value else None
