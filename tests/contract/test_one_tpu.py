"""What a TPU that runs has to keep. The tests share one, and the last one deletes it."""

from __future__ import annotations

import pytest
from google.api_core import exceptions

from pipeline_config.accelerators import chips
from tests.contract.cloud import ANOTHER, Cloud
from tpu_lifecycle.service.backend import TpuConflictError, TpuState, TpuUnavailableError


def test_it_is_active_with_a_node_of_the_same_name(cloud: Cloud, tpu: TpuState) -> None:
    # The node may be seen a moment before the queued resource follows.
    cloud.until(lambda: cloud.backend.describe(tpu.name).queued_resource == "ACTIVE")
    assert tpu.node == "READY"
    node = cloud.client.get_node(name=cloud.node(tpu.name))
    assert node.queued_resource.endswith(f"/queuedResources/{tpu.name.resource_id}")
    assert node.accelerator_type == cloud.accelerator_type
    assert tpu.node_created is not None


def test_it_has_an_endpoint_for_each_host(cloud: Cloud, tpu: TpuState) -> None:
    hosts = max(1, chips(cloud.accelerator_type) // 4) if chips(cloud.accelerator_type) > 8 else 1
    assert tpu.workers == hosts


def test_it_is_found_by_its_label_alone(cloud: Cloud, tpu: TpuState) -> None:
    found = cloud.until(lambda: cloud.backend.list_zone(cloud.zone, cloud.labels))
    assert [state.name for state in found] == [tpu.name]
    assert cloud.backend.list_zone(cloud.zone, cloud.labels | {"attempt": "2"}) == []


def test_the_same_request_again_makes_nothing_new(cloud: Cloud, tpu: TpuState) -> None:
    cloud.backend.create(cloud.request(tpu.name))
    again = cloud.backend.describe(tpu.name)
    assert (again.is_ready, again.node_created) == (True, tpu.node_created)


def test_another_request_for_the_name_is_a_conflict(cloud: Cloud, tpu: TpuState) -> None:
    with pytest.raises(TpuConflictError):
        cloud.backend.create(cloud.request(tpu.name, token=ANOTHER))
    assert cloud.backend.describe(tpu.name).is_ready


def test_it_is_not_deleted_without_force(cloud: Cloud, tpu: TpuState) -> None:
    with pytest.raises(exceptions.FailedPrecondition):
        cloud.client.delete_queued_resource(name=cloud.queued_resource(tpu.name))
    assert cloud.backend.describe(tpu.name).is_ready


def test_by_force_it_goes_with_its_node_and_stays_away(cloud: Cloud, tpu: TpuState) -> None:
    cloud.backend.delete(tpu.name)
    try:
        cloud.backend.delete(tpu.name)
    except TpuUnavailableError:
        # A service that is busy with the first deletion may say so, and no more than that.
        assert cloud.backend.describe(tpu.name).gone_reason is not None
    cloud.until_gone(tpu.name)
    assert cloud.backend.list_zone(cloud.zone, cloud.labels) == []
    with pytest.raises(exceptions.NotFound):
        cloud.client.get_node(name=cloud.node(tpu.name))
