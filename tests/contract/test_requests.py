"""What can be asked without a TPU ever running."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from pipeline_store.formats import AttemptEvent, Released
from pipeline_store.layout import StoreLayout
from tests.contract.cloud import ANOTHER, Cloud
from tpu_lifecycle.control.provisioning import Provisioner
from tpu_lifecycle.control.release import release
from tpu_lifecycle.records.reservation import OpenReservation, ReleasedError, reserve
from tpu_lifecycle.service.backend import (
    TpuCapacityError,
    TpuConflictError,
    TpuError,
    TpuInvalidRequestError,
    TpuName,
    TpuNotFoundError,
    TpuPermissionError,
    TpuRequest,
    TpuState,
)
from tpu_lifecycle.service.cloud_tpu import CloudTpuBackend


@pytest.fixture
def waiting(cloud: Cloud) -> Iterator[TpuRequest]:
    """A request that the service has accepted and not served yet; skips if it is served at once."""
    with cloud.starving():
        request = cloud.request()
        cloud.backend.create(request)
        state = cloud.until(lambda: present(cloud, request.name))
        if state.node is not None:
            cloud.sweeper.delete([request.name])
            pytest.skip(f"{cloud.zone} gave a TPU at once, so that nothing waits")
        yield request
        cloud.sweeper.delete([request.name])


def present(cloud: Cloud, name: TpuName) -> TpuState | None:
    state = cloud.backend.describe(name)
    return state if state.exists else None


def test_an_absent_tpu_is_a_state_and_deleting_it_no_error(cloud: Cloud) -> None:
    name = cloud.new_name()
    cloud.backend.delete(name)
    assert cloud.backend.describe(name) == TpuState(name)


def test_an_unknown_type_can_never_work(cloud: Cloud) -> None:
    with pytest.raises(TpuInvalidRequestError) as raised:
        cloud.backend.create(cloud.request(accelerator_type="v5litepod-3"))
    assert not raised.value.retryable


def test_an_unknown_runtime_version_can_never_work(cloud: Cloud) -> None:
    with pytest.raises((TpuInvalidRequestError, TpuNotFoundError)) as raised:
        cloud.backend.create(cloud.request(runtime_version="no-such-version"))
    assert not raised.value.retryable


def test_a_zone_that_does_not_exist_is_refused_for_good(cloud: Cloud) -> None:
    name = replace(cloud.new_name(), zone="us-nowhere9-z")
    refusals = (TpuInvalidRequestError, TpuNotFoundError, TpuPermissionError)
    with pytest.raises(refusals) as raised:
        cloud.backend.create(cloud.request(name))
    assert not raised.value.retryable


def test_a_project_of_others_is_refused_for_good(cloud: Cloud) -> None:
    stranger = CloudTpuBackend(cloud.client, f"{cloud.project_id}-of-others")
    with pytest.raises(TpuPermissionError):
        stranger.create(cloud.request())
    with pytest.raises(TpuPermissionError):
        stranger.list_zone(cloud.zone, {})


def test_a_waiting_tpu_shows_its_labels(cloud: Cloud, waiting: TpuRequest) -> None:
    assert waiting.labels.items() <= cloud.backend.describe(waiting.name).labels.items()
    found = cloud.until(lambda: cloud.backend.list_zone(cloud.zone, cloud.labels))
    assert [state.name for state in found] == [waiting.name]


def test_the_same_request_again_makes_nothing_new(cloud: Cloud, waiting: TpuRequest) -> None:
    before = cloud.backend.describe(waiting.name)
    cloud.backend.create(waiting)
    assert cloud.backend.describe(waiting.name).created == before.created


def test_another_request_for_the_name_is_a_conflict(cloud: Cloud, waiting: TpuRequest) -> None:
    with pytest.raises(TpuConflictError):
        cloud.backend.create(replace(waiting, token=ANOTHER))


def test_a_waiting_tpu_can_be_deleted(cloud: Cloud, waiting: TpuRequest) -> None:
    cloud.backend.delete(waiting.name)
    cloud.until_gone(waiting.name)


def test_the_queue_deadline_is_kept_by_the_service(cloud: Cloud) -> None:
    with cloud.starving():
        request = cloud.request(queue_timeout_seconds=60 if cloud.is_real else 1)
        cloud.backend.create(request)
        end = cloud.until(lambda: ended_wait(cloud, request.name))
    cloud.sweeper.delete([request.name])
    if end.is_ready:
        pytest.skip(f"{cloud.zone} gave a TPU in time, so that no wait ran out")
    assert end.queued_resource == "FAILED"
    assert isinstance(end.fault, TpuCapacityError)


def ended_wait(cloud: Cloud, name: TpuName) -> TpuState | None:
    state = cloud.backend.describe(name)
    return state if state.is_ready or state.gone_reason else None


@pytest.fixture
def reservation(cloud: Cloud, store: StoreLayout) -> Iterator[OpenReservation]:
    opened = reserve(
        store,
        cloud.write_run(store).root,
        project_id=cloud.project_id,
        owner=cloud.owner,
        bundle_sha256="0" * 64,
    )
    yield opened
    release(opened, cloud.sweeper, reason="the test is over")
    assert all(AttemptEvent.GONE in record.marks for record in opened.attempts())


def provisioner(
    cloud: Cloud, store: StoreLayout, opened: OpenReservation, backend: Any
) -> Provisioner:
    return Provisioner(
        reservation=opened,
        store=store,
        backend=backend,
        launcher=lambda **_: {},
        sweeper=cloud.sweeper,
    )


def test_behind_the_tombstone_nothing_is_asked_for(
    cloud: Cloud, store: StoreLayout, reservation: OpenReservation
) -> None:
    reservation.release("test")
    with pytest.raises(ReleasedError):
        provisioner(cloud, store, reservation, cloud.backend).obtain()
    assert reservation.attempts() == []


class ReleasedMeanwhile:
    """The cloud, in which the teardown leaves its tombstone while a create call is under way."""

    def __init__(self, cloud: Cloud, opened: OpenReservation) -> None:
        self._backend, self._opened = cloud.backend, opened

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def create(self, request: TpuRequest) -> str:
        operation = self._backend.create(request)
        self._opened.release("the teardown ran")
        return operation


def test_a_tombstone_that_appears_during_the_call_undoes_it(
    cloud: Cloud, store: StoreLayout, reservation: OpenReservation
) -> None:
    backend = ReleasedMeanwhile(cloud, reservation)
    with cloud.starving(), pytest.raises(ReleasedError):
        provisioner(cloud, store, reservation, backend).obtain()
    assert Released.load(reservation.layout.released).released <= datetime.now(UTC)
    assert not cloud.backend.describe(reservation.attempt(1).name).exists


def test_errors_say_what_was_asked(cloud: Cloud) -> None:
    with pytest.raises(TpuError, match="CreateQueuedResource"):
        cloud.backend.create(cloud.request(accelerator_type="v5litepod-3"))
