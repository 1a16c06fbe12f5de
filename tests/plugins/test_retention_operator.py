"""The store's retention as a task: it reports, and removes only when asked to."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from airflow.sdk.exceptions import AirflowFailException

from model_registry import registry
from operators.retention import StoreRetentionOperator
from pipeline_store.layout import StoreLayout
from tests.model_registry.retained import age, line_of_models, objects


@pytest.fixture
def store(tmp_path: Path) -> str:
    store = str(tmp_path / "store")
    line_of_models(store, 4)
    age(store)
    return store


def execute(store: str, **values: Any) -> dict[str, Any]:
    # Rendered templates are text.
    values = {"keep_versions": "1", "older_than_days": "14"} | values
    operator = StoreRetentionOperator(task_id="prune", store_uri=store, **values)
    return operator.execute(cast("Any", {}))


@pytest.mark.parametrize("delete", [False, "False"])
def test_it_reports(
    store: str, delete: Any, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    before = objects(store)
    found = execute(store, delete=delete)
    assert objects(store) == before
    assert found["can_go"]["model versions"]["count"] == 2
    assert found["removed"] == {}
    output = capsys.readouterr()
    text = output.out + output.err + caplog.text
    assert "Would go (nothing is removed without --delete)" in text
    assert "in use; one of the newest" in text


@pytest.mark.parametrize("delete", [True, "True"])
def test_it_removes_when_asked_to(store: str, delete: Any) -> None:
    found = execute(store, delete=delete, confirm=delete)
    assert found["removed"] == found["can_go"]
    assert len(registry.list_versions(StoreLayout(store).lineage("default"))) == 2


def test_without_a_confirmation_nothing_goes_when_a_clock_may_be_wrong(store: str) -> None:
    before = objects(store)
    with pytest.raises(AirflowFailException, match="a clock is wrong"):
        execute(store, delete=True, confirm="False")
    assert objects(store) == before


@pytest.mark.parametrize("wrong", [{"keep_versions": "0"}, {"older_than_days": "1"}])
def test_what_is_not_safe_fails_at_once(store: str, wrong: dict[str, str]) -> None:
    with pytest.raises(AirflowFailException, match="at least"):
        execute(store, delete=True, **wrong)
