"""What of this machine's access to packages a build gets."""

from __future__ import annotations

import configparser
import os
from pathlib import Path

import pytest

from verification.container_images.registry_access import (
    CERTIFICATES_IN_BUILD,
    lend_access,
    pip_settings,
)


@pytest.fixture(autouse=True)
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pip settings of a machine with a registry of its own."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    file = tmp_path / "settings"
    file.write_text(
        "[global]\n"
        "index-url = https://name:p%%20w@packages.example/simple\n"
        "extra-index-url = file:///srv/simple https://more.example/simple\n"
        "find-links = /srv/wheels\n"
        "cert = /etc/ssl/own.pem\n"
        "timeout = 20\n"
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", str(file))


def test_a_build_gets_what_does_not_name_this_machine(tmp_path: Path) -> None:
    access = lend_access(tmp_path)
    written = configparser.RawConfigParser()
    written.read(access.files["pip"])
    assert dict(written["global"]) == {
        "index-url": "https://name:p%%20w@packages.example/simple",
        "extra-index-url": "https://more.example/simple",
        "timeout": "20",
        "cert": CERTIFICATES_IN_BUILD,
    }
    assert access.files["ca"] == Path("/etc/ssl/own.pem")


def test_nobody_else_reads_it(tmp_path: Path) -> None:
    assert lend_access(tmp_path).files["pip"].stat().st_mode & 0o777 == 0o600


def test_addresses_are_private(tmp_path: Path) -> None:
    assert lend_access(tmp_path).private == {
        "https://name:p%%20w@packages.example/simple",
        "https://more.example/simple",
        "file:///srv/simple",
    }


def test_variables_go_before_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_TIMEOUT", "7")
    assert pip_settings()["timeout"] == "7"


def test_a_machine_without_settings_lends_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    access = lend_access(tmp_path)
    assert set(access.files) == {"pip"}
    assert access.private == frozenset()
