"""What the TPU service would refuse is said before anything is spent; asked over real gRPC."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from pipeline_config import load_preset, with_overrides
from preflight import findings
from preflight.cloud.tpu_service import read_offer, tpu_rows
from tpu_emulator.testing import RunningEmulator, start_emulator
from tpu_lifecycle.service import cloud_tpu
from tpu_lifecycle.service.cloud_tpu import CloudTpuBackend, connect

ZONE, OTHER_ZONE = "us-central1-a", "us-west4-a"


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEmulator]:
    with start_emulator(tmp_path_factory.mktemp("cloud")) as running:
        yield running


@pytest.fixture
def backend(emulator: RunningEmulator) -> Iterator[CloudTpuBackend]:
    found = connect(project_id=emulator.project, endpoint=emulator.endpoint, insecure=True)
    yield found
    found.close()
    emulator.admin.clear_faults()


def problems(backend: CloudTpuBackend, overrides: dict[str, Any] | None = None) -> list[str]:
    config = with_overrides(load_preset("bert_base_v5e"), {"tpu.zones": [ZONE]} | (overrides or {}))
    lines = findings.problems(tpu_rows(config, read_offer(config, backend)))
    assert all("\n" not in line for line in lines)
    return lines


def test_what_the_service_offers_passes(
    backend: CloudTpuBackend, caplog: pytest.LogCaptureFixture
) -> None:
    assert problems(backend, {"tpu.zones": [ZONE, OTHER_ZONE]}) == []
    assert "CLOUD CHECK" not in caplog.text


def test_the_backend_reads_what_there_is(backend: CloudTpuBackend) -> None:
    assert {ZONE, OTHER_ZONE} <= set(backend.zones())
    assert "v5litepod-8" in backend.accelerator_types(OTHER_ZONE)
    assert "v4-8" not in backend.accelerator_types(OTHER_ZONE)
    assert "v2-alpha-tpuv5-lite" in backend.runtime_versions(OTHER_ZONE)


def test_a_zone_that_is_not_there(backend: CloudTpuBackend) -> None:
    [line] = problems(backend, {"tpu.zones": [ZONE, "us-central1-z"]})
    assert line.startswith("tpu.zones: there is no zone us-central1-z; there is us-central1-")


def test_a_type_that_no_zone_offers(backend: CloudTpuBackend) -> None:
    mistaken = {"tpu.accelerator_type": "v5e-4", "tpu.zones": [ZONE, OTHER_ZONE]}
    [line] = problems(backend, mistaken)
    assert line.startswith(f"tpu.accelerator_type: {ZONE}, {OTHER_ZONE} does not offer v5e-4; ")
    assert "v5litepod-4" in line


def test_a_type_that_only_some_zones_offer_is_told_and_no_reason(
    backend: CloudTpuBackend, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert problems(backend, {"tpu.zones": [ZONE, "us-central2-b"]}) == []
    assert "us-central2-b does not offer v5litepod-8; there is v4-8." in caplog.text


def test_an_image_that_is_not_there(backend: CloudTpuBackend) -> None:
    [line] = problems(backend, {"tpu.runtime_version": "v2-alpha-tpuv5-light"})
    assert line.startswith(f"tpu.runtime_version: {ZONE} does not offer v2-alpha-tpuv5-light")
    assert "there is v2-alpha-tpuv5-lite" in line


@pytest.mark.parametrize(
    ("accelerator", "zone", "advice"),
    [
        ("v5p-8", ZONE, "--set tpu.runtime_version=v2-alpha-tpuv5"),
        ("v6e-8", "us-east5-a", "--set tpu.runtime_version=v2-alpha-tpuv6e"),
        ("v3-8", ZONE, "use an image for that generation"),
    ],
)
def test_an_image_of_another_generation(
    backend: CloudTpuBackend, accelerator: str, zone: str, advice: str
) -> None:
    wanted = {"tpu.accelerator_type": accelerator, "tpu.zones": [zone]}
    one_host = {"training.distribution_strategy": "one_device"}
    [line] = problems(backend, wanted | one_host)
    assert line.startswith("tpu.runtime_version: v2-alpha-tpuv5-lite boots on v5litepod TPUs only")
    assert line.endswith(advice)


@pytest.mark.parametrize("method", ["ListQueuedResources", "ListNodes"])
def test_an_account_without_the_right_to_look(
    emulator: RunningEmulator, backend: CloudTpuBackend, method: str
) -> None:
    emulator.admin.deny(method)
    [line] = problems(backend, {"tpu.zones": [ZONE, OTHER_ZONE]})
    assert line.startswith(
        f"tpu.zones: the service shows no TPUs of {ZONE}, {OTHER_ZONE}: {method}"
    )
    assert "PERMISSION_DENIED" in line
    assert "roles/tpu.admin" in line


def test_an_account_without_the_right_in_one_zone(
    emulator: RunningEmulator, backend: CloudTpuBackend
) -> None:
    # The teardown could not look there either.
    emulator.admin.deny("ListNodes", OTHER_ZONE)
    [line] = problems(backend, {"tpu.zones": [ZONE, OTHER_ZONE]})
    assert line.startswith(f"tpu.zones: the service shows no TPUs of {OTHER_ZONE}: ")


def test_credentials_that_are_none(emulator: RunningEmulator, backend: CloudTpuBackend) -> None:
    emulator.admin.fail_next("*", code="UNAUTHENTICATED", message="no token", count=9)
    [line] = problems(backend)
    assert "credentials of the Airflow connection" in line


def test_another_project(emulator: RunningEmulator) -> None:
    other = connect(project_id="my-projet", endpoint=emulator.endpoint, insecure=True)
    [line] = problems(other)
    other.close()
    assert line.startswith(f"tpu.zones: the service shows no TPUs of {ZONE}: ")
    assert "my-projet" in line


@pytest.mark.parametrize(
    ("method", "said"),
    [
        ("ListLocations", "not checked: the names in tpu.zones"),
        ("ListAcceleratorTypes", f"types of {ZONE}: ListAcceleratorTypes"),
        ("ListRuntimeVersions", f"images of {ZONE}: ListRuntimeVersions"),
    ],
)
def test_a_right_that_no_run_needs_may_be_missing(
    emulator: RunningEmulator,
    backend: CloudTpuBackend,
    caplog: pytest.LogCaptureFixture,
    method: str,
    said: str,
) -> None:
    emulator.admin.deny(method)
    assert problems(backend) == []
    assert said in caplog.text


@pytest.mark.parametrize("method", ["ListLocations", "ListNodes", "ListRuntimeVersions"])
def test_a_service_that_does_not_answer_is_told_and_no_reason(
    emulator: RunningEmulator,
    backend: CloudTpuBackend,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
) -> None:
    monkeypatch.setattr(cloud_tpu, "PAUSES_SECONDS", ())
    emulator.admin.fail_next(method, code="UNAVAILABLE", message="maintenance")
    assert problems(backend, {"tpu.accelerator_type": "v5litepod-2"}) == []
    assert "the TPU service does not answer" in caplog.text
    assert "maintenance" in caplog.text


def test_a_moment_without_service_is_not_noticed(
    emulator: RunningEmulator,
    backend: CloudTpuBackend,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cloud_tpu, "PAUSES_SECONDS", (0.01,))
    emulator.admin.fail_next("ListLocations", code="UNAVAILABLE")
    [line] = problems(backend, {"tpu.accelerator_type": "v5litepod-2"})
    assert "does not offer v5litepod-2" in line
    assert "CLOUD CHECK" not in caplog.text
