"""The compose file keeps to its rules, and Compose's own checks would refuse what is missing."""

from __future__ import annotations

import copy
import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from sqlalchemy.engine import make_url

from pipeline_config.settings import Settings, load_settings
from pipeline_metrics.__main__ import PORT, _parser
from tests.verification.compose.compose_file import (
    FOLDER,
    MAIN,
    ComposeFile,
    MissingVariableError,
    Service,
    interpolate,
    read_env_file,
)

CREDENTIALS = FOLDER / "credentials.yaml"
TEXT = MAIN.read_text()
# Images of others; all other services run ours.
FOREIGN = {"postgres", "prometheus", "alertmanager"}
PROFILES = ("tensorboard", "observe")
IDLE = "idle_in_transaction_session_timeout"
AUTH_MANAGER = "team_login.auth_manager.ThrottledFabAuthManager"
# Where optional services listen.
LISTENING = {"ALERTMANAGER_LISTEN", "PROMETHEUS_LISTEN", "TENSORBOARD_LISTEN"}
# May be missing from .env.
REQUIRED = {
    "AIRFLOW_BASE_URL",
    "AIRFLOW_IMAGE",
    "GOOGLE_CLOUD_CONNECTION",
    "GOOGLE_CLOUD_PROJECT",
    "POSTGRES_IMAGE",
    "REPRETRAIN_PRESET",
    "REPRETRAIN_STORE_URI",
    "SECRETS_DIR",
}
Rule = Callable[[dict[str, Service]], Iterator[str]]


def one_image(services: dict[str, Service]) -> Iterator[str]:
    images = {one.body["image"] for name, one in services.items() if name not in FOREIGN}
    if len(images) != 1:
        yield f"more than one image of ours: {images}"


def pinned(services: dict[str, Service]) -> Iterator[str]:
    for name, service in services.items():
        image = service.body["image"]
        if not re.search(r"@sha256:[0-9a-f]{64}$|:v?\d+\.\d+", image) or "build" in service.body:
            yield f"{name} runs {image}"


def unprivileged(services: dict[str, Service]) -> Iterator[str]:
    for name, service in services.items():
        body = service.body
        if service.uid == 0:
            yield f"{name} is root"
        if body.get("cap_drop") != ["ALL"] or body.get("privileged") or body.get("cap_add"):
            yield f"{name} has capabilities"
        if body.get("security_opt") != ["no-new-privileges:true"]:
            yield f"{name} may get new privileges"
        if body.get("read_only") is not True:
            yield f"{name} may write into its image"
        if any("docker.sock" in mount.source for mount in service.mounts):
            yield f"{name} commands the engine"


def healthy(services: dict[str, Service]) -> Iterator[str]:
    for name, service in services.items():
        ends = service.body.get("restart") == "no"
        if not ends and not service.body.get("healthcheck", {}).get("test"):
            yield f"{name} has no health check"
        if not ends and service.body.get("restart") != "unless-stopped":
            yield f"{name} stays down"
        if not ends and "stop_grace_period" not in service.body:
            yield f"{name} is killed after ten seconds"
    if services["scheduler"].seconds("stop_grace_period") < 15 * 60:
        yield "the scheduler does not wait for a TPU's deletion"


def revived(services: dict[str, Service]) -> Iterator[str]:
    """A scheduler that is there and does nothing ends with its container."""
    body, environment = services["scheduler"].body, services["scheduler"].environment
    check = str(body["healthcheck"]["test"])
    if "//127.0.0.1:8974/health" not in check or "os.kill(-1, signal.SIGKILL)" not in check:
        yield "nobody ends a silent scheduler"
    if environment.get("AIRFLOW__SCHEDULER__ENABLE_HEALTH_CHECK") != "true":
        yield "the scheduler tells nobody whether it is alive"
    noted = "touch /tmp/stopping" in str(body["entrypoint"]) and '"/tmp/stopping"' in check
    if not noted:
        yield "a scheduler that waits for its tasks to end counts as silent"
    seconds = int(re.findall(r"SILENT, STARTING = (\d+)", check)[0]) if noted else 0
    if float(str(body["healthcheck"]["timeout"]).rstrip("m")) * 60 < seconds + 10:
        yield "the check is ended before it has an opinion"


def secret(services: dict[str, Service]) -> Iterator[str]:
    """No password or key in the environment; what is secret is a file."""
    for name, service in services.items():
        for variable, value in service.environment.items():
            hidden = re.search(r"PASSWORD|SECRET|_KEY|TOKEN|SQL_ALCHEMY_CONN", variable)
            is_file = variable.endswith(("_CMD", "_FILE")) and value.split()[-1].startswith("/")
            if hidden and not is_file:
                yield f"{name} has {variable} in its environment"


def local(services: dict[str, Service]) -> Iterator[str]:
    for name, service in services.items():
        for port in service.body.get("ports", []):
            if not port.startswith("127.0.0.1:"):
                yield f"{name} listens on {port}"
    if services["postgres"].body.get("ports") or services["postgres"].body["networks"] != [
        "database"
    ]:
        yield "the database can be reached from outside"


def login(services: dict[str, Service]) -> Iterator[str]:
    for name, service in services.items():
        environment = service.environment
        if "AIRFLOW_HOME" in environment and (
            environment.get("AIRFLOW__CORE__AUTH_MANAGER") != AUTH_MANAGER
            or "AIRFLOW__FAB__AUTH_ROLE_PUBLIC" in environment
        ):
            yield f"{name} asks for no login, or looks at any number of passwords"
    prepares = "plugins/team_login/prepare.py /run/secrets/logins; exec airflow"
    if prepares not in " ".join(map(str, services["api-server"].body["entrypoint"])):
        yield "the API server starts without roles and administrator"


def ordered(services: dict[str, Service]) -> Iterator[str]:
    """What runs tasks is stopped before what they report to."""
    for name in ("scheduler", "triggerer", "dag-processor"):
        if services[name].needs != {
            "init": "service_completed_successfully",
            "api-server": "service_healthy",
        }:
            yield f"{name} does not wait for schema and API server"
    for name in ("init", "api-server"):
        if services[name].needs.get("postgres") != "service_healthy":
            yield f"{name} does not wait for the database"


def alone(services: dict[str, Service]) -> Iterator[str]:
    """What a container's main process has started ends with it: the kernel sees to that."""
    for name, service in services.items():
        if service.body.get("init") is not True:
            yield f"{name} may have a main process that waits for others to end"
        if "pid" in service.body:
            yield f"{name} shares processes with others, which outlive it"


def impatient(services: dict[str, Service]) -> Iterator[str]:
    """Locks that a dead scheduler holds are freed; those that a migration holds are not."""
    wanted = {"scheduler", "triggerer"}
    found = {name for name, one in services.items() if IDLE in json.dumps(dict(one.body))}
    if found != wanted:
        yield f"{sorted(found)} lose idle transactions, not {sorted(wanted)}"
    interval = "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL"
    if int(services["scheduler"].environment.get(interval, "300")) > 30:
        yield "tasks that died with a scheduler wait for minutes"


def named(services: dict[str, Service]) -> Iterator[str]:
    """Pages of other sites whose name leads to this machine read no curves."""
    body = services["tensorboard"].body
    if body["entrypoint"] != ["python", "-m", "training.reporting.board"]:
        yield "TensorBoard answers to any name"


RULES: tuple[Rule, ...] = (
    one_image,
    pinned,
    unprivileged,
    healthy,
    revived,
    secret,
    local,
    login,
    ordered,
    alone,
    impatient,
    named,
)

# Rule, service, key, and the value that breaks it; None: the key is not there.
MUTANTS: list[tuple[Rule, str, str, Any]] = [
    (one_image, "triggerer", "image", f"other@sha256:{'1' * 64}"),
    (pinned, "scheduler", "image", "bert-repretraining:latest"),
    (pinned, "postgres", "image", "postgres"),
    (pinned, "reaper", "build", "."),
    (unprivileged, "api-server", "user", "0:0"),
    (unprivileged, "api-server", "cap_drop", None),
    (unprivileged, "api-server", "cap_add", ["SYS_ADMIN"]),
    (unprivileged, "postgres", "security_opt", None),
    (unprivileged, "reaper", "read_only", False),
    (unprivileged, "reaper", "volumes", ["/var/run/docker.sock:/var/run/docker.sock"]),
    (healthy, "triggerer", "healthcheck", None),
    (healthy, "scheduler", "restart", "on-failure"),
    (healthy, "dag-processor", "stop_grace_period", None),
    (healthy, "scheduler", "stop_grace_period", "30s"),
    (revived, "scheduler", "healthcheck", {"test": ["CMD", "true"], "timeout": "3m"}),
    (revived, "scheduler", "environment", {}),
    (revived, "scheduler", "entrypoint", ["airflow"]),
    (secret, "postgres", "environment", {"POSTGRES_PASSWORD": "airflow"}),
    (secret, "scheduler", "environment", {"AIRFLOW__CORE__FERNET_KEY": "x"}),
    (secret, "scheduler", "environment", {"AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": "x"}),
    (local, "api-server", "ports", ["8080:8080"]),
    (local, "postgres", "ports", ["127.0.0.1:5432:5432"]),
    (local, "postgres", "networks", ["default"]),
    (login, "api-server", "environment", {"AIRFLOW_HOME": "/home/airflow/airflow"}),
    (login, "api-server", "entrypoint", ["airflow"]),
    (ordered, "scheduler", "depends_on", {"init": {"condition": "service_started"}}),
    (ordered, "api-server", "depends_on", {}),
    (alone, "scheduler", "init", None),
    (alone, "scheduler", "pid", "host"),
    (impatient, "scheduler", "environment", {}),
    (impatient, "postgres", "command", ["-c", f"{IDLE}=60000"]),
    (named, "tensorboard", "entrypoint", ["python", "-m", "tensorboard.main"]),
]


@pytest.fixture
def compose(settings: dict[str, str]) -> ComposeFile:
    return ComposeFile.load(settings, MAIN)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_file_keeps_to_it(rule: Rule, compose: ComposeFile) -> None:
    assert list(rule(compose.services(*PROFILES))) == []


@pytest.mark.parametrize(
    ("rule", "service", "key", "value"), MUTANTS, ids=lambda one: getattr(one, "__name__", None)
)
def test_a_change_for_the_worse_is_noticed(
    rule: Rule, service: str, key: str, value: Any, compose: ComposeFile
) -> None:
    changed = copy.deepcopy(dict(compose.content))
    if value is None:
        del changed["services"][service][key]
    else:
        changed["services"][service][key] = value
    assert list(rule(ComposeFile(changed).services(*PROFILES))) != []


def test_every_rule_has_a_change_that_it_notices() -> None:
    assert {one[0] for one in MUTANTS} == set(RULES)


@pytest.mark.parametrize("name", sorted(REQUIRED))
def test_what_is_missing_is_named(name: str, settings: dict[str, str]) -> None:
    with pytest.raises(MissingVariableError, match=f"^{name} is missing in .env"):
        ComposeFile.load(settings | {name: ""}, MAIN)


def test_every_variable_is_in_the_example_and_only_those() -> None:
    used = set(re.findall(r"(?<!\$)\$\{(\w+)", TEXT)) - LISTENING
    assert set(read_env_file(FOLDER / ".env.example")) == used
    required = set(re.findall(r"\$\{(\w+):\?", TEXT))
    assert required == REQUIRED
    # None of them has a value in the file itself that somebody might forget to change.
    assert not re.search(r"(?i)\$\{\w*(password|secret|key|token)\w*:-", TEXT)


HIDDEN = "REPRETRAIN_HIDDEN_PATHS"
# The file's own are no settings of a server: they follow from where the file mounts what.
SETTINGS = {f"REPRETRAIN_{name.upper()}" for name in Settings.__dataclass_fields__} - {HIDDEN}


def test_every_setting_of_the_pipeline_is_passed_on(settings: dict[str, str]) -> None:
    wanted = {name: f"wanted {name}" for name in SETTINGS}
    environment = ComposeFile.load(settings | wanted, MAIN).services()["scheduler"].environment
    given = {name: value for name, value in environment.items() if name.startswith("REPRETRAIN_")}
    assert given == wanted | {HIDDEN: environment[HIDDEN]}


def test_what_is_left_empty_is_the_pipelines_default(settings: dict[str, str]) -> None:
    required = SETTINGS & REQUIRED
    left = settings | dict.fromkeys(SETTINGS - required, "")
    environment = ComposeFile.load(left, MAIN).services()["scheduler"].environment
    expected = {name: left[name] for name in required} | {HIDDEN: environment[HIDDEN]}
    assert load_settings(environment) == load_settings(expected)


def test_the_example_leaves_the_pipelines_defaults(settings: dict[str, str]) -> None:
    environment = ComposeFile.load(settings, MAIN).services()["scheduler"].environment
    required = {name: settings[name] for name in SETTINGS & REQUIRED}
    assert load_settings(environment) == load_settings(required | {HIDDEN: environment[HIDDEN]})


def test_secrets_and_airflows_own_files_are_hidden_from_data_jobs(compose: ComposeFile) -> None:
    scheduler = compose.services()["scheduler"]
    assert scheduler.body["secrets"]
    hidden = load_settings(scheduler.environment).hidden_paths
    assert hidden == ("/run/secrets", scheduler.environment["AIRFLOW_HOME"])


def test_volumes_networks_and_secrets_are_declared(compose: ComposeFile) -> None:
    used: dict[str, set[str]] = {"volumes": set(), "networks": set(), "secrets": set()}
    for service in compose.services(*PROFILES).values():
        used["volumes"] |= {one.source for one in service.mounts if one.is_volume}
        used["networks"] |= set(service.body["networks"])
        used["secrets"] |= set(service.body.get("secrets", []))
    for kind, names in used.items():
        assert set(compose.content[kind]) == names
    assert compose.content["networks"]["database"] == {"internal": True}


def test_with_credentials_airflow_and_reaper_act_as_them(settings: dict[str, str]) -> None:
    plain = ComposeFile.load(settings, MAIN).services(*PROFILES)
    given = ComposeFile.load(settings, MAIN, CREDENTIALS).services(*PROFILES)
    assert set(given) == set(plain)
    for name, service in given.items():
        if name in FOREIGN | {"init", "pinned-images"}:
            assert service == plain[name]
            continue
        added = {"GOOGLE_APPLICATION_CREDENTIALS": "/run/secrets/google_credentials"}
        assert service.environment == plain[name].environment | added
        assert service.body["secrets"] == [*plain[name].body["secrets"], "google_credentials"]


def test_commands_are_those_of_the_image(compose: ComposeFile) -> None:
    """No shell splits words: everything is a list, and the loop's dollars are its own."""
    for service in compose.services(*PROFILES).values():
        for key in ("entrypoint", "command"):
            assert isinstance(service.body.get(key, []), list)
    reaper = compose.services()["reaper"].body
    assert reaper["entrypoint"][2] == 'while :; do "$@"; sleep "$REAPER_SECONDS"; done'
    subprocess.run(["sh", "-nc", shlex.quote(reaper["entrypoint"][2])], check=True)


DIGEST = f"sha256:{'1' * 64}"
BY_TAG = ("some/image:1.2", f"some/image:{DIGEST}", f"some/image@sha256:{'1' * 63}")


def started(service: Service, programs: Path) -> subprocess.CompletedProcess[str]:
    """Run a service that looks at images; of Airflow it finds a program that says what it gets."""
    (programs / "airflow").write_text('#!/bin/sh\necho "airflow $*"\n')
    (programs / "airflow").chmod(0o755)
    return subprocess.run(
        [*service.body["entrypoint"], *service.body["command"]],
        env={**service.environment, "PATH": f"{programs}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("variable", ["AIRFLOW_IMAGE", "POSTGRES_IMAGE"])
def test_nothing_starts_on_an_image_by_tag(
    settings: dict[str, str], variable: str, tmp_path: Path
) -> None:
    def init(environment: dict[str, str]) -> Service:
        return ComposeFile.load(environment, MAIN).services()["init"]

    assert started(init(settings), tmp_path).stdout == "airflow db migrate\n"
    for tag in BY_TAG:
        refused = started(init(settings | {variable: tag}), tmp_path)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert f"{tag} in .env is no image by digest" in refused.stderr


@pytest.mark.parametrize("name", ["prometheus", "alertmanager"])
def test_nothing_observes_by_an_image_by_tag(
    settings: dict[str, str], name: str, tmp_path: Path
) -> None:
    pinned_file = tmp_path / "compose.yaml"

    def services(text: str) -> dict[str, Service]:
        pinned_file.write_text(text)
        return ComposeFile.load(settings, pinned_file).services("observe")

    named = {one: services(TEXT)[one].body["image"] for one in ("prometheus", "alertmanager")}
    text = TEXT
    for image in named.values():
        text = text.replace(f" {image}\n", f" {image.partition('@')[0]}@{DIGEST}\n")
    found = services(text)
    assert found[name].needs == {"pinned-images": "service_completed_successfully"}
    assert started(found["pinned-images"], tmp_path).returncode == 0
    for tag in BY_TAG:
        changed = text.replace(f" {found[name].body['image']}\n", f" {tag}\n")
        refused = started(services(changed)["pinned-images"], tmp_path)
        assert refused.returncode == 1
        assert f"{tag} in docker/compose/compose.yaml is no image by digest" in refused.stderr


def test_prometheus_asks_services_that_there_are(compose: ComposeFile) -> None:
    services = compose.services("observe")
    content = yaml.safe_load((FOLDER / "observe" / "prometheus.yaml").read_text())
    [job] = content["scrape_configs"]
    [manager] = content["alerting"]["alertmanagers"]
    asked = [one["static_configs"] for one in (job, manager)]
    assert asked == [[{"targets": [f"metrics:{PORT}"]}], [{"targets": ["alertmanager:9093"]}]]
    serve = _parser().parse_args(services["metrics"].body["command"])
    # Only the containers of the server reach it.
    assert "ports" not in services["metrics"].body
    assert (serve.host, serve.port) == ("0.0.0.0", PORT)  # noqa: S104
    for name in ("prometheus", "alertmanager"):
        [config] = [w for w in services[name].body["command"] if w.startswith("--config.file=")]
        [place] = [one for one in services[name].mounts if not one.is_volume]
        folder, _, file = config.partition("=")[2].rpartition("/")
        assert (place.source, place.target, place.read_only) == ("./observe", folder, True)
        assert (FOLDER / "observe" / file).is_file()


OPTIONS = "options=-c%20statement_timeout%3D5"
DATABASES = ["", "?sslmode=require", f"?{OPTIONS}", f"?sslmode=require&{OPTIONS}"]


@pytest.mark.parametrize("given", DATABASES)
def test_the_schedulers_address_of_the_database_is_the_secret_one_with_a_limit(
    compose: ComposeFile, tmp_path: Path, given: str
) -> None:
    secret = tmp_path / "database_url"
    secret.write_text(f"postgresql+psycopg2://airflow:p-_w@postgres:5432/airflow{given}")
    scheduler = compose.services()["scheduler"].environment
    command = scheduler["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_CMD"]
    # Airflow runs it so: without a shell of its own, the output taken as it is.
    words = shlex.split(command.replace("/run/secrets/database_url", str(secret)))
    url = make_url(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    assert (url.password, url.host, url.database) == ("p-_w", "postgres", "airflow")
    own = "-c statement_timeout=5 " if OPTIONS in given else ""
    assert url.query["options"] == f"{own}-c {IDLE}=60000"
    assert url.query.get("sslmode") == ("require" if "sslmode" in given else None)


@pytest.mark.parametrize("given", ["postgresql+psycopg2", "postgresql", "postgres"])
@pytest.mark.parametrize("part", ["scheduler", "triggerer"])
def test_the_asynchronous_address_is_the_secret_one_without_the_limit(
    compose: ComposeFile, tmp_path: Path, part: str, given: str
) -> None:
    secret = tmp_path / "database_url"
    secret.write_text(f"{given}://airflow:p-_w@postgres:5432/airflow")
    command = compose.services()[part].environment["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_ASYNC_CMD"]
    words = shlex.split(command.replace("/run/secrets/database_url", str(secret)))
    said = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    # asyncpg.connect() knows no argument `options`.
    assert said == "postgresql+asyncpg://airflow:p-_w@postgres:5432/airflow"


def test_interpolation_is_that_of_the_specification() -> None:
    given = {"SET": "x", "EMPTY": ""}
    assert interpolate({"a": ["$${SET} ${SET} ${EMPTY:-y} ${NONE}"]}, given) == {
        "a": ["${SET} x y "]
    }
    with pytest.raises(MissingVariableError, match="say it"):
        interpolate("${EMPTY:?say it}", given)


def test_the_file_is_one_that_compose_takes(server: Path) -> None:
    command = ["docker", "compose", "version"]
    if (
        shutil.which("docker") is None
        or subprocess.run(command, capture_output=True, check=False).returncode
    ):
        pytest.skip("needs docker compose")
    variables = dict.fromkeys(REQUIRED - {"SECRETS_DIR"}, "1.0")
    done = subprocess.run(
        ["docker", "compose", "-f", str(server / "compose.yaml"), "config", "-q"],
        env={"PATH": "/usr/bin:/bin", "HOME": str(server), "SECRETS_DIR": "./secrets"} | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_every_file_is_yaml_without_repeated_keys() -> None:
    for path in FOLDER.glob("*.yaml"):
        keys = [
            (node.start_mark.line, [key.value for key, _ in node.value if key.value != "<<"])
            for node in _mappings(yaml.compose(path.read_text()))
        ]
        assert all(len(names) == len(set(names)) for _, names in keys), path


def _mappings(node: yaml.Node | None) -> Iterator[yaml.MappingNode]:
    if isinstance(node, yaml.MappingNode):
        yield node
        for _, value in node.value:
            yield from _mappings(value)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            yield from _mappings(value)
