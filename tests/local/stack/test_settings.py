"""The environment of the parts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from local.stack import credentials, settings
from local.stack.paths import RuntimePaths, StackError, StatePaths
from local.stack.stack import Stack

PORTS = dict(zip(settings.PORT_NAMES, range(20001, 20005), strict=True))


@pytest.fixture
def paths(tmp_path: Path) -> StatePaths:
    return StatePaths(tmp_path)


@pytest.fixture
def environment(paths: StatePaths) -> dict[str, str]:
    return settings.environment(paths, RuntimePaths(Path("/tmp/r")), PORTS, {})


def test_callers_airflow_cloud_and_proxy_settings_stay_outside(
    paths: StatePaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign = ["AIRFLOW__CORE__EXECUTOR", "GOOGLE_APPLICATION_CREDENTIALS", "HTTPS_PROXY", "SECRET"]
    for name in foreign:
        monkeypatch.setenv(name, "of the caller")
    found = settings.environment(paths, RuntimePaths(Path("/tmp/r")), PORTS, {})
    assert "of the caller" not in found.values()


def test_extra_settings_win(paths: StatePaths) -> None:
    extra = {"REPRETRAIN_PRESET": "other", "NEW": "value"}
    found = settings.environment(paths, RuntimePaths(Path("/tmp/r")), PORTS, extra)
    assert found["REPRETRAIN_PRESET"] == "other"
    assert found["NEW"] == "value"


def test_no_secret_is_in_the_environment(paths: StatePaths) -> None:
    paths.create()
    credentials.ensure_credentials(paths)
    found = settings.environment(paths, RuntimePaths(Path("/tmp/r")), PORTS, {})
    secrets = [line.split(" = ")[1] for line in _option_lines(paths.airflow_config)]
    assert len(secrets) == 3
    for secret in [*secrets, credentials.password(paths)]:
        assert all(secret not in value for value in found.values())


def _option_lines(file: Path) -> list[str]:
    return [line for line in file.read_text().splitlines() if " = " in line]


def test_marker_is_only_in_the_environment_of_the_stacks_own_processes(
    paths: StatePaths, environment: dict[str, str]
) -> None:
    # A shell that took over `env` must not be taken for a process of the stack by `down`.
    assert settings.MARKER not in environment
    own = settings.process_environment(environment, paths)
    assert own[settings.MARKER] == str(paths.root)


def test_database_url_survives_odd_folder_names() -> None:
    runtime = RuntimePaths(Path("/tmp/a b%c"))
    url = make_url(settings.database_url("+psycopg2", runtime))
    assert url.query["host"] == "/tmp/a b%c/postgres"
    assert url.password is None


def test_google_connection_leads_to_the_emulator(environment: dict[str, str]) -> None:
    connection = json.loads(environment["AIRFLOW_CONN_GOOGLE_CLOUD_DEFAULT"])
    assert connection["conn_type"] == "google_cloud_platform"
    assert connection["extra"]["tpu_api_endpoint"] == "unix:/tmp/r/tpu.sock"


def test_store_is_an_absolute_folder_of_the_state(
    environment: dict[str, str], paths: StatePaths
) -> None:
    assert environment["REPRETRAIN_STORE_URI"] == str(paths.root / "store")


@pytest.mark.parametrize("end", ["", "_ASYNC", "_CMD", "_SECRET"])
def test_the_stack_has_its_own_database(tmp_path: Path, end: str) -> None:
    name = f"AIRFLOW__DATABASE__SQL_ALCHEMY_CONN{end}"
    with pytest.raises(StackError, match=f"{name}: the local stack runs a PostgreSQL of its own"):
        Stack(tmp_path, extra_environment={name: "postgresql://elsewhere/x"})
    Stack(tmp_path, extra_environment={"AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "1"})
