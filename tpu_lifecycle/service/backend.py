"""What the life cycle asks of a TPU service, its answers, and its errors."""

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
    """The zone has no TPU of this type to give now: another zone, or later."""

    retryable = True


class TpuQuotaError(TpuError):
    """The project's quota is used up here: another zone, or when something was given back."""

    retryable = True


class TpuQuotaTooSmallError(TpuError):
    """The project's whole quota here is less than the TPU: another zone, or ask for quota."""


class TpuPermissionError(TpuError):
    """The account may not do this."""


class TpuAccessError(TpuPermissionError):
    """The account may not do this now, or nobody knows who it is.

    Of a read or a deletion, and of credentials: a role that is being changed, or a token that could
    not be renewed, says nothing of the TPU.
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
    """Return an error again of which a record has kept class and message."""
    kinds = (*TpuError.__subclasses__(), *TpuPermissionError.__subclasses__())
    kind = next((kind for kind in kinds if kind.__name__ == cause), TpuError)
    return kind(text)


@dataclass(frozen=True, order=True)
class TpuName:
    """Where a TPU is: the id of queued resource and node, unique in its zone.

    With several ``slices`` there is a node for each, whose ids have a number at the end. How many
    they are tells nothing apart.
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

    ``token`` tells a repetition of this request from another one for the same name. ``api`` is
    ``queued-resources`` or ``nodes``. ``data_disks`` are attached read-only.
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
    """What the service says of one TPU. A state of None means: no such resource.

    ``queued_resource`` and ``node`` are state names of the Cloud TPU API. Of several slices,
    ``node`` is the state of the one that is worst off, ``missing`` how many have no node, and
    ``workers`` the hosts of all.
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
        """Return whether anything of it is there, in whatever state."""
        return self.queued_resource is not None or self.node is not None

    @property
    def lacks_parts(self) -> bool:
        """Return whether something is not there that should be; one answer may err."""
        lost_its_node = self.queued_resource == "ACTIVE" and self.node is None
        return not self.exists or lost_its_node or bool(self.missing)

    @property
    def is_ready(self) -> bool:
        """Return whether its VMs are up."""
        return self.node == "READY" and not self.missing and self.gone_reason is None

    @property
    def was_taken(self) -> bool:
        """Return whether the service has given it and taken it away again."""
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
    """What is so of a TPU service at all times, for checks and their advice.

    :param title: for sentences.
    :param apis: of Google Cloud that have to be enabled.
    :param role: which an account needs to look, create and delete.
    :param permissions: of that role which are used.
    :param console: address of a TPU's page, with ``{project}``, ``{zone}`` and ``{id}``; empty:
        there is none.
    :param quota_api: whose quota metrics count chips; None: they are not known.
    :param quota_names: names of generations in these metrics, where they differ from those of
        accelerator types.
    :param image_families: which generation a runtime version boots on, where it is one alone.
    :param bare_images: how the names of runtime versions begin in which no trainer is, so that
        ``tpu.container_image`` is needed.
    :param list_zones: command that lists the zones.
    :param list_types: the same of a zone's accelerator types; ``{zone}`` stands for it.
    :param list_images: the same of runtime versions.
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

    Reads and deletions may try again by themselves; ``create`` sends exactly one request, because
    its caller has to look for the tombstone around each.
    """

    @property
    def vm_endpoint(self) -> str:
        """Return where the TPU's own VM reaches the service; empty: at its public address."""
        ...

    @property
    def project_id(self) -> str:
        """Return the project whose TPUs these are."""
        ...

    def resource_path(self, name: TpuName, api: str = "queued-resources") -> str:
        """Return the full name of what the TPU's own VM deletes to give the TPU back."""
        ...

    def vm_deletions(self, name: TpuName, api: str = "queued-resources") -> Sequence[str]:
        """Return how the TPU's own VM gives it back without a client library.

        URLs to which it sends DELETE with the token of its account, in this order until one is
        accepted; ``{node}`` in them stands for the VM's own node. Empty: the service takes no such
        requests, as an emulator.
        """
        ...

    def create(self, request: TpuRequest) -> str:
        """Ask for a TPU; returns the service's operation when it has accepted the request.

        :raises TpuConflictError: the name is taken, perhaps by this very request.
        :raises TpuUnavailableError: no answer; the request may still have been accepted.
        """
        ...

    def creation_error(self, operation: str, chips: int) -> TpuError | None:
        """Return why a creation that was accepted failed after all; None while nobody knows.

        :param chips: how many were asked for.
        """
        ...

    def describe(self, name: TpuName) -> TpuState:
        """Return the present state; an absent TPU is a state, not an error."""
        ...

    def delete(self, name: TpuName) -> None:
        """Ask for the deletion of whatever has the name; an absent TPU is no error.

        Returns before it is gone: ask :meth:`describe`.

        :raises TpuUnavailableError: no answer, or its present state does not allow it yet.
        """
        ...

    def list_zone(self, zone: str, labels: Mapping[str, str]) -> list[TpuState]:
        """Return every TPU of a zone that carries all the labels.

        :raises TpuUnavailableError: the service could not look everywhere; never a shorter list.
        """
        ...

    def zones(self) -> list[str]:
        """Return the names of all zones in which the project can rent TPUs."""
        ...

    def close(self) -> None:
        """Let go of the connection; nothing is asked afterwards."""
        ...

    def accelerator_types(self, zone: str) -> list[str]:
        """Return what a zone offers, such as ``v5litepod-8``; there may be none to give now."""
        ...

    def runtime_versions(self, zone: str) -> list[str]:
        """Return the software images that TPU VMs of a zone can boot."""
        ...
