"""The methods of `google.cloud.tpu.v2.Tpu` on queued resources and nodes."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from tpu_emulator import paging, resources, validation
from tpu_emulator.config import EmulatorConfig
from tpu_emulator.errors import (
    Refusal,
    already_exists,
    api_error,
    busy,
    failed_precondition,
    invalid_argument,
    not_found,
    quota_exceeded,
    stockout,
)
from tpu_emulator.faults import FAIL_OPERATION, QUOTA, STALE_LISTS, STOCKOUT, Faults
from tpu_emulator.lifecycle import Lifecycle
from tpu_emulator.messages import NodeState, QueueState, response_class
from tpu_emulator.names import Location, Names
from tpu_emulator.store import Store, Table

_RESETTABLE = (QueueState.ACTIVE, QueueState.SUSPENDED, QueueState.FAILED)
_DELETABLE_UNFORCED = (*resources.QUEUED, QueueState.FAILED, QueueState.SUSPENDED)
_WILL_HAVE_NODES = (QueueState.CREATING, QueueState.PROVISIONING)


class TpuService:
    """One method per RPC, from request message to response message.

    Raises:
        ApiError: the error that the call answers with.
    """

    def __init__(
        self, store: Store, lifecycle: Lifecycle, faults: Faults, config: EmulatorConfig
    ) -> None:
        self._store = store
        self._lifecycle = lifecycle
        self._faults = faults
        self._config = config
        self._names = Names(config.project)

    # Queued resources

    def create_queued_resource(self, request: Any) -> Any:
        """Queues a request; a known `request_id` returns the earlier operation."""
        location = self._names.location(request.parent)
        validation.check_id(request.queued_resource_id, "queued_resource_id")
        validation.check_request_id(request.request_id)
        queued = request.queued_resource
        queued.name = location.child("queuedResources", request.queued_resource_id)
        with self._store.transaction():
            replay = self._replay(request.request_id, "CreateQueuedResource", queued.name)
            if replay is not None:
                return replay
            validation.check_queued_resource(queued, location, self._config.reservation)
            if self._store.queued_resources.get(queued.name) is not None:
                raise already_exists(queued.name)
            self._check_node_names_free(resources.node_names(queued))
            self._check_quota(location, resources.node_names(queued))
            refusal = self._refusal("CreateQueuedResource", location)
            if refusal is None or refusal.shape != "sync":
                operation = self._lifecycle.queued_resources.create(queued, refusal)
                self._remember(request.request_id, "CreateQueuedResource", queued.name, operation)
                return operation
        # Raised out here: inside, the rollback would arm the fault again.
        raise refusal.error

    def get_queued_resource(self, request: Any) -> Any:
        """One queued resource in any state."""
        return self._get(self._store.queued_resources, "queuedResources", request.name)

    def list_queued_resources(self, request: Any) -> Any:
        """The queued resources of a zone in any state."""
        found, token = self._list("ListQueuedResources", self._store.queued_resources, request)
        return response_class("ListQueuedResources")(queued_resources=found, next_page_token=token)

    def delete_queued_resource(self, request: Any) -> Any:
        """Deletes a request; with `force` also its nodes."""
        self._names.resource(request.name, "queuedResources")
        validation.check_request_id(request.request_id)
        with self._store.transaction():
            replay = self._replay(request.request_id, "DeleteQueuedResource", request.name)
            if replay is not None:
                return replay
            queued = self._get(self._store.queued_resources, "queuedResources", request.name)
            self._check_deletable(queued, force=request.force)
            operation = self._lifecycle.queued_resources.delete(queued)
            self._remember(request.request_id, "DeleteQueuedResource", request.name, operation)
        return operation

    def reset_queued_resource(self, request: Any) -> Any:
        """Takes the nodes away and queues the request again."""
        with self._store.transaction():
            queued = self._get(self._store.queued_resources, "queuedResources", request.name)
            if queued.state.state not in _RESETTABLE:
                raise failed_precondition(
                    f"'{queued.name}' is {_state_name(queued)}; only an ACTIVE, SUSPENDED or "
                    "FAILED queued resource can be reset"
                )
            return self._lifecycle.queued_resources.reset(queued)

    # Nodes

    def create_node(self, request: Any) -> Any:
        """Creates a node without a queue."""
        location = self._names.location(request.parent)
        validation.check_id(request.node_id, "node_id")
        name = location.child("nodes", request.node_id)
        with self._store.transaction():
            validation.check_node(request.node, location)
            self._check_node_names_free([name])
            self._check_quota(location, {name: request.node})
            refusal = self._refusal("CreateNode", location)
            if refusal is None or refusal.shape != "sync":
                return self._lifecycle.nodes.create(request.node, name, refusal)
        raise refusal.error

    def get_node(self, request: Any) -> Any:
        """One node in any state."""
        return self._get(self._store.nodes, "nodes", request.name)

    def list_nodes(self, request: Any) -> Any:
        """The nodes of a zone in any state."""
        found, token = self._list("ListNodes", self._store.nodes, request)
        return response_class("ListNodes")(nodes=found, next_page_token=token)

    def delete_node(self, request: Any) -> Any:
        """Deletes a node and its VMs."""
        with self._store.transaction():
            node = self._get(self._store.nodes, "nodes", request.name)
            if node.state == NodeState.DELETING:
                raise busy(node.name, "DELETING")
            return self._lifecycle.nodes.delete(node)

    def stop_node(self, request: Any) -> Any:
        """Shuts the VM of a single-worker node down."""
        with self._store.transaction():
            node = self._switchable(request.name, NodeState.READY)
            return self._lifecycle.nodes.stop(node)

    def start_node(self, request: Any) -> Any:
        """Boots a stopped node again."""
        with self._store.transaction():
            node = self._switchable(request.name, NodeState.STOPPED)
            return self._lifecycle.nodes.start(node)

    def update_node(self, request: Any) -> Any:
        """Changes the fields that the update mask names."""
        paths = list(request.update_mask.paths)
        wrong = sorted(set(paths) - set(validation.UPDATABLE))
        if wrong or not paths:
            raise invalid_argument(
                f"update_mask {paths}: expected some of {', '.join(validation.UPDATABLE)}"
            )
        validation.check_labels(request.node.labels)
        validation.check_metadata(request.node.metadata)
        validation.check_description(request.node.description)
        with self._store.transaction():
            node = self._get(self._store.nodes, "nodes", request.node.name)
            if node.state not in (NodeState.READY, NodeState.STOPPED):
                raise failed_precondition(
                    f"'{node.name}' is {NodeState(node.state).name}; only a READY or STOPPED node "
                    "can be updated"
                )
            for path in paths:
                _copy_field(request.node, node, path)
            return self._lifecycle.nodes.update(node)

    # Helpers

    def _get(self, table: Table, collection: str, name: str) -> Any:
        found = table.get(self._names.resource(name, collection))
        if found is None:
            raise not_found(name)
        return found

    def _list(self, method: str, table: Table, request: Any) -> tuple[list[Any], str]:
        """A page of a list, in its past state if a fault makes lists stale."""
        location = self._names.location(request.parent)
        stale = self._faults.take(STALE_LISTS, method=method, zone=location.zone)
        if stale is None:
            return paging.page(table, str(location), request)
        return paging.page_of_list(table.at(time.time() - stale["lag"], str(location)), request)

    def _replay(self, request_id: str, method: str, target: str) -> Any | None:
        """The operation of an earlier call with this request id, even if it has ended since."""
        earlier = self._store.replayed(request_id, method) if request_id else None
        if earlier is None:
            return None
        if earlier["target"] != target:
            raise invalid_argument(
                f"request_id {request_id} was used for '{earlier['target']}', not '{target}'"
            )
        return self._store.operations.get(earlier["operation"])

    def _remember(self, request_id: str, method: str, target: str, operation: Any) -> None:
        if request_id:
            self._store.remember_request(request_id, method, target, operation.name)

    def _check_node_names_free(self, node_names: Iterable[str]) -> None:
        """Refuses a name that a node has, or that any undeleted request asks for."""
        claimed = {
            name: queued.name
            for queued in self._store.queued_resources.all()
            for name in resources.node_names(queued)
        }
        for name in node_names:
            if name in claimed or self._store.nodes.get(name) is not None:
                raise already_exists(name)

    def _check_quota(self, location: Location, wanted: dict[str, Any]) -> None:
        """Refuses more chips than the armed quota; everything that is not deleted counts."""
        for fault in self._faults.of_kind(QUOTA, location.zone):
            limit = fault["details"]
            used = self._used(location, limit["lag"])
            for family, chips in resources.chips(wanted).items():
                if limit["family"] == family.name and used.get(family, 0) + chips > limit["chips"]:
                    raise quota_exceeded(location.zone, family.name, limit["chips"])

    def _used(self, location: Location, lag: float) -> dict[Any, int]:
        """The chips that count, by family: of resources that exist or did `lag` seconds ago."""
        since, parent = time.time() - lag, str(location)
        specs = {node.name: node for node in self._store.nodes.since(since, parent)}
        for queued in self._store.queued_resources.since(since, parent):
            specs |= resources.node_names(queued)
        return resources.chips(specs)

    def _refusal(self, method: str, location: Location) -> Refusal | None:
        """The armed failure of the create, which this uses up, or None."""
        failure = self._faults.take(FAIL_OPERATION, method=method, zone=location.zone)
        if failure is not None:
            return Refusal("lro", api_error(failure["code"], failure["message"]))
        shortage = self._faults.take(STOCKOUT, zone=location.zone)
        return None if shortage is None else Refusal(shortage["shape"], stockout(location.zone))

    def _check_deletable(self, queued: Any, *, force: bool) -> None:
        state = queued.state.state
        if state == QueueState.DELETING:
            raise busy(queued.name, "DELETING")
        suspending = state == QueueState.SUSPENDING
        if suspending and self._config.delete_while_suspending == "refuse":
            raise failed_precondition(
                f"'{queued.name}' is SUSPENDING; it can be deleted when it is SUSPENDED"
            )
        if force or state in _DELETABLE_UNFORCED:
            return
        nodes = [name for name in resources.node_names(queued) if self._store.nodes.get(name)]
        if nodes or state in _WILL_HAVE_NODES:
            raise failed_precondition(
                f"'{queued.name}' is {_state_name(queued)} and has nodes {nodes}: delete them "
                "first, or set force"
            )

    def _switchable(self, name: str, state: NodeState) -> Any:
        """The node, if it can be stopped or started from this state."""
        node = self._get(self._store.nodes, "nodes", name)
        if node.queued_resource or len(node.network_endpoints) > 1:
            raise failed_precondition(
                f"'{name}' belongs to a queued resource or has several workers: it cannot be "
                "stopped or started"
            )
        if node.state != state:
            raise failed_precondition(
                f"'{name}' is {NodeState(node.state).name}, expected {state.name}"
            )
        return node


def _state_name(queued: Any) -> str:
    return QueueState(queued.state.state).name


def _copy_field(source: Any, target: Any, path: str) -> None:
    """Copies one updatable field, as UpdateNode's mask names it."""
    *parents, field = path.split(".")
    for parent in parents:
        source, target = getattr(source, parent), getattr(target, parent)
    target.ClearField(field)
    if isinstance(getattr(source, field), bool | str):
        setattr(target, field, getattr(source, field))
    else:
        getattr(target, field).MergeFrom(getattr(source, field))
