"""Commands about TPUs know project and service from where Airflow knows them."""

from __future__ import annotations

import json

import pytest

from pipeline_store.formats import TpuPlace
from tests.tpu_lifecycle.world import OWNER, ZONE, World
from tpu_lifecycle.__main__ import main


@pytest.fixture
def told(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """The environment of a container or of the local stack, without a project's own variable."""
    extra = {"tpu_api_endpoint": world.emulator.endpoint, "tpu_insecure": True}
    connection = {"conn_type": "google_cloud_platform", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_GOOGLE_CLOUD_DEFAULT", json.dumps(connection))
    monkeypatch.setenv("REPRETRAIN_STORE_URI", world.store.root)
    monkeypatch.setenv("REPRETRAIN_OWNER", OWNER)
    monkeypatch.delenv("GOOGLE_CLOUD_PROJECT", raising=False)
    return world


def test_the_project_is_the_one_in_which_the_store_rented(
    told: World, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["list"]) == 1
    assert "has reservations of no project. Set GOOGLE_CLOUD_PROJECT" in capsys.readouterr().err
    told.reserve()
    assert main(["list"]) == 0
    assert f"0 TPU(s) of {OWNER}." in capsys.readouterr().out
    assert main(["reap", "--once"]) == 0
    assert json.loads(capsys.readouterr().out)["problems"] == []


def test_of_several_projects_one_has_to_be_named(
    told: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told.reserve()
    other = TpuPlace(project_id="other-project", zone=ZONE)
    other.write(told.store.tpu_place(other.project_id, ZONE))
    assert main(["list"]) == 1
    assert f"of {told.emulator.project} and other-project" in capsys.readouterr().err
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", told.emulator.project)
    assert main(["list"]) == 0
