"""The list of doors: the page says the same, and each attempt tells open from closed."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from verification.reach import attempts
from verification.reach.attempts import Found
from verification.reach.doors import DOORS, table
from verification.reach.site import Site

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "requests.md"


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """Return an installation of which nothing is there yet."""
    return Site(
        airflow_home=str(tmp_path / "airflow"),
        passwords=str(tmp_path / "airflow" / "passwords.json"),
        database=f"postgresql://airflow@/postgres?host={tmp_path}",
        database_files=str(tmp_path / "data"),
        api="http://127.0.0.1:9",
        sockets=(str(tmp_path / "api.sock"),),
        store=str(tmp_path / "store"),
    )


def test_the_page_has_the_table() -> None:
    assert "\n".join(table()) in PAGE.read_text(), "\n".join(table())


def test_every_door_has_a_name_of_its_own() -> None:
    assert len({door.name for door in DOORS}) == len(DOORS)


def test_a_file_is_there_or_not(site: Site, tmp_path: Path) -> None:
    assert attempts.keys(site) is attempts.logs(site) is Found.ABSENT
    (tmp_path / "airflow" / "logs" / "run").mkdir(parents=True)
    for name in ("airflow.cfg", "passwords.json", "logs/run/1.log"):
        (tmp_path / "airflow" / name).touch()
    assert attempts.keys(site) is attempts.logins(site) is attempts.logs(site) is Found.OPEN


def test_a_file_may_not_be_read(monkeypatch: pytest.MonkeyPatch, site: Site) -> None:
    def refuse(*_: object) -> Iterator[None]:
        raise PermissionError

    monkeypatch.setattr(Path, "open", refuse)
    assert attempts.keys(site) is Found.CLOSED


def test_own_variables(monkeypatch: pytest.MonkeyPatch, site: Site) -> None:
    for name in list(os.environ):
        monkeypatch.delenv(name)
    assert attempts.own_variables(site) is Found.CLOSED
    for name in ("AIRFLOW_CONN_X", "AIRFLOW__CORE__FERNET_KEY", "SMTP_PASSWORD", "HF_TOKEN"):
        with monkeypatch.context() as patch:
            patch.setenv(name, "x")
            assert attempts.own_variables(site) is Found.OPEN


def test_attributes_and_names(site: Site, tmp_path: Path) -> None:
    assert attempts.attributes(site) is attempts.names(site) is Found.ABSENT
    (tmp_path / "airflow").mkdir()
    file = tmp_path / "airflow" / "airflow.cfg"
    file.touch(0o640)
    before = file.stat()
    assert attempts.attributes(site) is attempts.names(site) is Found.OPEN
    assert file.stat().st_mode == before.st_mode


def test_signals(monkeypatch: pytest.MonkeyPatch, site: Site) -> None:
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as other:
        try:
            monkeypatch.setattr(attempts, "_others", lambda: [other.pid])
            assert attempts.signals(site) is Found.OPEN
            assert other.poll() is None
        finally:
            other.kill()
    assert attempts.signals(site) is Found.ABSENT


def test_what_does_not_answer_is_closed(site: Site) -> None:
    assert attempts.database(site) is Found.CLOSED
    assert attempts.sockets(site) is Found.ABSENT


def test_nothing_is_left_of_what_is_tried(site: Site, tmp_path: Path) -> None:
    dags = PAGE.parents[2] / "dags"
    before = set(dags.iterdir())
    assert attempts.code(site) is Found.OPEN
    assert attempts.store(site) is Found.OPEN
    assert set(dags.iterdir()) == before
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
