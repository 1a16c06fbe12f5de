"""make_secrets.py makes what is missing, closed to others, and replaces nothing."""

from __future__ import annotations

import base64
import json
import stat
from pathlib import Path

import yaml

from tests.verification.compose.compose_file import FOLDER
from tests.verification.compose.secret_files import make_secrets


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
    (tmp_path / ".env").write_text("AIRFLOW_IMAGE=mine\n")
    (tmp_path / "secrets" / "jwt_secret").unlink()
    make_secrets(tmp_path)
    after = contents(tmp_path)
    assert (tmp_path / ".env").read_text() == "AIRFLOW_IMAGE=mine\n"
    assert after.pop("jwt_secret") != before.pop("jwt_secret")
    assert after == before


def test_half_of_the_database_secrets_is_refused(tmp_path: Path) -> None:
    make_secrets(tmp_path)
    (tmp_path / "secrets" / "database_url").unlink()
    assert "database_url does not" in make_secrets(tmp_path, code=1)
    assert "database_url" not in contents(tmp_path)


def test_an_open_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets").chmod(0o755)
    assert "chmod 700" in make_secrets(tmp_path, code=1)
    assert contents(tmp_path) == {}
