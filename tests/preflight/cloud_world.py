"""A sound installation in a played cloud, and the command that checks it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from pipeline_store import gcs
from preflight.__main__ import main
from tests.pipeline_store.gcs_server import GcsServer
from tests.pipeline_store.gcs_server import running as running_gcs
from tests.preflight.google_stub import (
    CALLER,
    DATA_ACCOUNT,
    DIGEST,
    PROJECT,
    REGION,
    TOKEN,
    TPU_ACCOUNT,
    GoogleStub,
    google_stub,
)
from tpu_emulator.testing import RunningEmulator

REPOSITORY = f"{REGION}-docker.pkg.dev/{PROJECT}/images"
IMAGE = f"{REPOSITORY}/data-job"
TRAINER = f"{REPOSITORY}/trainer"
SETTINGS: dict[str, Any] = {
    "tpu.zones": "us-central1-a",
    "tpu.container_image": f"{TRAINER}@{DIGEST}",
    "tpu.service_account": TPU_ACCOUNT,
    "tpu.network": "pipeline",
    "tpu.subnetwork": "pipeline",
    "beam.runner": "DataflowRunner",
    "beam.region": REGION,
    "beam.temp_location": "gs://temp/beam",
    "beam.sdk_container_image": f"{IMAGE}@{DIGEST}",
    "beam.service_account_email": DATA_ACCOUNT,
    "beam.subnetwork": "default",
    "budget.price_per_chip_hour": 1.2,
    "budget.price_date": f"{datetime.now(UTC):%Y-%m}",
}


@dataclass
class CloudWorld:
    """A sound installation. Mistakes are made in it before the command looks."""

    stub: GoogleStub
    gcs: GcsServer
    emulator: RunningEmulator
    folder: Path
    patch: pytest.MonkeyPatch
    settings: dict[str, Any] = field(default_factory=lambda: dict(SETTINGS))
    store: str = "gs://bucket/store"
    preset: str = "bert_base_v5e"

    @property
    def key(self) -> Path:
        """Return the file with the key of the account that asks."""
        return self.folder / "key.json"

    def set(self, **settings: Any) -> None:
        """Change settings; ``__`` stands for the dot."""
        self.settings |= {name.replace("__", "."): value for name, value in settings.items()}

    def check(self, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any]:
        """Run the command; return its exit status and its checks by name."""
        status = main([*self.command(), "--json", *words])
        content = json.loads(capsys.readouterr().out)
        assert content["project"] == PROJECT
        return status, {row.pop("check"): row for row in content["checks"]}

    def command(self) -> list[str]:
        """Return the command line, without options for the output."""
        words = ["cloud", "--preset", self.preset, "--store", self.store, "--project", PROJECT]
        words += ["--endpoint", self.emulator.endpoint, "--insecure"]
        words += ["--airflow-url", self.stub.url]
        for name, value in self.settings.items():
            words += ["--set", f"{name}={'' if value is None else value}"]
        return words


def write_key(path: Path, token_uri: str, private_key: str) -> None:
    """Write a key as Google does; whoever uses it asks that address for a token."""
    content = {
        "type": "service_account",
        "project_id": PROJECT,
        "private_key_id": "1",
        "private_key": private_key,
        "client_email": CALLER,
        "client_id": "1",
        "token_uri": token_uri,
    }
    path.write_text(json.dumps(content))


def new_private_key() -> str:
    """Return a private key that nobody else knows."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    kind, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return key.private_bytes(kind, form, serialization.NoEncryption()).decode()


@contextlib.contextmanager
def cloud_world(
    emulator: RunningEmulator, private_key: str, folder: Path, patch: pytest.MonkeyPatch
) -> Iterator[CloudWorld]:
    """Serve a sound installation while the context lasts.

    :param emulator: of project ``PROJECT``.
    """
    with google_stub() as stub, running_gcs() as storage:
        storage.state.locations |= {"temp": "US-CENTRAL1"}
        world = CloudWorld(stub, storage, emulator, folder, patch)
        write_key(world.key, f"{stub.url}/token", private_key)
        environment = stub.environment() | {
            "GOOGLE_APPLICATION_CREDENTIALS": str(world.key),
            "STORAGE_EMULATOR_HOST": storage.url,
            "REPRETRAIN_ALERT_CONN_IDS": "alerts_mail,alerts_slack",
            "AIRFLOW_CLI_TOKEN": TOKEN,
            # Google's library asks for more in the background, which no variable redirects. What
            # would leave this machine fails here at once.
            "HTTPS_PROXY": "http://127.0.0.1:9",
            "NO_PROXY": "127.0.0.1,localhost",
        }
        for name, value in environment.items():
            patch.setenv(name, value)
        gcs._client.cache_clear()
        yield world
    gcs._client.cache_clear()
    emulator.admin.clear_faults()
