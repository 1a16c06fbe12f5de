"""Tasks that copy models into tools of others: what is refused, and what they do without these."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, cast

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from model_registry import registry
from operators.mirror import HubMirrorOperator, MlflowMirrorOperator
from pipeline_store.formats import Installation
from tests.model_registry.runs import FinishedRun
from tests.pipeline_mirror.hub import TOKEN, hub_running

ADDRESS = "http://127.0.0.1:1"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", ADDRESS)
    return FinishedRun(str(tmp_path / "store"), "1").store.root


def mirror(store: str) -> dict[str, Any]:
    operator = MlflowMirrorOperator(task_id="mlflow", store_uri=store)
    return operator.execute(cast("Any", {}))


@pytest.mark.parametrize("address", ["", "/var/mlruns", "sqlite:///mlflow.db"])
def test_a_mirror_needs_a_server(store: str, monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    with pytest.raises(AirflowFailException, match="the mirror needs the address of a server"):
        mirror(store)


def test_a_mirror_says_what_to_install(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Installation(id="1").write(f"{store}/installation.json")
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(AirflowFailException, match=r"requirements-mlflow\.txt"):
        mirror(store)


def test_a_store_that_has_asked_for_no_tpu_has_nothing_to_mirror(store: str) -> None:
    assert mirror(store) == {"runs": [], "versions": []}


@pytest.fixture
def hub_store(store: str, monkeypatch: pytest.MonkeyPatch) -> str:
    Installation(id="1").write(f"{store}/installation.json")
    monkeypatch.setenv("REPRETRAIN_HUB_REPOSITORY", "acme/bert-{lineage}")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
    run = FinishedRun(store, "2")
    registry.publish(run.store, run.run)
    registry.promote(run.lineage, run.version_id, expected_baseline=None, reason="better")
    return store


def push(store: str, conn_id: str) -> dict[str, Any]:
    operator = HubMirrorOperator(task_id="push", store_uri=store, hub_conn_id=conn_id)
    return operator.execute(cast("Any", {}))


def connect(monkeypatch: pytest.MonkeyPatch, **fields: str) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_HUB", json.dumps({"conn_type": "http", **fields}))


def test_the_token_is_of_a_connection_and_nowhere_else(
    hub_store: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level("DEBUG")
    with hub_running() as hub:
        connect(monkeypatch, host=hub.address, password=TOKEN)
        returned = push(hub_store, "hub")
        [version] = returned["versions"]
        assert returned["in_use"] == {"acme/bert-default": version}
        assert hub.repositories["acme/bert-default"].tags.keys() == {version}
        hub.broken = "/refs"
        with pytest.raises(AirflowException, match="The Hub cannot be asked") as caught:
            push(hub_store, "hub")
        # All that a browser sees of the repository, too.
        pushed = [commit for one in hub.repositories.values() for commit in one.commits.values()]
    files = [path for path in Path(hub_store).rglob("*") if path.is_file()]
    written = [*(str(path.read_bytes()) for path in files), *map(str, pushed)]
    for text in (str(returned), str(caught.value), caplog.text, *capfd.readouterr(), *written):
        assert TOKEN not in text


def test_without_a_connection_a_push_only_looks(hub_store: str) -> None:
    returned = push(hub_store, "")
    [line] = returned["dry_run"]
    assert line.startswith("dry run, as there is no token: acme/bert-default would hold v-")
    assert (returned["versions"], returned["in_use"]) == ([], {})


def test_a_connection_without_a_token_is_refused(
    hub_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(monkeypatch)
    with pytest.raises(AirflowFailException, match="has no password, which is the Hub's token"):
        push(hub_store, "hub")
