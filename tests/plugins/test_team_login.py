"""The login of a team server: real API server, two processes, PostgreSQL, FAB's auth manager."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import create_engine, text

from local.stack import ports, settings
from local.stack.paths import RuntimePaths

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-team" / "bin" / "python"
PAGE = (ROOT / "docs" / "guides" / "team-login.md").read_text()
DAG, APPROVE = "bert_repretraining", "promotion.approve"
PASSWORD = "not easily guessed"  # noqa: S105 - of a test
ROLES = ("viewer", "operator", "approver")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not PYTHON.exists(), reason="make it: make team-login-check"),
]

OTHERS_DAG = """
from airflow.sdk import DAG

dag = DAG("of_somebody_else", schedule=None)
"""


@dataclass
class Server:
    url: str
    runtime: RuntimePaths
    environment: dict[str, str]
    tokens: dict[str, str] = field(default_factory=dict)

    def ask(self, role: str, method: str, path: str, **options: Any) -> httpx.Response:
        """Ask as the person of a role."""
        headers = {"Authorization": f"Bearer {self.tokens[role]}"}
        return self.send(method, path, headers=headers, **options)

    def send(self, method: str, path: str, **options: Any) -> httpx.Response:
        with httpx.Client(base_url=self.url, trust_env=False, timeout=120) as client:
            return client.request(method, path, **options)

    def log_in(self, name: str, password: str = PASSWORD) -> httpx.Response:
        body = {"username": name, "password": password}
        return self.send("POST", "/auth/token", json=body)

    def sql(self, statement: str, **values: Any) -> list[Any]:
        engine = create_engine(settings.database_url("+psycopg2", self.runtime))
        with engine.begin() as connection:
            found = connection.execute(text(statement), values)
            rows = list(found) if found.returns_rows else []
        engine.dispose()
        return rows

    def new_run(self) -> str:
        """Return a run that waits, as its DAG is paused; made by the administrator."""
        body = {"logical_date": None, "conf": {}}
        answer = self.ask("Admin", "POST", f"/api/v2/dags/{DAG}/dagRuns", json=body)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["dag_run_id"])

    def asked(self, *people: str) -> str:
        """Return a run whose task `approve` asks somebody; without names anybody."""
        run = self.new_run()
        [[task]] = self.sql(
            "SELECT id FROM task_instance WHERE run_id = :run AND task_id = :task",
            run=run,
            task=APPROVE,
        )
        self.sql(
            "INSERT INTO hitl_detail (ti_id, options, subject, params, params_input, assignees,"
            " multiple, created_at) VALUES (:task, '[\"Approve\", \"Reject\"]', 'Use?', '{}', '{}',"
            " :assignees, false, now())",
            task=task,
            assignees=json.dumps([{"id": one, "name": one} for one in people]),
        )
        return run

    def answer(self, role: str, run: str) -> httpx.Response:
        path = f"/api/v2/dags/{DAG}/dagRuns/{run}/taskInstances/{APPROVE}/-1/hitlDetails"
        body = {"chosen_options": ["Reject"], "params_input": {}}
        return self.ask(role, "PATCH", path, json=body)


def run(environment: dict[str, str], *words: str | Path) -> None:
    command = [str(PYTHON), "-P", *map(str, words)]
    done = subprocess.run(
        command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{words}: {done.stdout[-2000:]}{done.stderr[-3000:]}"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    # The database's socket has to have a short path.
    with tempfile.TemporaryDirectory(prefix="tl-", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        made = _made(folder)
        postgres = subprocess.Popen(
            [
                *(PYTHON, "-P", "-m", "local.stack.postgres"),
                *("--data-dir", folder / "data", "--socket-dir", made.runtime.database),
            ],
            env=made.environment,
            cwd=ROOT,
        )
        try:
            _until(lambda: made.sql("SELECT 1"), postgres)
            with _api_server(made, folder) as process:
                _until(lambda: made.send("GET", "/api/v2/version").raise_for_status(), process)
                for role in ROLES:
                    made.tokens[role] = made.log_in(f"{role}-ann").json()["access_token"]
                made.tokens["Admin"] = made.log_in("admin").json()["access_token"]
                yield made
        finally:
            postgres.send_signal(signal.SIGINT)
            postgres.wait(timeout=60)


def _made(folder: Path) -> Server:
    runtime = RuntimePaths(folder)
    runtime.database.mkdir()
    (folder / "others").mkdir()
    (folder / "others" / "other.py").write_text(OTHERS_DAG)
    local = "airflow.dag_processing.bundles.local.LocalDagBundle"
    bundles = [
        {"name": "ours", "classpath": local, "kwargs": {"path": str(ROOT / "dags")}},
        {"name": "others", "classpath": local, "kwargs": {"path": str(folder / "others")}},
    ]
    port = ports.choose((settings.API_SERVER,), {})[settings.API_SERVER]
    url = settings.url(port)
    environment = {
        "PATH": f"{PYTHON.parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(folder),
        "PYTHONPATH": str(ROOT),
        "AIRFLOW_HOME": str(folder / "airflow"),
        "AIRFLOW__CORE__AUTH_MANAGER": "team_login.auth_manager.ThrottledFabAuthManager",
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(ROOT / "plugins"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "false",
        "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps(bundles),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": settings.database_url("+psycopg2", runtime),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_ASYNC": settings.database_url("+asyncpg", runtime),
        "AIRFLOW__API__BASE_URL": url,
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__EXPOSE_CONFIG": "true",
        "AIRFLOW__API_AUTH__JWT_SECRET": "sixty-four letters" * 4,
        "AIRFLOW__API__SECRET_KEY": "of a test",
        "AIRFLOW__FAB__UPDATE_FAB_PERMS": "false",
        "REPRETRAIN_STORE_URI": str(folder / "store"),
        "REPRETRAIN_PRESET": "smoke",
    }
    return Server(url, runtime, environment)


class _api_server:  # noqa: N801 - used as a function
    """The API server with two worker processes, after what the guide says of the first start."""

    def __init__(self, server: Server, folder: Path) -> None:
        environment = server.environment
        logins = folder / "logins"
        logins.write_text(json.dumps({"admin": PASSWORD}))
        run(environment, "-m", "airflow", "db", "migrate")
        for _ in ("first start", "second start"):
            run(environment, "plugins/team_login/prepare.py", logins)
        for role in ROLES:
            words = ["users", "create", "--role", role, "--username", f"{role}-ann"]
            words += ["--email", f"{role}@example.com", "--firstname", "Ann", "--lastname", "Lee"]
            run(environment, "-m", "airflow", *words, "--password", PASSWORD)
        run(environment, "-m", "airflow", "dags", "reserialize")
        self._log = (folder / "api-server.log").open("wb")
        self._process = subprocess.Popen(
            [
                *(PYTHON, "-P", "-m", "airflow", "api-server"),
                *("--host", "127.0.0.1", "--workers", "2"),
            ],
            env=environment,
            cwd=ROOT,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )

    def __enter__(self) -> subprocess.Popen[bytes]:
        return self._process

    def __exit__(self, *_: object) -> None:
        os.killpg(self._process.pid, signal.SIGTERM)
        try:
            self._process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
        print(Path(self._log.name).read_text()[-3000:])
        self._log.close()


def _until(look: Callable[[], object], process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 600
    while True:
        try:
            look()
        except Exception:
            assert process.poll() is None, "it has ended"
            if time.monotonic() > end:
                raise
            time.sleep(0.5)
        else:
            return


def trigger(dag: str, **conf: Any) -> Callable[[Server, str], httpx.Response]:
    path = f"/api/v2/dags/{dag}/dagRuns"
    return lambda server, role: server.ask(
        role, "POST", path, json={"logical_date": None, "conf": conf}
    )


def pause(*dags: str) -> Callable[[Server, str], list[httpx.Response]]:
    return lambda server, role: [
        server.ask(role, "PATCH", f"/api/v2/dags/{dag}", json={"is_paused": True}) for dag in dags
    ]


def pages(server: Server, role: str) -> list[httpx.Response]:
    tab = f"/repretraining/run?dag_id={DAG}&run_id={server.new_run()}"
    # The lineage of a new installation has no model, which only those are told who may ask.
    paths = ("/api/v2/plugins", tab, "/repretraining/models", "/repretraining/spending")
    return [server.ask(role, "GET", path) for path in paths]


def look(server: Server, role: str) -> list[httpx.Response]:
    at = f"/api/v2/dags/{DAG}"
    paths = ("", "/dagRuns", f"/dagRuns/{server.new_run()}/taskInstances")
    return [server.ask(role, "GET", at + path) for path in paths]


def backfill(server: Server, role: str) -> httpx.Response:
    days = {"from_date": "2026-01-01T00:00:00Z", "to_date": "2026-01-02T00:00:00Z"}
    return server.ask(role, "POST", "/api/v2/backfills/dry_run", json={"dag_id": DAG, **days})


def announce(server: Server, role: str) -> httpx.Response:
    assets = server.ask("Admin", "GET", "/api/v2/assets").json()["assets"]
    [number] = [one["id"] for one in assets if one["name"] == "corpus_partition"]
    return server.ask(role, "POST", "/api/v2/assets/events", json={"asset_id": number})


def stop(server: Server, role: str) -> httpx.Response:
    path = f"/api/v2/dags/{DAG}/dagRuns/{server.new_run()}"
    return server.ask(role, "PATCH", path, json={"state": "failed"})


def repeat(server: Server, role: str) -> httpx.Response:
    body = {"dag_run_id": server.new_run(), "task_ids": ["validate"], "only_failed": False}
    path = f"/api/v2/dags/{DAG}/clearTaskInstances"
    return server.ask(role, "POST", path, json={**body, "dry_run": False})


def change_xcom(server: Server, role: str) -> httpx.Response:
    path = f"/api/v2/dags/{DAG}/dagRuns/{server.new_run()}/taskInstances/validate/xcomEntries"
    return server.ask(role, "POST", path, json={"key": "tasks", "value": "none"})


def change_variables(server: Server, role: str) -> httpx.Response:
    body = {"key": f"of-{role}", "value": "x"}
    return server.ask(role, "POST", "/api/v2/variables", json=body)


def make_people(server: Server, role: str) -> httpx.Response:
    body = {
        "username": f"made-by-{role}",
        "email": f"made-by-{role}@example.com",
        "first_name": "Bob",
        "last_name": "Lee",
        "password": PASSWORD,
        "roles": [{"name": "Admin"}],
    }
    return server.ask(role, "POST", "/auth/fab/v1/users", json=body)


def delete_run(server: Server, role: str) -> httpx.Response:
    return server.ask(role, "DELETE", f"/api/v2/dags/{DAG}/dagRuns/{server.new_run()}")


def change_own_password(server: Server, role: str) -> httpx.Response:
    """Log in by the form, as nothing else has a session, and change the password to the same."""
    name = "admin" if role == "Admin" else f"{role}-ann"
    with httpx.Client(
        base_url=server.url, trust_env=False, timeout=120, follow_redirects=True
    ) as client:

        def send(path: str, **values: str) -> httpx.Response:
            token = re.search(r'name="csrf_token"[^>]*value="([^"]+)"', client.get(path).text)
            assert token, path
            return client.post(path, data={"csrf_token": token[1], **values})

        send("/auth/login/", username=name, password=PASSWORD)
        return send("/auth/resetmypassword/form", password=PASSWORD, conf_password=PASSWORD)


Asked = httpx.Response | list[httpx.Response]
CELLS: dict[str, Callable[[Server, str], Asked]] = {
    "see runs, tasks, logs": look,
    "see the pages Model, Models, Spending": pages,
    "change the own password": change_own_password,
    "trigger `bert_repretraining`": trigger(DAG),
    "trigger `bert_finetuning`": trigger("bert_finetuning"),
    "start a backfill": backfill,
    "announce a partition by REST": announce,
    "stop a run: mark it as failed": stop,
    "repeat a task: clear it": repeat,
    "pause `bert_repretraining`": pause(DAG),
    "approve or reject a better candidate": lambda server, role: server.answer(
        role, server.asked()
    ),
    "roll back: trigger `model_rollback`": trigger("model_rollback", reason="a test"),
    "remove old things: trigger `store_retention`": trigger("store_retention"),
    "pause `tpu_reaper` or `pipeline_watch`": pause("tpu_reaper", "pipeline_watch"),
    "delete a run": delete_run,
    "change what a task has returned (XCom)": change_xcom,
    "see connections": lambda server, role: server.ask(role, "GET", "/api/v2/connections"),
    "change variables": change_variables,
    "see Airflow's configuration": lambda server, role: server.ask(role, "GET", "/api/v2/config"),
    "see the DAGs of somebody else": lambda server, role: server.ask(
        role, "GET", "/api/v2/dags/of_somebody_else"
    ),
    "make people and roles": make_people,
}


def table() -> dict[str, dict[str, str]]:
    """Return the table of the guide: what each role may do."""
    head, _, *rows = (
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in PAGE.partition("## Roles")[2].partition("\nOperators")[0].splitlines()
        if line.startswith("|")
    )
    return {row[0]: dict(zip(head[1:], row[1:], strict=True)) for row in rows}


def test_the_guide_and_these_tests_are_about_the_same() -> None:
    assert list(table()) == list(CELLS)
    assert {word for row in table().values() for word in row.values()} == {"yes", "no"}


@pytest.mark.parametrize("what", CELLS)
def test_each_role_may_do_what_the_guide_says(server: Server, what: str) -> None:
    found = {}
    for role in (*ROLES, "Admin"):
        answers = CELLS[what](server, role)
        answers = answers if isinstance(answers, list) else [answers]
        assert all(one.status_code < 500 for one in answers), [one.text for one in answers]
        refused = {one.status_code in (401, 403) for one in answers}
        assert len(refused) == 1, [(one.url, one.status_code) for one in answers]
        found[role] = "no" if refused == {True} else "yes"
        if found[role] == "yes" and what != "see the pages Model, Models, Spending":
            assert all(one.is_success for one in answers), [one.text for one in answers]
    assert found == table()[what]


def test_lists_show_no_dag_of_somebody_else(server: Server) -> None:
    def names(role: str) -> set[str]:
        found = server.ask(role, "GET", "/api/v2/dags", params={"limit": 100}).json()["dags"]
        return {one["dag_id"] for one in found}

    assert names("Admin") - names("approver") == {"of_somebody_else"}
    assert names("viewer") == names("approver") >= {DAG, "model_rollback", "tpu_reaper"}


def test_a_run_of_another_dag_is_no_way_to_roll_back(server: Server) -> None:
    """The asset that a rollback announces can be asked for, which would run the DAG."""
    assets = server.ask("Admin", "GET", "/api/v2/assets").json()["assets"]
    [number] = [one["id"] for one in assets if one["name"] == "promoted_model"]
    answer = server.ask("operator", "POST", f"/api/v2/assets/{number}/materialize", json={})
    assert answer.status_code in (403, 409), answer.text


def test_a_question_is_answered_by_those_who_are_named(server: Server) -> None:
    run_id = server.asked("bob", "viewer-ann")
    assert server.answer("approver", run_id).status_code == 403
    # Being named is not enough, either: answering is a right of the role.
    assert server.answer("viewer", run_id).status_code == 403
    assert server.answer("approver", server.asked("bob", "approver-ann")).status_code == 200


def test_nobody_else_gets_in(server: Server) -> None:
    assert server.send("GET", f"/api/v2/dags/{DAG}").status_code == 401
    assert server.send("GET", "/repretraining/models").status_code == 401
    for name, password in (("admin", "admin"), ("nobody", PASSWORD), ("viewer-ann", "")):
        assert server.log_in(name, password).status_code in (400, 401)


def failures(server: Server) -> list[str | None]:
    rows = server.sql("SELECT owner FROM log WHERE event = 'login_failed'")
    return [owner for [owner] in rows]


@pytest.fixture
def later(server: Server) -> Callable[[], object]:
    """Return a function that lets two minutes pass; they have when the test begins."""

    def passes() -> object:
        return server.sql(
            "UPDATE log SET dttm = dttm - interval '2 minutes' WHERE event = 'login_failed'"
        )

    passes()
    return passes


@pytest.mark.parametrize(
    "names", [("operator-ann",), ("OPERATOR-ann", "operator@example.com"), ("no-such-person",)]
)
def test_wrong_passwords_are_counted_over_all_processes(
    server: Server, later: Callable[[], object], names: tuple[str, ...]
) -> None:
    tries = [names[number % len(names)] for number in range(30)]
    before = len(failures(server))
    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(lambda name: server.log_in(name, "wrong"), tries))
    codes = [answer.status_code for answer in answers]
    assert set(codes) == {401, 429}
    # Of tries at one moment fewer may be let through, never more.
    assert 1 <= codes.count(401) <= 10
    assert len(failures(server)) - before == codes.count(401)
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert 1 <= int(refused.headers["Retry-After"]) <= 60
    assert "Try again in" in refused.text
    while server.log_in(names[0], "wrong").status_code == 401:
        pass
    if "no-such-person" not in names:
        assert server.log_in(names[0]).status_code == 429
        later()
        assert server.log_in(names[0]).status_code == 201
    # Invented names are not written down: they may be passwords.
    people = {"admin", *(f"{role}-ann" for role in ROLES)}
    assert set(failures(server)) <= people | {None}


def test_right_passwords_do_not_count(server: Server, later: Callable[[], object]) -> None:
    later()
    before = failures(server)
    assert {server.log_in("viewer-ann").status_code for _ in range(12)} == {201}
    assert failures(server) == before


def test_the_form_counts_as_well(server: Server, later: Callable[[], object]) -> None:
    later()
    for _ in range(10):
        assert server.log_in("approver-ann", "wrong").status_code == 401
    with httpx.Client(base_url=server.url, trust_env=False, timeout=120) as client:
        page = client.get("/auth/login/").text
        token = re.search(r'name="csrf_token"[^>]*value="([^"]+)"', page)
        assert token
        body = {"csrf_token": token[1], "username": "approver-ann", "password": PASSWORD}
        assert client.post("/auth/login/", data=body).status_code == 429
