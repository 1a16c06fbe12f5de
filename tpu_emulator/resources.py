"""Nodes and queued resources as the service fills them in: states, tiers, chips, addresses."""

from __future__ import annotations

from typing import Any

from tpu_emulator import catalog, names
from tpu_emulator.errors import ApiError
from tpu_emulator.messages import (
    ApiVersion,
    Node,
    NodeState,
    QueueState,
    StateInitiator,
    seconds,
    timestamp,
)

QUEUED = (QueueState.ACCEPTED, QueueState.WAITING_FOR_RESOURCES)
"""States of a queued resource that has no nodes yet and may get them."""

_TPU_PORT = 8470
_STATE_DATA = {
    QueueState.CREATING: "creating_data",
    QueueState.ACCEPTED: "accepted_data",
    QueueState.PROVISIONING: "provisioning_data",
    QueueState.FAILED: "failed_data",
    QueueState.DELETING: "deleting_data",
    QueueState.ACTIVE: "active_data",
    QueueState.SUSPENDING: "suspending_data",
    QueueState.SUSPENDED: "suspended_data",
}


def set_queue_state(
    queued: Any,
    state: QueueState,
    *,
    initiator: StateInitiator = StateInitiator.STATE_INITIATOR_UNSPECIFIED,
    error: ApiError | None = None,
) -> None:
    """Replaces the state of a queued resource with everything that belongs to it."""
    queued.state.Clear()
    queued.state.state = state
    queued.state.state_initiator = initiator
    if state in _STATE_DATA:
        getattr(queued.state, _STATE_DATA[state]).SetInParent()
    if error is not None:
        queued.state.failed_data.error.code = error.number
        queued.state.failed_data.error.message = error.message


def new_node(
    spec: Any, name: str, *, number: int, state: NodeState, now: float, queued: Any = None
) -> Any:
    """The node that a create call or a queued resource asks for, with its output fields.

    Args:
        spec: the node of the request.
        name: its full resource name.
        number: unique per emulator; also picks the workers' loopback addresses.
        state: the first state.
        now: the time of the service, seconds since the epoch.
        queued: the queued resource that it belongs to.
    """
    node = Node()
    node.CopyFrom(spec)
    accelerator = accelerator_type(spec, names.split(name)[0].zone)
    assert accelerator is not None, "validated with the request"  # noqa: S101
    node.name = name
    node.id = number
    node.state = state
    node.api_version = ApiVersion.V2
    node.accelerator_type = accelerator.name
    node.accelerator_config.type_ = accelerator.family
    node.accelerator_config.topology = accelerator.topology
    node.create_time.CopyFrom(timestamp(now))
    for worker in range(accelerator.workers):
        # Each worker has an address of its own in 127.0.0.0/8, so a slice can use fixed ports.
        address = f"127.{1 + number // 250 % 250}.{number % 250}.{1 + worker}"
        node.network_endpoints.add(ip_address=address, port=_TPU_PORT)
    if queued is not None:
        node.queued_resource = queued.name
        node.multislice_node = len(node_names(queued)) > 1
    return node


def accelerator_type(spec: Any, zone: str) -> catalog.AcceleratorType | None:
    """The accelerator type that a node spec names directly or by its configuration."""
    if spec.accelerator_type:
        offered = spec.accelerator_type in catalog.ZONES[zone]
        return catalog.ACCELERATOR_TYPES[spec.accelerator_type] if offered else None
    config = spec.accelerator_config
    return catalog.type_for_config(zone, config.type_, config.topology)


def node_names(queued: Any) -> dict[str, Any]:
    """Every node that the queued resource asks for: the spec by full node name."""
    _, queued_id = names.split(queued.name)
    result = {}
    for spec in queued.tpu.node_spec:
        if spec.HasField("multislice_params"):
            prefix = spec.multislice_params.node_id_prefix or queued_id
            ids = [f"{prefix}-{index}" for index in range(spec.multislice_params.node_count)]
        else:
            ids = [spec.node_id]
        result.update({f"{spec.parent}/nodes/{node_id}": spec.node for node_id in ids})
    return result


def tier(node: Any, queued: Any = None) -> str:
    """How a node was requested: `spot`, `guaranteed`, `reserved`, `preemptible`, `on-demand`."""
    if queued is not None:
        return str(queued.WhichOneof("tier") or "on-demand")
    scheduling = node.scheduling_config
    named = ("spot", "preemptible", "reserved")
    return next((name for name in named if getattr(scheduling, name)), "on-demand")


def chips(node_names_and_specs: dict[str, Any]) -> dict[catalog.AcceleratorFamily, int]:
    """The chips that nodes ask for, by family; the specs by full node name."""
    result: dict[catalog.AcceleratorFamily, int] = {}
    for name, spec in node_names_and_specs.items():
        accelerator = accelerator_type(spec, names.split(name)[0].zone)
        if accelerator is not None:
            result[accelerator.family] = result.get(accelerator.family, 0) + accelerator.chips
    return result


def start_window(queued: Any) -> tuple[float, float | None]:
    """Earliest and latest time (epoch seconds) at which nodes may be created; None: no limit."""
    policy, created = queued.queueing_policy, seconds(queued.create_time)
    match policy.WhichOneof("start_timing_constraints"):
        case "valid_until_duration":
            return created, created + seconds(policy.valid_until_duration)
        case "valid_until_time":
            return created, seconds(policy.valid_until_time)
        case "valid_after_duration":
            return created + seconds(policy.valid_after_duration), None
        case "valid_after_time":
            return seconds(policy.valid_after_time), None
        case "valid_interval":
            interval = policy.valid_interval
            latest = seconds(interval.end_time) if interval.HasField("end_time") else None
            return seconds(interval.start_time), latest
    return created, None
