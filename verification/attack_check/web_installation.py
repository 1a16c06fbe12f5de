"""Fills an installation with content, for the attacks on its web server.

Each address leads to an existing object, so that a refusal is a real one: a missing object is not
found by anyone.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from local.stack.paths import REPOSITORY
from pipeline_store import uris
from tests.model_registry.retained import line_of_models
from tests.model_registry.runs import FinishedRun
from tests.model_registry.smaller_models import TRIAL

ROLLBACK_DAG = "model_rollback"
_DAG, _RUN, _TASK = "bert_repretraining", "attacked", "validate"
_NAME = "attacked"
"""Name of the connection, the pool and the variable."""
SECRET = "zq7 nobody reads this"  # noqa: S105 - of an installation that goes at once
"""Secret in the connection and in a variable whose name marks it as secret."""


@dataclass(frozen=True)
class Installation:
    """The objects that attacks refer to.

    :ivar names: object names by path parameter.
    :ivar pages: by path, the query with which each of our pages shows content.
    :ivar run: the run whose model is in use; the run before it also has a model.
    """

    names: Mapping[str, str]
    pages: Mapping[str, Mapping[str, str]]
    run: FinishedRun

    def address(self, path: str) -> str:
        """Return the address of an existing object; unknown path parameters become 1."""
        # Endpoints that list by POST take only all DAGs, and no other name.
        names = dict.fromkeys(self.names, "~") if path.endswith("/list") else self.names
        return re.sub(r"\{(\w+)[^}]*\}", lambda part: names.get(part[1], "1"), path)

    def doors(self, app: Any, before: str = "") -> Iterator[tuple[str, str]]:
        """Yield method and address of all endpoints of an application."""
        for route in app.routes:
            path = before + getattr(route, "path", "")
            if methods := getattr(route, "methods", None):
                known = sorted(methods - {"HEAD", "OPTIONS"})
                yield from ((method, self.address(path)) for method in known)
            elif "/execution" not in path and hasattr(getattr(route, "app", None), "routes"):
                yield from self.doors(route.app, path)


def fill(admin: Any) -> Installation:
    """Fill database and store; return the content.

    :param admin: client of the application, logged in as an administrator.
    :raises RuntimeError: the application refuses a request.
    """
    parse_dag(_DAG)
    parse_dag(ROLLBACK_DAG)
    for path, body in (
        (f"dags/{_DAG}/dagRuns", {"dag_run_id": _RUN, "logical_date": None, "conf": {}}),
        (
            "connections",
            {
                "connection_id": _NAME,
                "conn_type": "http",
                "password": SECRET,
                "extra": json.dumps({"token": SECRET}),
            },
        ),
        ("pools", {"name": _NAME, "slots": 1}),
        ("variables", {"key": _NAME, "value": "x"}),
        ("variables", {"key": f"{_NAME}_secret", "value": SECRET}),
    ):
        answer = admin.post(f"/api/v2/{path}", json=body)
        if not answer.is_success:
            raise RuntimeError(f"{path}: {answer.status_code} {answer.text[:500]}")
    _add_backfill()
    token = admin.get(f"/api/v2/dags/{_DAG}").json()["file_token"]
    run = line_of_models(os.environ["REPRETRAIN_STORE_URI"], 2)[-1]
    uris.write(run.run.training_page, b"<p>It has paid.</p>")
    uris.write(run.run.children(TRIAL).page, b"<p>They are smaller.</p>")
    _build_documentation()
    names = {
        "dag_id": _DAG,
        "dag_run_id": _RUN,
        "run_id": _RUN,
        "task_id": _TASK,
        "task_group_id": "data",
        "map_index": "-1",
        "connection_id": _NAME,
        "pool_name": _NAME,
        "variable_key": _NAME,
        "file_token": token,
    }
    return Installation(names, _pages(run), run)


def _pages(run: FinishedRun) -> dict[str, dict[str, str]]:
    from pages import routes

    of_run = {"dag_id": "dag", "run_id": run.name}
    of_version = {"lineage": "default", "version": run.version_id}
    usual = {
        "/run": of_run,
        "/data-report": of_run | {"partition": run.partition},
        "/data-report-text": of_run | {"partition": run.partition},
        "/training-summary": of_run,
        "/training-summary-text": of_run,
        "/children": of_run | {"trial": TRIAL},
        "/children-text": of_run | {"trial": TRIAL},
        "/models": {"lineage": "default"},
        "/compare": {"lineage": "default"},
        "/card": of_version,
        "/download": of_version,
    }
    paths = [route.path for route in routes.application().routes]  # type: ignore[attr-defined]
    addresses = [path.replace("{path:path}", "index.html") for path in paths]
    return {f"/repretraining{path}": usual.get(path, {}) for path in addresses}


def _build_documentation() -> None:
    """Create a site of one page, as a checkout has the real one only after ``make docs``."""
    from pages import documentation

    documentation.SITE = Path(os.environ["AIRFLOW_HOME"]) / "site"
    documentation.SITE.mkdir()
    (documentation.SITE / "index.html").write_text("<p>Where to begin.</p>")


def parse_dag(name: str) -> None:
    """Parse a DAG's file and write the DAG to the database.

    :raises RuntimeError: it cannot be parsed.
    """
    from airflow.dag_processing.bundles.manager import DagBundlesManager
    from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db

    DagBundlesManager().sync_bundles_to_db()
    folder = REPOSITORY / "dags"
    bag = DagBag(folder / f"{name}.py", bundle_path=folder, bundle_name="dags-folder")
    if bag.import_errors or name not in bag.dags:
        raise RuntimeError(f"The DAG {name} cannot be parsed: {bag.import_errors}")
    sync_bag_to_db(bag, "dags-folder", None)


def _add_backfill() -> None:
    """Add a backfill, which gets id 1; through Airflow it would need dates in the past."""
    from airflow.models.backfill import Backfill
    from airflow.utils.session import create_session

    with create_session() as session:
        day = datetime(2026, 1, 1, tzinfo=UTC)
        session.add(Backfill(dag_id=_DAG, from_date=day, to_date=day))
