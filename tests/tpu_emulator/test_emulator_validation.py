from __future__ import annotations

from typing import Any

import grpc
import pytest
from google.api_core import exceptions
from google.cloud.location import locations_pb2

from tests.tpu_emulator.support import Body, Tpu, node_body, unique


@pytest.mark.parametrize(
    "resource_id", ["", "Upper", "1digit", "-hyphen", "ends-", "dot.ted", "a" * 64]
)
def test_malformed_ids_are_refused(tpu: Tpu, resource_id: str) -> None:
    with pytest.raises(exceptions.InvalidArgument, match="queued_resource_id"):
        tpu.create_queued(resource_id)
    with pytest.raises(exceptions.InvalidArgument, match="node_id"):
        tpu.create_node(resource_id)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"accelerator_type": "v4-8"}, "not available in us-central1-a.*v5litepod-8"),
        ({"accelerator_type": "v99-8"}, "v99-8"),
        ({"accelerator_type": ""}, "exactly one of accelerator_type"),
        ({"accelerator_config": {"type_": "V5P", "topology": "2x2x1"}}, "exactly one of"),
        ({"runtime_version": ""}, "runtime_version"),
        ({"runtime_version": "v2-alpha-tpuv6e"}, "runtime_version.*v2-alpha-tpuv5-lite"),
        ({"labels": {"Upper": "x"}}, "label key 'Upper'"),
        ({"labels": {"key": "has space"}}, "label 'key'"),
        ({"labels": {"key": "x" * 64}}, "label 'key'"),
        ({"labels": {f"k{i}": "" for i in range(65)}}, "65 labels"),
        ({"description": "x" * 513}, "description"),
        ({"metadata": {"startup-script": "x" * 262145}}, "262145 bytes"),
        ({"network_config": {"network": "a"}, "network_configs": [{"network": "b"}]}, "exclusive"),
        ({"scheduling_config": {"preemptible": True, "spot": True}}, "exclusive"),
    ],
)
def test_bad_nodes_are_refused(tpu: Tpu, fields: Body, message: str) -> None:
    with pytest.raises(exceptions.InvalidArgument, match=message):
        tpu.create_node(unique(), node_body() | fields)
    if "scheduling_config" not in fields:
        with pytest.raises(exceptions.InvalidArgument, match=message):
            tpu.create_queued(unique(), node_body() | fields)


def _set_spec(request: Body, **fields: Any) -> None:
    request["queued_resource"]["tpu"]["node_spec"][0].update(fields)


def test_bad_queued_resources_are_refused(tpu: Tpu) -> None:
    def refused(message: str, request: Body) -> None:
        with pytest.raises(exceptions.InvalidArgument, match=message):
            tpu.client.create_queued_resource(request=request)

    refused("node_spec is required", tpu.queued_request(unique()) | {"queued_resource": {}})
    refused("UUID", tpu.queued_request(unique()) | {"request_id": "again"})
    request = tpu.queued_request(unique())
    _set_spec(request, parent=tpu.emulator.parent("us-west4-a"))
    refused("node_spec.parent", request)
    request = tpu.queued_request(unique(), node_body(scheduling_config={"spot": True}))
    refused("tier belongs to the queued", request)
    request = tpu.queued_request(unique())
    _set_spec(request, node_id="Bad_Id")
    refused("node_spec.node_id", request)
    request = tpu.queued_request(unique())
    specs = request["queued_resource"]["tpu"]["node_spec"]
    specs.append(specs[0])
    refused("must differ", request)
    request = tpu.queued_request(unique())
    del request["queued_resource"]["tpu"]["node_spec"][0]["node_id"]
    refused("node_id or multislice_params", request)
    _set_spec(request, multislice_params={"node_count": 1})
    refused("greater than 1", request)


def test_refused_requests_leave_nothing_behind(tpu: Tpu) -> None:
    name = unique()
    with pytest.raises(exceptions.InvalidArgument):
        tpu.create_queued(name, node_body(runtime_version="none"))
    tpu.active(name)


@pytest.mark.parametrize(
    ("parent", "error"),
    [
        ("projects/local-project/locations/moon-1", exceptions.PermissionDenied),
        ("projects/other/locations/us-central1-a", exceptions.PermissionDenied),
        ("projects/local-project/locations/-", exceptions.PermissionDenied),
        ("us-central1-a", exceptions.InvalidArgument),
        ("projects/local-project/locations/us-central1-a/nodes/n", exceptions.InvalidArgument),
    ],
)
def test_foreign_parents_are_refused(tpu: Tpu, parent: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        tpu.client.list_nodes(parent=parent)


def test_a_name_of_another_collection_is_refused(tpu: Tpu) -> None:
    with pytest.raises(exceptions.InvalidArgument, match="nodes/<id>"):
        tpu.client.get_node(name=tpu.queued_name("n"))


def test_the_catalog_lists_types_versions_and_zones(tpu: Tpu) -> None:
    types = {item.type_ for item in tpu.client.list_accelerator_types(parent=tpu.parent)}
    assert {"v5litepod-1", "v5litepod-32", "v5p-8", "v3-8"} <= types
    found = tpu.client.get_accelerator_type(name=f"{tpu.parent}/acceleratorTypes/v5litepod-16")
    assert found.accelerator_configs[0].topology == "4x4"
    with pytest.raises(exceptions.NotFound):
        tpu.client.get_accelerator_type(name=f"{tpu.parent}/acceleratorTypes/v4-8")

    pager = tpu.client.list_runtime_versions(request={"parent": tpu.parent, "page_size": 3})
    versions = [item.version for item in pager]
    assert len(versions) > 3
    assert "v2-alpha-tpuv5-lite" in versions
    name = f"{tpu.parent}/runtimeVersions/tpu-ubuntu2204-base"
    assert tpu.client.get_runtime_version(name=name).name == name

    project = tpu.parent.partition("/locations")[0]
    locations = tpu.client.list_locations(locations_pb2.ListLocationsRequest(name=project))
    assert "us-central2-b" in {item.location_id for item in locations.locations}
    location = tpu.client.get_location(locations_pb2.GetLocationRequest(name=tpu.parent))
    assert location.location_id == "us-central1-a"
    with pytest.raises(exceptions.InvalidArgument, match="filter"):
        tpu.client.list_accelerator_types(request={"parent": tpu.parent, "filter": "type=v2-8"})


def test_methods_that_are_not_emulated_say_so(tpu: Tpu) -> None:
    with pytest.raises(exceptions.MethodNotImplemented):
        tpu.client.get_guest_attributes(request={"name": tpu.node_name("n")})
    with grpc.insecure_channel(tpu.emulator.endpoint) as channel:
        call = channel.unary_unary("/google.cloud.tpu.v2.Tpu/Nonsense", bytes, bytes)
        with pytest.raises(grpc.RpcError) as caught:
            call(b"", timeout=20)
    assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED
    assert tpu.admin.calls("Nonsense")[-1]["code"] == "UNIMPLEMENTED"
