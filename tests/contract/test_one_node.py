"""The older way to ask, `tpu.api=nodes`. The tests share one TPU, and the last one deletes it."""

from __future__ import annotations

import pytest

from tests.contract.cloud import Cloud
from tpu_lifecycle.service.backend import TpuConflictError, TpuState, TpuUnavailableError


@pytest.fixture(scope="module")
def operation() -> list[str]:
    """The operation of the creation, once it has begun."""
    return []


@pytest.fixture(scope="module")
def tpu(cloud: Cloud, operation: list[str]) -> TpuState:
    request = cloud.request(api="nodes")
    operation.append(cloud.backend.create(request))
    return cloud.until_ready(request.name)


def test_it_is_there_without_a_queued_resource(cloud: Cloud, tpu: TpuState) -> None:
    assert (tpu.queued_resource, tpu.node) == (None, "READY")
    assert tpu.workers >= 1


def test_its_creation_went_well(cloud: Cloud, tpu: TpuState, operation: list[str]) -> None:
    assert cloud.backend.creation_error(operation[0], 1) is None


def test_asking_again_finds_the_name_taken(cloud: Cloud, tpu: TpuState) -> None:
    with pytest.raises(TpuConflictError):
        cloud.backend.create(cloud.request(tpu.name, api="nodes"))
    assert cloud.backend.describe(tpu.name).is_ready


def test_it_is_found_by_its_label_alone(cloud: Cloud, tpu: TpuState) -> None:
    found = cloud.until(lambda: cloud.backend.list_zone(cloud.zone, cloud.labels))
    assert [state.name for state in found] == [tpu.name]


def test_it_goes_and_stays_away(cloud: Cloud, tpu: TpuState) -> None:
    cloud.backend.delete(tpu.name)
    try:
        cloud.backend.delete(tpu.name)
    except TpuUnavailableError:
        assert cloud.backend.describe(tpu.name).gone_reason is not None
    cloud.until_gone(tpu.name)
    assert cloud.backend.list_zone(cloud.zone, cloud.labels) == []
