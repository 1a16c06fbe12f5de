"""The pages over a store that finished runs have left, without Airflow's login."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from model_registry import registry
from pages import routes
from pipeline_store.layout import StoreLayout
from tests.model_registry.runs import FinishedRun

DAG_ID = "dag"
"""Of the runs that the registry's tests make; their run ids are `1`, `2`, …"""


class Site:
    """The pages over a store, without Airflow's login."""

    def __init__(self, store: StoreLayout) -> None:
        self.store = store
        app = routes.application.__wrapped__()
        for login in (routes.may_read_runs, routes.may_read_models):
            app.dependency_overrides[login.dependency] = lambda: None
        self.client = TestClient(app)

    @classmethod
    def over(cls, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
        """Return the pages of an installation whose store is a folder; no DAG is paused."""
        monkeypatch.setenv("REPRETRAIN_STORE_URI", str(folder))
        monkeypatch.setenv("REPRETRAIN_PRESET", "smoke")
        monkeypatch.setattr(routes, "is_paused", lambda _dag_id: False)
        return cls(StoreLayout(str(folder)))

    def get(self, path: str, **query: str) -> str:
        answer = self.client.get(path, params=query)
        assert answer.status_code == 200, answer.text
        return answer.text

    def status(self, path: str, **query: str) -> int:
        return self.client.get(path, params=query).status_code


def finished(site: Site, name: str, *, parent: str | None = None) -> FinishedRun:
    return FinishedRun(site.store.root, name, parent=parent)


def publish(made: FinishedRun, baseline: str | None = None) -> None:
    registry.publish(made.store, made.run)
    registry.promote(made.lineage, made.version_id, expected_baseline=baseline, reason="better")


def run_page(site: Site, made: FinishedRun) -> str:
    return site.get("/run", dag_id=DAG_ID, run_id=made.partition.removeprefix("day-"))
