"""Generated keys and the login."""

from __future__ import annotations

import configparser
import stat
from pathlib import Path

import pytest
from cryptography.fernet import Fernet, MultiFernet

from local.stack import credentials
from local.stack.paths import StackError, StatePaths


@pytest.fixture
def paths(tmp_path: Path) -> StatePaths:
    paths = StatePaths(tmp_path)
    paths.create()
    credentials.ensure_credentials(paths)
    return paths


def _keys(paths: StatePaths) -> dict[str, str]:
    parser = configparser.ConfigParser()
    parser.read(paths.airflow_config)
    return {
        "fernet": parser["core"]["fernet_key"],
        "api": parser["api"]["secret_key"],
        "jwt": parser["api_auth"]["jwt_secret"],
    }


def test_files_are_readable_by_the_owner_only(paths: StatePaths) -> None:
    for file in (paths.airflow_config, paths.passwords):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_fernet_key_is_one(paths: StatePaths) -> None:
    fernet = Fernet(_keys(paths)["fernet"])
    assert fernet.decrypt(fernet.encrypt(b"text")) == b"text"


def test_second_start_keeps_everything_and_closes_opened_files(paths: StatePaths) -> None:
    before = _keys(paths), credentials.password(paths)
    paths.passwords.chmod(0o644)
    credentials.ensure_credentials(paths)
    assert (_keys(paths), credentials.password(paths)) == before
    assert stat.S_IMODE(paths.passwords.stat().st_mode) == 0o600


def test_two_stacks_share_no_secret(paths: StatePaths, tmp_path: Path) -> None:
    other = StatePaths(tmp_path / "other")
    other.create()
    credentials.ensure_credentials(other)
    ours = {*_keys(paths).values(), credentials.password(paths)}
    assert ours.isdisjoint({*_keys(other).values(), credentials.password(other)})


def test_the_old_fernet_key_reads_until_it_is_forgotten(paths: StatePaths) -> None:
    before, login = _keys(paths), credentials.password(paths)
    encrypted = Fernet(before["fernet"]).encrypt(b"text")

    credentials.renew(paths)
    both = _keys(paths)
    new, kept = both["fernet"].split(",")
    assert kept == before["fernet"] != new
    assert credentials.password(paths) != login
    assert {both["api"], both["jwt"]}.isdisjoint(before.values())
    again = MultiFernet([Fernet(new), Fernet(kept)]).rotate(encrypted)

    credentials.forget_old_fernet_keys(paths)
    assert _keys(paths) == both | {"fernet": new}
    assert Fernet(new).decrypt(again) == b"text"
    for file in (paths.airflow_config, paths.passwords):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert len(list(paths.airflow_home.iterdir())) == 2


def test_a_rotation_that_was_interrupted_loses_no_key(paths: StatePaths) -> None:
    first = _keys(paths)["fernet"]
    credentials.renew(paths)
    second = _keys(paths)["fernet"].partition(",")[0]
    credentials.renew(paths)
    assert _keys(paths)["fernet"].split(",")[1:] == [second, first]


@pytest.mark.parametrize("content", ["", "[core]\n", "fernet_key = secret-value\n"])
def test_damaged_keys_are_named_and_not_quoted(paths: StatePaths, content: str) -> None:
    paths.airflow_config.write_text(content)
    with pytest.raises(StackError, match=r"airflow\.cfg") as refused:
        credentials.renew(paths)
    assert "secret-value" not in str(refused.value)
    assert paths.airflow_config.read_text() == content


@pytest.mark.parametrize("content", ["", "[]", "{}"])
def test_damaged_password_file_is_named(paths: StatePaths, content: str) -> None:
    paths.passwords.write_text(content)
    with pytest.raises(StackError, match=r"passwords\.json"):
        credentials.password(paths)
