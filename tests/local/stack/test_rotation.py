"""Rotating the secrets of a stack as the operating guide says: each is there, and then another."""

from __future__ import annotations

import configparser
import contextlib
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import httpx
import psycopg2
import pytest
from cryptography.fernet import Fernet, InvalidToken

from local.stack import credentials, settings
from local.stack.airflow_api import AirflowApi, AirflowApiError
from local.stack.paths import REPOSITORY, RuntimePaths, StatePaths
from local.stack.stack import Stack

GUIDE = (REPOSITORY / "docs" / "operate" / "operation.md").read_text()
LAPTOP = GUIDE.partition("### On a laptop\n")[2].partition("\n### ")[0]
# A DAG with a task that stays deferred.
SETTINGS = {"AIRFLOW__CORE__DAGS_FOLDER": str(Path(__file__).parent / "dags")}
CONNECTION = {"connection_id": "stored", "conn_type": "http", "password": "of-the-webhook"}
HIDDEN_NAME = re.compile(r"PASSWORD|SECRET|TOKEN|_KEY|CREDENTIAL")


def commands() -> list[list[str]]:
    [block] = re.findall(r"^```bash stack\n(.*?)^```", LAPTOP, re.MULTILINE | re.DOTALL)
    return [shlex.split(line) for line in block.splitlines()]


def secrets(paths: StatePaths) -> dict[str, str]:
    """Return the secrets of a stack, by the names that the guide calls them."""
    config = configparser.ConfigParser(interpolation=None)
    config.read(paths.airflow_config)
    keys = {
        f"`{paths.airflow_config.name}`: `{name}`": value
        for section in config.sections()
        for name, value in config[section].items()
    }
    return keys | {f"`{paths.passwords.name}`": credentials.password(paths)}


@pytest.fixture
def paths(tmp_path: Path) -> StatePaths:
    paths = StatePaths(tmp_path / "state")
    paths.create()
    credentials.ensure_credentials(paths)
    return paths


def test_each_secret_has_a_line(paths: StatePaths) -> None:
    named = set(re.findall(r"^\| (`.*?`) \|", LAPTOP, re.MULTILINE))
    assert named == set(secrets(paths))


def test_there_is_no_secret_elsewhere(paths: StatePaths) -> None:
    """A new variable of this kind is in the guide first."""
    ports = dict.fromkeys(settings.PORT_NAMES, 1)
    environment = settings.environment(paths, RuntimePaths.of(paths.root), ports, {})
    found = [name for name in environment if HIDDEN_NAME.search(name)]
    # Where the logins are, which are in a file.
    assert found == ["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"]
    # The database's address has no password, and the connection to the cloud no key.
    assert "@" in environment["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"].partition("airflow")[2][:1]
    assert '"is_anonymous": true' in environment["AIRFLOW_CONN_GOOGLE_CLOUD_DEFAULT"]


@pytest.mark.stack
@pytest.mark.thorough
@pytest.mark.timeout(1200)
def test_what_the_guide_says_changes_each_and_locks_out_who_had_them(tmp_path: Path) -> None:
    state = tmp_path / "state"
    stack = Stack(state, extra_environment=SETTINGS)
    with stack:
        before = secrets(stack.paths)
        with stack.api() as api:
            token = api.login()
            assert status(api.base_url, token) == httpx.codes.OK
            api.request("POST", "/connections", json=CONNECTION)
            run_id = deferred(api)
        for words in commands():
            line = [sys.executable, *words[1:], "--state-dir", str(state)]
            subprocess.run(line, cwd=REPOSITORY, check=True)
        assert stack.environment().items() >= SETTINGS.items()
        after = secrets(stack.paths)
        assert after.keys() == before.keys()
        assert not set(after.values()) & set(before.values())
        assert_only_the_new_key_opens(stack.paths, before, after)
        with stack.api() as api:
            assert status(api.base_url, api.login()) == httpx.codes.OK
            assert state_of(api, run_id) == "deferred"
            # Neither who was logged in nor who knows the password gets in.
            assert status(api.base_url, token) in {httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN}
            old = before[f"`{stack.paths.passwords.name}`"]
            with (
                AirflowApi(api.base_url, credentials.USER, old) as thief,
                pytest.raises(AirflowApiError) as refused,
            ):
                thief.login()
            assert refused.value.status == httpx.codes.UNAUTHORIZED
            api.request("DELETE", f"/connections/{CONNECTION['connection_id']}")


def deferred(api: AirflowApi) -> str:
    """Start a run with a deferred task; return its id."""
    api.wait_for_dag("probe_waiting")
    api.unpause("probe_waiting")
    run_id = api.trigger("probe_waiting")
    deadline = time.monotonic() + 300
    while state_of(api, run_id) != "deferred":
        assert time.monotonic() < deadline
        time.sleep(0.5)
    return run_id


def state_of(api: AirflowApi, run_id: str) -> str | None:
    tasks = {task.task_id: task.state for task in api.task_instances("probe_waiting", run_id)}
    return tasks["deferred"]


def assert_only_the_new_key_opens(
    paths: StatePaths, before: dict[str, str], after: dict[str, str]
) -> None:
    """Read the password of the stored connection from the database."""
    old, new = (Fernet(keys["`airflow.cfg`: `fernet_key`"]) for keys in (before, after))
    url = settings.database_url("", RuntimePaths.of(paths.root))
    with contextlib.closing(psycopg2.connect(url)) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT password FROM connection WHERE password IS NOT NULL")
        [(password,)] = cursor.fetchall()
    assert new.decrypt(password).decode() == CONNECTION["password"]
    with pytest.raises(InvalidToken):
        old.decrypt(password)


def status(base_url: str, token: str) -> int:
    """Return what REST answers who has a token."""
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=base_url, trust_env=False, timeout=30) as client:
        return client.get("/api/v2/connections", headers=headers).status_code
