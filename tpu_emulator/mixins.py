"""The read-only catalog methods, `google.cloud.location` and `google.longrunning`."""

from __future__ import annotations

from typing import Any

from google.cloud.location import locations_pb2
from google.longrunning import operations_pb2

from tpu_emulator import catalog, paging
from tpu_emulator.errors import invalid_argument, not_found
from tpu_emulator.messages import AcceleratorType, Empty, RuntimeVersion, response_class
from tpu_emulator.names import Location, Names, split
from tpu_emulator.operations import Operations
from tpu_emulator.store import Store


class CatalogService:
    """Accelerator types, runtime versions and locations.

    Raises:
        ApiError: the error that the call answers with.
    """

    def __init__(self, names: Names) -> None:
        self._names = names

    def list_accelerator_types(self, request: Any) -> Any:
        """The zone's accelerator types, by name."""
        location = self._names.location(request.parent)
        _refuse_filter(request)
        types = [_accelerator_type(location, name) for name in sorted(catalog.ZONES[location.zone])]
        page, token = paging.page_of_list(types, request)
        return response_class("ListAcceleratorTypes")(accelerator_types=page, next_page_token=token)

    def get_accelerator_type(self, request: Any) -> Any:
        """One accelerator type of the zone."""
        location, name = split(self._names.resource(request.name, "acceleratorTypes"))
        if name not in catalog.ZONES[location.zone]:
            raise not_found(request.name)
        return _accelerator_type(location, name)

    def list_runtime_versions(self, request: Any) -> Any:
        """The zone's runtime versions, by name."""
        location = self._names.location(request.parent)
        _refuse_filter(request)
        versions = [
            _runtime_version(location, name)
            for name in catalog.zone_runtime_versions(location.zone)
        ]
        page, token = paging.page_of_list(versions, request)
        return response_class("ListRuntimeVersions")(runtime_versions=page, next_page_token=token)

    def get_runtime_version(self, request: Any) -> Any:
        """One runtime version of the zone."""
        location, name = split(self._names.resource(request.name, "runtimeVersions"))
        if name not in catalog.zone_runtime_versions(location.zone):
            raise not_found(request.name)
        return _runtime_version(location, name)

    def list_locations(self, request: Any) -> Any:
        """Every zone of the project."""
        project = self._names.project(request.name).rpartition("/")[2]
        _refuse_filter(request)
        locations = [_location(Location(project, zone)) for zone in sorted(catalog.ZONES)]
        page, token = paging.page_of_list(locations, request)
        return locations_pb2.ListLocationsResponse(locations=page, next_page_token=token)

    def get_location(self, request: Any) -> Any:
        """One zone."""
        return _location(self._names.location(request.name))


class OperationsService:
    """The long-running operations of a location.

    Raises:
        ApiError: the error that the call answers with.
    """

    def __init__(self, store: Store, operations: Operations, names: Names) -> None:
        self._store = store
        self._operations = operations
        self._names = names

    def get_operation(self, request: Any) -> Any:
        """The operation, finished or not."""
        name = self._names.resource(request.name, "operations")
        operation = self._store.operations.get(name)
        if operation is None:
            raise not_found(name)
        return operation

    def list_operations(self, request: Any) -> Any:
        """The operations of a location."""
        location = self._names.location(request.name.removesuffix("/operations"))
        _refuse_filter(request)
        found, token = paging.page(self._store.operations, str(location), request)
        return operations_pb2.ListOperationsResponse(operations=found, next_page_token=token)

    def cancel_operation(self, request: Any) -> Any:
        """Records the request to cancel; the operation continues."""
        with self._store.transaction():
            self._operations.request_cancel(self.get_operation(request).name)
        return Empty()

    def delete_operation(self, request: Any) -> Any:
        """Deletes the record of the operation; its effect stays."""
        with self._store.transaction():
            self._store.operations.remove(self.get_operation(request).name)
        return Empty()


def _refuse_filter(request: Any) -> None:
    """Refuses a filter: silently ignoring it would return wrong results."""
    if request.filter:
        raise invalid_argument(f"filter {request.filter!r}: this emulator implements no filters")


def _accelerator_type(location: Location, name: str) -> Any:
    accelerator = catalog.ACCELERATOR_TYPES[name]
    message = AcceleratorType(name=location.child("acceleratorTypes", name), type_=name)
    message.accelerator_configs.add(type_=accelerator.family, topology=accelerator.topology)
    return message


def _runtime_version(location: Location, name: str) -> Any:
    return RuntimeVersion(name=location.child("runtimeVersions", name), version=name)


def _location(location: Location) -> Any:
    return locations_pb2.Location(
        name=str(location), location_id=location.zone, display_name=location.zone
    )
