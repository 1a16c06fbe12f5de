"""What a create or update request must satisfy before anything happens.

Where the behavior of the real service is unknown, the stricter interpretation applies.
"""

from __future__ import annotations

import re
import uuid
from typing import Any

from tpu_emulator import catalog, resources
from tpu_emulator.errors import ApiError, invalid_argument, not_found
from tpu_emulator.names import Location

_ID = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_LABEL_KEY = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_LABEL_VALUE = re.compile(r"[a-z0-9_-]{0,63}")
_MAX_LABELS = 64
_MAX_DESCRIPTION = 512
_MAX_METADATA_VALUE = 256 * 1024
_MAX_METADATA = 512 * 1024
UPDATABLE = ("description", "tags", "labels", "metadata", "network_config.enable_external_ips")
"""Paths that the update mask of UpdateNode may name."""


def check_id(value: str, field: str) -> None:
    """Checks the id of a new node or queued resource.

    Raises:
        ApiError: INVALID_ARGUMENT.
    """
    if not _ID.fullmatch(value):
        raise invalid_argument(
            f"Invalid {field} {value!r}: expected 1 to 63 characters of [a-z0-9-], starting with "
            "a letter and not ending with a hyphen"
        )


def check_request_id(value: str) -> None:
    """Checks that a request id is a UUID (or absent).

    Raises:
        ApiError: INVALID_ARGUMENT.
    """
    if value:
        try:
            uuid.UUID(value)
        except ValueError:
            raise invalid_argument(f"Invalid request_id {value!r}: expected a UUID") from None


def check_node(node: Any, location: Location) -> None:
    """Checks the node of a create request.

    Raises:
        ApiError: INVALID_ARGUMENT.
    """
    accelerator = _accelerator(node, location.zone)
    if node.runtime_version not in accelerator.runtime_versions:
        raise invalid_argument(
            f"Invalid runtime_version {node.runtime_version!r} for {accelerator.name}: expected "
            f"one of {', '.join(accelerator.runtime_versions)}"
        )
    if node.HasField("network_config") and node.network_configs:
        raise invalid_argument("network_config and network_configs are mutually exclusive")
    if sum((node.scheduling_config.preemptible, node.scheduling_config.spot)) > 1:
        raise invalid_argument("scheduling_config: preemptible and spot are mutually exclusive")
    check_description(node.description)
    check_labels(node.labels)
    check_metadata(node.metadata)


def check_queued_resource(queued: Any, location: Location, reservations: tuple[str, ...]) -> None:
    """Checks the body of CreateQueuedResource; its name must be set.

    Raises:
        ApiError: INVALID_ARGUMENT, or NOT_FOUND for a reservation that does not exist.
    """
    if not queued.tpu.node_spec:
        raise invalid_argument("queued_resource.tpu.node_spec is required")
    for spec in queued.tpu.node_spec:
        _check_spec(spec, location)
    spec_count = sum(
        spec.multislice_params.node_count if spec.HasField("multislice_params") else 1
        for spec in queued.tpu.node_spec
    )
    if len(resources.node_names(queued)) != spec_count:
        raise invalid_argument("node_spec: the node ids of one request must differ")
    if queued.reservation_name and queued.reservation_name.rpartition("/")[2] not in reservations:
        raise not_found(queued.reservation_name)
    earliest, latest = resources.start_window(queued)
    if latest is not None and latest < earliest:
        raise invalid_argument("queueing_policy: the end of the window is before its start")


def check_labels(labels: Any) -> None:
    """Checks number, keys and values of labels.

    Raises:
        ApiError: INVALID_ARGUMENT.
    """
    if len(labels) > _MAX_LABELS:
        raise invalid_argument(f"{len(labels)} labels; at most {_MAX_LABELS} are allowed")
    for key, value in labels.items():
        if not _LABEL_KEY.fullmatch(key):
            raise invalid_argument(
                f"Invalid label key {key!r}: expected a lower-case letter, then at most 62 "
                "characters of [a-z0-9_-]"
            )
        if not _LABEL_VALUE.fullmatch(value):
            raise invalid_argument(
                f"Invalid value {value!r} of label {key!r}: expected at most 63 characters of "
                "[a-z0-9_-]"
            )


def check_metadata(entries: Any) -> None:
    """Checks the size of the metadata, in bytes of UTF-8.

    Raises:
        ApiError: INVALID_ARGUMENT.
    """
    sizes = {key: len(value.encode()) for key, value in entries.items()}
    for key, size in sizes.items():
        if size > _MAX_METADATA_VALUE:
            raise invalid_argument(
                f"Value of metadata key {key!r} has {size} bytes; limit {_MAX_METADATA_VALUE}"
            )
    if sum(sizes.values()) > _MAX_METADATA:
        raise invalid_argument(f"metadata has {sum(sizes.values())} bytes; limit {_MAX_METADATA}")


def check_description(text: str) -> None:
    """Checks the length of a description.

    Raises:
        ApiError: INVALID_ARGUMENT.
    """
    if len(text) > _MAX_DESCRIPTION:
        raise invalid_argument(f"description has {len(text)} characters; limit {_MAX_DESCRIPTION}")


def _accelerator(node: Any, zone: str) -> catalog.AcceleratorType:
    if bool(node.accelerator_type) == node.HasField("accelerator_config"):
        raise invalid_argument("exactly one of accelerator_type, accelerator_config is required")
    accelerator = resources.accelerator_type(node, zone)
    if accelerator is None:
        asked = node.accelerator_type or str(node.accelerator_config).replace("\n", " ").strip()
        raise invalid_argument(
            f"Accelerator type {asked!r} is not available in {zone}: expected one of "
            f"{', '.join(catalog.ZONES[zone])}"
        )
    return accelerator


def _check_spec(spec: Any, location: Location) -> None:
    if spec.parent != str(location):
        raise invalid_argument(f"node_spec.parent {spec.parent!r} differs from {str(location)!r}")
    match spec.WhichOneof("name_strategy"):
        case "node_id":
            check_id(spec.node_id, "node_spec.node_id")
        case "multislice_params":
            if spec.multislice_params.node_count < 2:
                raise invalid_argument("multislice_params.node_count must be greater than 1")
            if spec.multislice_params.node_id_prefix:
                check_id(spec.multislice_params.node_id_prefix, "multislice_params.node_id_prefix")
        case _:
            raise invalid_argument("node_spec needs node_id or multislice_params")
    if spec.node.HasField("scheduling_config"):
        raise invalid_argument(
            "node_spec.node.scheduling_config is not allowed: the tier belongs to the queued "
            "resource (spot, guaranteed)"
        )
    try:
        check_node(spec.node, location)
    except ApiError as error:
        raise ApiError(error.code, f"node_spec.node: {error.message}") from error
