"""The TPU service as the life cycle uses it: its requests, answers and errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from pipeline_config.accelerators import chips


class TpuError(RuntimeError):
    """A request to the TPU service failed. ``retryable`` says whether the same may work later."""

    retryable = False


class TpuCapacityError(TpuError):
    """The zone has no TPU of this type available now: ask another zone, or later."""

    retryable = True


class TpuQuotaError(TpuError):
    """The project's quota is used up here: ask another zone, or after a release."""

    retryable = True


class TpuQuotaTooSmallError(TpuError):
    """The project's whole quota here is less than the TPU: ask another zone, or for quota."""


class TpuPermissionError(TpuError):
    """The account may not do this."""


class TpuAccessError(TpuPermissionError):
    """The account may not do this now, or its credentials do not work.

    Raised for a read or a deletion, and for credentials: a role that is being changed, or a token
    that could not be renewed, says nothing about the TPU.
    """

    retryable = True


class TpuInvalidRequestError(TpuError):
    """The request can never work, such as an accelerator type that the zone does not have."""


class TpuNotFoundError(TpuError):
    """There is no such resource."""


class TpuConflictError(TpuError):
    """The name is taken."""


class TpuUnavailableError(TpuError):
    """The service did not answer, or is busy with this resource: try again."""

    retryable = True


def error_of(cause: str, text: str) -> TpuError:
    """Return the error whose class and message a record has kept."""
    kinds = (*TpuError.__subclasses__(), *TpuPermissionError.__subclasses__())
    kind = next((kind for kind in kinds if kind.__name__ == cause), TpuError)
    return kind(text)


@dataclass(frozen=True, order=True)
class TpuName:
    """Zone and id of a TPU: the id of queued resource and node, unique in its zone.

    With several ``slices`` there is a node for each, whose id has a number at the end. The number
    of slices is not compared.
    """

    zone: str
    resource_id: str
    slices: int = field(default=1, compare=False)

    @property
    def node_ids(self) -> tuple[str, ...]:
        """Return the ids of its nodes."""
        if self.slices == 1:
            return (self.resource_id,)
        return tuple(f"{self.resource_id}-{index}" for index in range(self.slices))

    def __str__(self) -> str:
        return f"{self.resource_id} in {self.zone}"


@dataclass(frozen=True)
class TpuRequest:
    """A TPU to ask for; fields are named as in the Cloud TPU API.

    ``token`` distinguishes a retry of this request from another request for the same name. ``api``
    is ``queued-resources`` or ``nodes``. ``data_disks`` are attached read-only.
    """

    name: TpuName
    accelerator_type: str
    runtime_version: str
    provisioning_model: str
    queue_timeout_seconds: int
    labels: Mapping[str, str]
    metadata: Mapping[str, str] = field(repr=False)
    token: str = ""
    api: str = "queued-resources"
    reservation_name: str | None = None
    network: str | None = None
    subnetwork: str | None = None
    enable_external_ips: bool = False
    service_account: str | None = None
    network_tags: Sequence[str] = ()
    data_disks: Sequence[str] = ()

    @property
    def chips(self) -> int:
        """Return how many chips all slices have."""
        return chips(self.accelerator_type) * self.name.slices


# Neither a queued resource nor a node ever comes back from these states to running a job.
GONE_QUEUE_STATES = frozenset({"SUSPENDING", "SUSPENDED", "FAILED", "DELETING"})
GONE_NODE_STATES = frozenset(
    {
        "PREEMPTED",
        "TERMINATED",
        "STOPPED",
        "STOPPING",
        "DELETING",
        "HIDING",
        "HIDDEN",
        "UNKNOWN",
    }
)


@dataclass(frozen=True)
class TpuState:
    """The service's view of one TPU. A state of None means: no such resource.

    ``queued_resource`` and ``node`` are state names of the Cloud TPU API. For several slices,
    ``node`` is the worst state among them, ``missing`` the number of slices without a node, and
    ``workers`` the number of hosts of all slices.
    """

    name: TpuName
    queued_resource: str | None = None
    node: str | None = None
    health: str = ""
    workers: int = 0
    missing: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    taken_by_service: bool = False
    fault: TpuError | None = None
    created: datetime | None = None
    node_created: datetime | None = None

    @property
    def exists(self) -> bool:
        """Return whether any part of it exists, in any state."""
        return self.queued_resource is not None or self.node is not None

    @property
    def lacks_parts(self) -> bool:
        """Return whether a part is missing that should exist; a single answer may be wrong."""
        lost_its_node = self.queued_resource == "ACTIVE" and self.node is None
        return not self.exists or lost_its_node or bool(self.missing)

    @property
    def is_ready(self) -> bool:
        """Return whether its VMs are up."""
        return self.node == "READY" and not self.missing and self.gone_reason is None

    @property
    def was_taken(self) -> bool:
        """Return whether the service has granted it and taken it away again."""
        suspended = self.queued_resource in ("SUSPENDING", "SUSPENDED") and self.taken_by_service
        return suspended or self.node in ("PREEMPTED", "TERMINATED")

    @property
    def gone_reason(self) -> str | None:
        """Return why no job can run on it any more, or None when one can or will.

        No single sign is reliable: a preempted node is not always PREEMPTED, it may just vanish.
        """
        cause = f": {self.fault}" if self.fault else ""
        if not self.exists:
            return f"it no longer exists{cause}"
        if self.queued_resource in GONE_QUEUE_STATES:
            by = " by the service" if self.taken_by_service else ""
            return f"its queued resource is {self.queued_resource}{by}{cause}"
        if self.node in GONE_NODE_STATES:
            return f"its node is {self.node}"
        if self.queued_resource == "ACTIVE" and self.node is None:
            return "its node no longer exists"
        if self.queued_resource == "ACTIVE" and self.missing:
            return f"{self.missing} of its {self.name.slices} nodes no longer exist"
        return None

    def describe(self) -> str:
        """Return the states in words, for logs."""
        queued = self.queued_resource or "absent"
        return f"queued resource {queued}, node {self.node or 'absent'}"


@dataclass(frozen=True)
class ServiceFacts:
    """Constant facts about a TPU service, for checks and their advice.

    :param title: name of the service in sentences.
    :param apis: Google Cloud APIs that have to be enabled.
    :param role: that an account needs to read, create and delete.
    :param permissions: of that role that are used.
    :param console: address of a TPU's page, with ``{project}``, ``{zone}`` and ``{id}``; empty:
        there is none.
    :param quota_api: API whose quota metrics count chips; None: unknown.
    :param quota_names: names of generations in these metrics, where they differ from those of
        accelerator types.
    :param image_families: generation that a runtime version boots on, where it is only one.
    :param bare_images: prefixes of the runtime versions without a trainer, which need
        ``tpu.container_image``.
    :param list_zones: command that lists the zones.
    :param list_types: command that lists a zone's accelerator types; ``{zone}`` stands for the
        zone.
    :param list_images: command that lists a zone's runtime versions.
    """

    title: str
    apis: Sequence[str]
    role: str
    permissions: Sequence[str]
    list_zones: str
    list_types: str
    list_images: str
    console: str = ""
    quota_api: str | None = None
    quota_names: Mapping[str, str] = field(default_factory=dict)
    image_families: Mapping[str, str] = field(default_factory=dict)
    bare_images: Sequence[str] = ()


class TpuBackend(Protocol):
    """A TPU service. Every call is bounded in time and raises only :class:`TpuError`.

    Reads and deletions may retry internally; ``create`` sends exactly one request, because its
    caller has to check for the tombstone around each.
    """

    @property
    def vm_endpoint(self) -> str:
        """Return the service's address for the TPU's own VM; empty: the public address."""
        ...

    @property
    def project_id(self) -> str:
        """Return the project whose TPUs these are."""
        ...

    def resource_path(self, name: TpuName, api: str = "queued-resources") -> str:
        """Return the full name of the resource that the TPU's own VM deletes."""
        ...

    def vm_deletions(self, name: TpuName, api: str = "queued-resources") -> Sequence[str]:
        """Return the URLs by which the TPU's own VM deletes it without a client library.

        The VM sends DELETE with the token of its account to these URLs, in this order until one is
        accepted; ``{node}`` in them stands for the VM's own node. Empty: the service accepts no
        such requests, like an emulator.
        """
        ...

    def create(self, request: TpuRequest) -> str:
        """Request a TPU; return the service's operation when it has accepted the request.

        :raises TpuConflictError: the name is taken, perhaps by this very request.
        :raises TpuUnavailableError: no answer; the request may still have been accepted.
        """
        ...

    def creation_error(self, operation: str, chips: int) -> TpuError | None:
        """Return why a creation that was accepted failed after all; None while that is unknown.

        :param chips: how many were requested.
        """
        ...

    def describe(self, name: TpuName) -> TpuState:
        """Return the present state; an absent TPU is a state, not an error."""
        ...

    def delete(self, name: TpuName) -> None:
        """Request the deletion of the TPU of this name; an absent TPU is no error.

        Returns before it is gone: poll :meth:`describe`.

        :raises TpuUnavailableError: no answer, or its present state does not allow it yet.
        """
        ...

    def list_zone(self, zone: str, labels: Mapping[str, str]) -> list[TpuState]:
        """Return every TPU of a zone that carries all the labels.

        :raises TpuUnavailableError: the service could not list everything; the list is never
            incomplete.
        """
        ...

    def zones(self) -> list[str]:
        """Return the names of all zones in which the project can rent TPUs."""
        ...

    def close(self) -> None:
        """Close the connection; no calls may follow."""
        ...

    def accelerator_types(self, zone: str) -> list[str]:
        """Return what a zone offers, such as ``v5litepod-8``; none may be available now."""
        ...

    def runtime_versions(self, zone: str) -> list[str]:
        """Return the software images that TPU VMs of a zone can boot."""
        ...
