"""make_secrets.py makes what is missing, closed to others, and replaces nothing."""

from __future__ import annotations

import base64
import json
import stat
from pathlib import Path

import pytest
import yaml
from cryptography.fernet import Fernet, MultiFernet

from tests.verification.compose.compose_file import FOLDER
from tests.verification.compose.secret_files import make_secrets

ROTATED = ("database_password", "fernet_key", "api_secret_key", "jwt_secret", "logins")


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in (folder / "secrets").iterdir()}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_everything_is_made_and_closed(tmp_path: Path) -> None:
    printed = make_secrets(tmp_path)
    made = contents(tmp_path)
    declared = yaml.safe_load((FOLDER / "compose.yaml").read_text())["secrets"]
    assert set(made) == set(declared)
    assert mode(tmp_path / ".env") == 0o600
    assert mode(tmp_path / "secrets") == 0o700
    assert (tmp_path / ".env").read_text() == (FOLDER / ".env.example").read_text()
    assert len(base64.urlsafe_b64decode(made["fernet_key"])) == 32
    assert made["database_url"].count(made["database_password"]) == 1
    assert set(json.loads(made["logins"])) == {"admin"}
    # Secrets are said to nobody.
    assert not any(secret in printed for secret in made.values())


def test_two_servers_share_nothing(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        make_secrets(tmp_path / name)
    one, other = contents(tmp_path / "one"), contents(tmp_path / "other")
    assert not set(one.values()) & set(other.values())


def test_what_exists_is_kept(tmp_path: Path) -> None:
    make_secrets(tmp_path)
    before = contents(tmp_path)
    (tmp_path / ".env").write_text("AIRFLOW_IMAGE=mine\nSECRETS_DIR=./secrets\n")
    (tmp_path / "secrets" / "jwt_secret").unlink()
    make_secrets(tmp_path)
    after = contents(tmp_path)
    assert (tmp_path / ".env").read_text().startswith("AIRFLOW_IMAGE=mine\n")
    assert after.pop("jwt_secret") != before.pop("jwt_secret")
    assert after == before


@pytest.mark.parametrize("name", ["logins", "jwt_secret", "api_secret_key"])
def test_a_secret_is_rotated_alone(tmp_path: Path, name: str) -> None:
    make_secrets(tmp_path)
    before = contents(tmp_path)
    printed = make_secrets(tmp_path, "--rotate", name)
    after = contents(tmp_path)
    assert after[name] != before[name]
    assert len(after.pop(name)) == len(before.pop(name))
    assert after == before
    assert mode(tmp_path / "secrets" / name) == 0o444
    assert not any(secret in printed for secret in contents(tmp_path).values())


def test_all_people_get_new_passwords(tmp_path: Path) -> None:
    make_secrets(tmp_path)
    logins = tmp_path / "secrets" / "logins"
    logins.chmod(0o644)
    logins.write_text('{"admin": "a", "ann": "b"}')
    make_secrets(tmp_path, "--rotate", "logins")
    found = json.loads(logins.read_text())
    assert set(found) == {"admin", "ann"}
    assert len({"a", "b", *found.values()}) == 4


def test_both_files_have_the_databases_new_password(tmp_path: Path) -> None:
    make_secrets(tmp_path)
    before = contents(tmp_path)
    url = tmp_path / "secrets" / "database_url"
    url.chmod(0o644)
    url.write_text(f"{before['database_url']}?sslmode=require")
    make_secrets(tmp_path, "--rotate", "database_password")
    after = contents(tmp_path)
    assert after["database_password"] != before["database_password"]
    assert after["database_url"] == (
        f"postgresql+psycopg2://airflow:{after['database_password']}@postgres:5432/airflow"
        "?sslmode=require"
    )


def test_the_old_fernet_key_reads_until_it_is_dropped(tmp_path: Path) -> None:
    make_secrets(tmp_path)
    old = contents(tmp_path)["fernet_key"]
    encrypted = Fernet(old).encrypt(b"password")
    make_secrets(tmp_path, "--rotate", "fernet_key")
    new, kept = contents(tmp_path)["fernet_key"].split(",")
    assert kept == old != new
    both = MultiFernet([Fernet(new), Fernet(kept)])
    again = both.rotate(encrypted)
    make_secrets(tmp_path, "--rotate", "old_fernet_key")
    assert contents(tmp_path)["fernet_key"] == new
    assert Fernet(new).decrypt(again) == b"password"


@pytest.mark.parametrize("name", [*ROTATED, "old_fernet_key"])
def test_what_is_not_there_is_not_rotated_and_not_made(tmp_path: Path, name: str) -> None:
    make_secrets(tmp_path)
    for path in (tmp_path / "secrets").iterdir():
        path.unlink()
    assert "nothing to rotate" in make_secrets(tmp_path, "--rotate", name, code=1)
    assert contents(tmp_path) == {}


def test_a_key_that_has_no_old_one_behind_it_is_kept(tmp_path: Path) -> None:
    make_secrets(tmp_path)
    before = contents(tmp_path)
    printed = make_secrets(tmp_path, "--rotate", "old_fernet_key", code=1)
    assert "--rotate fernet_key" in printed
    assert before["fernet_key"] not in printed
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    "line", ["SECRETS_DIR={}", "SECRETS_DIR='{}' # closed", "SECRETS_DIR=../of"]
)
def test_secrets_lie_where_compose_looks_for_them(tmp_path: Path, line: str) -> None:
    here, elsewhere = tmp_path / "server", tmp_path / "of"
    here.mkdir()
    (here / ".env").write_text(f"SECRETS_DIR=./wrong\n{line.format(elsewhere)}\n")
    make_secrets(here)
    before = {path.name: path.read_text() for path in elsewhere.iterdir()}
    make_secrets(here, "--rotate", "jwt_secret")
    after = {path.name: path.read_text() for path in elsewhere.iterdir()}
    assert {name for name in after if after[name] != before[name]} == {"jwt_secret"}
    assert [path.name for path in here.iterdir()] == [".env"]


@pytest.mark.parametrize("line", ["", "SECRETS_DIR=", "SECRETS_DIR=$HOME/of", "SECRETS_DIR=~/of"])
def test_a_folder_that_is_not_written_out_is_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / ".env").write_text(line)
    for options in ((), ("--rotate", "jwt_secret")):
        assert "SECRETS_DIR=./secrets" in make_secrets(tmp_path, *options, code=1)
    assert [path.name for path in tmp_path.iterdir()] == [".env"]


def test_half_of_the_database_secrets_is_refused(tmp_path: Path) -> None:
    make_secrets(tmp_path)
    (tmp_path / "secrets" / "database_url").unlink()
    assert "database_url does not" in make_secrets(tmp_path, code=1)
    assert "database_url" not in contents(tmp_path)


@pytest.mark.parametrize("options", [(), ("--rotate", "jwt_secret")])
def test_an_open_folder_is_refused(tmp_path: Path, options: tuple[str, ...]) -> None:
    (tmp_path / ".env").write_text("SECRETS_DIR=./secrets\n")
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets").chmod(0o755)
    assert "chmod 700" in make_secrets(tmp_path, *options, code=1)
    assert contents(tmp_path) == {}
