"""The pages inside the real API server: who may see them, and where Airflow shows them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hooks.addresses import SITE

REPOSITORY = Path(__file__).parents[2]

UNKNOWN = (
    *("/card", "/download", "/models", "/compare"),
    *("/data-report", "/data-report-text", "/training-summary", "/training-summary-text"),
    *("/children", "/children-text"),
)
"""Pages about something that the address names."""

# In a process of its own: an API server reads its settings from the environment, once.
ASK = """
import json
from airflow.utils.db import initdb

initdb()
from airflow.api_fastapi.app import create_app, get_auth_manager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from fastapi.testclient import TestClient

app = create_app("core")
import sys
early = "pages.routes" in sys.modules
manager = get_auth_manager()

def token(role):
    return manager.generate_jwt(SimpleAuthManagerUser(username="ada", role=role))

who = {"nobody": None, "forged": "a.b.c", "roleless": token(None), "viewer": token("viewer")}
from pages.routes import application

paths = [route.path for route in application().routes]
query = "?dag_id=bert_repretraining&run_id=x&lineage=default&version=v&partition=p&trial=t"
answers = {}
for name, cookie in who.items():
    client = TestClient(app, cookies={"_token": cookie} if cookie else {})
    for path in paths:
        answers[f"{name} {path}"] = client.get(f"/below/repretraining{path}{query}").status_code
bearer = {"Authorization": "Bearer " + who["viewer"]}
client = TestClient(app)
admin = {"Authorization": "Bearer " + token("admin")}
found = client.get("/below/api/v2/plugins", headers=admin).json()
views = [view for plugin in found["plugins"] for view in plugin["external_views"]]
from pages.routes import is_paused

client = TestClient(app, cookies={"_token": who["viewer"]})
nul = {
    f"{path} {name}": client.get(f"/below/repretraining{path}{query}&{name}=a%00b").text
    for path in paths
    for name in ("dag_id", "run_id", "lineage", "unknown")
}

print("RESULT " + json.dumps({
    "nul": nul,
    "paused": is_paused("of no file"),
    "early": early,
    "paths": paths,
    "answers": answers,
    "bearer": client.get("/below/repretraining/models", headers=bearer).status_code,
    "views": {view["url_route"]: [view["destination"], view["href"]] for view in views},
}))
"""


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    home = tmp_path_factory.mktemp("airflow")
    environment = {
        "PATH": str(Path(sys.executable).parent),
        "HOME": str(home),
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(REPOSITORY / "plugins"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "false",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "false",
        "AIRFLOW__API__BASE_URL": "http://airflow.example/below",
        "REPRETRAIN_STORE_URI": str(home / "store"),
        "REPRETRAIN_PRESET": "smoke",
        "PYTHONPATH": str(REPOSITORY),
    }
    result = subprocess.run(
        [sys.executable, "-c", ASK], env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr[-3000:]
    line = next(line for line in result.stdout.splitlines() if line.startswith("RESULT "))
    content: dict[str, Any] = json.loads(line.removeprefix("RESULT "))
    return content


def answers(asked: dict[str, Any], who: str) -> dict[str, int]:
    return {path: asked["answers"][f"{who} {path}"] for path in asked["paths"]}


def test_there_are_pages(asked: dict[str, Any]) -> None:
    pages = {"/run", "/models", "/compare", "/card", "/data-report", "/training-summary"}
    assert pages <= set(asked["paths"])


def test_airflow_is_asked_whether_a_dag_is_paused(asked: dict[str, Any]) -> None:
    assert asked["paused"] is False


def test_nothing_is_shown_without_a_login(asked: dict[str, Any]) -> None:
    assert set(answers(asked, "nobody").values()) == {401}
    assert set(answers(asked, "forged").values()) <= {401, 403}


def test_nothing_is_shown_to_those_who_may_not_read_the_dag(asked: dict[str, Any]) -> None:
    assert set(answers(asked, "roleless").values()) == {403}


def test_those_who_may_read_the_dag_see_all_pages(asked: dict[str, Any]) -> None:
    shown = answers(asked, "viewer")
    # What the store does not know is not found; that is said to those only who may ask.
    for page in UNKNOWN:
        assert shown.pop(page) == 404
    # No page of the documentation has such a name; its first one is there where it was built.
    assert shown.pop("/docs/{path:path}") == 404
    assert shown.pop("/docs") == (200 if SITE.is_dir() else 404)
    assert set(shown.values()) == {200}
    assert asked["bearer"] == 200


def test_a_nul_in_an_address_is_refused_before_the_database_is_asked(asked: dict[str, Any]) -> None:
    said = "This address has a NUL character (%00). Open one without it."
    assert {place for place, text in asked["nul"].items() if said not in text} == set()


def test_airflow_shows_them_where_people_look(asked: dict[str, Any]) -> None:
    # Airflow lies below a path of its host here, which an address has to say.
    home = "/below/repretraining"
    assert asked["views"]["model"] == [
        "dag_run",
        f"{home}/run?dag_id={{DAG_ID}}&run_id={{RUN_ID}}",
    ]
    assert asked["views"]["models"] == ["nav", f"{home}/models"]


def test_no_other_component_of_airflow_loads_the_pages(asked: dict[str, Any]) -> None:
    assert not asked["early"]
