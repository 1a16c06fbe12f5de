"""Tasks that copy models into tools of others: what is refused, and what they do without these."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, cast

import pytest
from airflow.sdk.exceptions import AirflowFailException

from operators.mirror import MlflowMirrorOperator
from pipeline_store.formats import Installation
from tests.model_registry.runs import FinishedRun

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
