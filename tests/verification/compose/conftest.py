"""A folder with secrets and settings, as somebody makes it who sets up a server."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.verification.compose.compose_file import FOLDER, read_env_file
from tests.verification.compose.secret_files import make_secrets


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the folder after make_secrets.py."""
    folder = tmp_path_factory.mktemp("server") / "compose"
    shutil.copytree(FOLDER, folder, ignore=shutil.ignore_patterns(".env", "secrets"))
    make_secrets(folder)
    return folder


@pytest.fixture(scope="session")
def settings(server: Path) -> dict[str, str]:
    """Return the variables of a server that is set up."""
    given = {
        "AIRFLOW_IMAGE": f"registry.example.com/bert-repretraining@sha256:{'0' * 64}",
        "POSTGRES_IMAGE": f"postgres:17.6-bookworm@sha256:{'1' * 64}",
        "AIRFLOW_BASE_URL": "http://api-server:8080",
        "GOOGLE_CLOUD_PROJECT": "my-project-1",
        "REPRETRAIN_STORE_URI": "gs://my-company-bert/store",
        "REPRETRAIN_PRESET": "/etc/repretraining/repretraining.toml",
    }
    read = read_env_file(server / ".env")
    folders = {name: str(server / read[name]) for name in ("SECRETS_DIR", "PRESETS_DIR")}
    return read | folders | given
