"""Against the emulator, or with `--tpu-project` the real API: see docs/extend/contract-suite.md."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from google.cloud import tpu_v2
from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport

from pipeline_config import PipelineConfig
from pipeline_store.layout import StoreLayout
from tests.contract.cloud import NO_STORE, Cloud, TooExpensiveError, check_cost
from tpu_emulator.testing import ZONE, start_emulator
from tpu_lifecycle.service.backend import TpuState
from tpu_lifecycle.service.cloud_tpu import connect

EMULATOR_PATIENCE = 60.0


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("contract", "the Cloud TPU API that the contract suite asks")
    add = group.addoption
    defaults = PipelineConfig()
    add("--tpu-project", help="Google Cloud project; without it the emulator is asked")
    add("--tpu-zone", default="us-central1-a", help="default: %(default)s")
    add("--tpu-type", default="v5litepod-1", help="accelerator type; default: %(default)s")
    add("--tpu-runtime", default="v2-alpha-tpuv5-lite", help="default: %(default)s")
    add("--tpu-container-image", help="tpu.container_image; default: none, the VM has it all")
    add("--tpu-network", help="default: the project's")
    add("--tpu-subnetwork", help="default: the project's")
    add("--tpu-service-account", help="of the TPU VM; default: the project's")
    add("--tpu-store", help="store that the TPU VM can read and write: gs://BUCKET/PREFIX")
    add("--tpu-manifest", help="manifest of a prepared partition in --tpu-store, for the training")
    add("--tpu-preset", default="bert_base_v5e_smoke", help="of the training; default: %(default)s")
    add(
        "--tpu-price",
        type=float,
        default=defaults.budget.price_per_chip_hour,
        help="of a chip-hour, for the cost cap; default: %(default)s",
    )
    add("--tpu-patience", type=float, default=900.0, help="seconds in which a TPU comes or goes")
    add("--max-cost", type=float, default=0.0, help="what the suite may cost at the very most")


def option(config: pytest.Config, name: str, default: object = None) -> object:
    # The options are unknown when all tests of the repository run: then it is the emulator.
    return config.getoption(name, default)


@pytest.fixture(scope="session")
def cloud(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """The cloud under test; everything that was made in it is deleted afterwards."""
    if option(pytestconfig, "--tpu-project"):
        yield from real_cloud(pytestconfig)
    else:
        yield from emulated_cloud(tmp_path_factory.mktemp("cloud"))


def real_cloud(config: pytest.Config) -> Iterator[Cloud]:
    accelerator_type = config.getoption("--tpu-type")
    try:
        cost = check_cost(
            accelerator_type, config.getoption("--tpu-price"), config.getoption("--max-cost")
        )
    except TooExpensiveError as error:
        pytest.exit(str(error), returncode=pytest.ExitCode.USAGE_ERROR)
    network = {
        name: config.getoption(f"--tpu-{name.replace('_', '-')}")
        for name in ("network", "subnetwork", "service_account")
    }
    cloud = Cloud(
        backend=connect(project_id=config.getoption("--tpu-project")),
        client=tpu_v2.TpuClient(),
        zone=config.getoption("--tpu-zone"),
        accelerator_type=accelerator_type,
        runtime_version=config.getoption("--tpu-runtime"),
        network={name: value for name, value in network.items() if value},
        admin=None,
        patience=config.getoption("--tpu-patience"),
        container_image=config.getoption("--tpu-container-image"),
    )
    print(
        f"\nReal TPUs in {cloud.parent()}, at most {cost:.2f}, until {cloud.expires_at:%F %T} UTC. "
        "Should this process be killed, run after that:\n  python -m tpu_lifecycle reap --once "
        f"--owner {cloud.owner} --project {cloud.project_id} --zone {cloud.zone} --store {NO_STORE}"
    )
    with cloud.limited():
        yield cloud


def emulated_cloud(folder: Path) -> Iterator[Cloud]:
    # The boot script runs with the Python that PATH finds first, as on a TPU VM.
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    with start_emulator(folder, vm_env={"PATH": path}) as emulator:
        channel = grpc.insecure_channel(emulator.endpoint)
        transport = TpuGrpcTransport(host=emulator.endpoint, channel=channel)
        cloud = Cloud(
            backend=connect(project_id=emulator.project, endpoint=emulator.endpoint, insecure=True),
            client=tpu_v2.TpuClient(transport=transport),
            zone=ZONE,
            accelerator_type="v5litepod-1",
            runtime_version="v2-alpha-tpuv5-lite",
            network={},
            admin=emulator.admin,
            patience=EMULATOR_PATIENCE,
        )
        with cloud.limited():
            yield cloud
        left = emulator.admin.table()
        assert left == {"queued_resources": [], "nodes": [], "orphan_pids": []}


@pytest.fixture
def store(pytestconfig: pytest.Config, cloud: Cloud, tmp_path: Path) -> StoreLayout:
    """A store that both this machine and the TPU VM can use."""
    uri = option(pytestconfig, "--tpu-store")
    if cloud.is_real and not uri:
        pytest.skip("needs --tpu-store gs://BUCKET/PREFIX, which the TPU VM can read and write")
    return StoreLayout(str(uri) if uri else str(tmp_path / "store"))


@pytest.fixture(scope="module")
def tpu(cloud: Cloud) -> TpuState:
    """One TPU that is READY, shared by the tests of a module: each costs money."""
    request = cloud.request()
    cloud.backend.create(request)
    return cloud.until_ready(request.name)
