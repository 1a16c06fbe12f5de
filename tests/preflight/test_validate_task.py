"""The validate task makes the checks of the command, with its connection's own credentials."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from operators.validate import ValidateRunOperator
from pipeline_config.loading import parse_overrides
from pipeline_store import identity, uris
from pipeline_store.layout import StoreLayout
from tests.preflight.cloud_world import CloudWorld
from tests.preflight.google_stub import PROJECT

DAY = "2026-01-31"
CONN_ID = "my_cloud"


@pytest.fixture
def world(world: CloudWorld) -> CloudWorld:
    uris.write(f"{world.store}/corpus/{DAY}/a.txt", b"Some text.\n\nMore text.\n")
    return world


def connect(world: CloudWorld, **extra: Any) -> None:
    """Make a connection to the played cloud known to Airflow."""
    sound = {
        "key_path": str(world.key),
        "project": PROJECT,
        "tpu_api_endpoint": world.emulator.endpoint,
        "tpu_insecure": True,
    }
    chosen = {name: value for name, value in (sound | extra).items() if value is not None}
    connection = {"conn_type": "google_cloud_platform", "extra": chosen}
    world.patch.setenv(f"AIRFLOW_CONN_{CONN_ID.upper()}", json.dumps(connection))


def own_preset(world: CloudWorld) -> str:
    """Write the installation's preset: images and accounts are no request's to choose."""
    lines = [f'extends = "{world.preset}"', "model.from_scratch = true"]
    for name, value in world.settings.items():
        section, _, key = name.partition(".")
        # As JSON, the text and lists of these settings are TOML as well.
        if value is not None:
            lines.append(f"{section}.{key} = {json.dumps(_typed(name, value))}")
    path = world.folder / "own.toml"
    path.write_text("\n".join(lines))
    return str(path)


def _typed(name: str, value: Any) -> Any:
    return parse_overrides([f"{name}={value}"])[name] if isinstance(value, str) else value


def validate(world: CloudWorld) -> dict[str, str]:
    operator = ValidateRunOperator(
        task_id="validate", store_uri=world.store, preset=own_preset(world), gcp_conn_id=CONN_ID
    )
    dag_run = SimpleNamespace(
        dag_id="dag",
        run_id="manual__1",
        run_type="manual",
        conf={},
        partition_key=DAY,
    )
    context: Any = {"dag_run": dag_run}
    return operator.execute(context)


def is_recorded(world: CloudWorld) -> bool:
    run = StoreLayout(world.store).run(identity.run_key("dag", "manual__1"))
    return uris.exists(run.record)


def test_a_sound_installation_is_let_through(
    world: CloudWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    connect(world)
    validate(world)
    assert is_recorded(world)
    assert "CLOUD CHECK" not in capsys.readouterr().out


def test_what_the_cloud_would_refuse_is_refused_before(world: CloudWorld) -> None:
    connect(world)
    world.stub.state.denied.add("tpu.nodes.create")
    world.stub.state.refuses_tokens = False
    with pytest.raises(AirflowFailException, match=r"roles: the account lacks tpu\.nodes\.create"):
        validate(world)
    assert not is_recorded(world)


def test_a_tpu_that_could_not_train_is_refused_before_it_is_rented(world: CloudWorld) -> None:
    connect(world)
    del world.settings["tpu.container_image"]
    with pytest.raises(AirflowFailException, match=r"tpu\.container_image: it is empty"):
        validate(world)
    assert not is_recorded(world)


def test_what_nobody_can_tell_refuses_nothing(world: CloudWorld) -> None:
    connect(world)
    world.stub.state.silent.add("serviceusage")
    validate(world)
    assert is_recorded(world)


def test_an_account_without_a_token_is_refused_by_one_line(world: CloudWorld) -> None:
    connect(world)
    world.stub.state.refuses_tokens = True
    with pytest.raises(AirflowFailException, match="1 violation") as refused:
        validate(world)
    assert "credentials: no usable credentials" in str(refused.value)


def test_without_a_cloud_none_of_it_is_asked(world: CloudWorld) -> None:
    connect(world, key_path=None, is_anonymous=True)
    world.stub.state.enabled.clear()
    del world.settings["tpu.container_image"]
    validate(world)
    assert world.stub.state.requests == []


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        ({"key_path": "/absent/key.json"}, "FileNotFoundError"),
        ({"key_path": "/absent/key.p12"}, "Legacy P12 key file"),
        ({"key_path": None, "keyfile_dict": "{"}, "Invalid key JSON"),
        ({"key_path": None, "keyfile_dict": {"private_key": "none"}}, "MalformedError"),
        ({"key_path": None, "is_anonymous": True, "project": None}, "names no project"),
        ({"tpu_api_endpoint": None}, "insecure=True needs the endpoint"),
    ],
)
def test_a_connection_that_cannot_be_used_is_refused_by_its_name(
    world: CloudWorld, extra: dict[str, Any], said: str
) -> None:
    connect(world, **extra)
    with pytest.raises(AirflowFailException, match=f"Airflow connection '{CONN_ID}'") as refused:
        validate(world)
    assert said in str(refused.value)
    assert not is_recorded(world)


def test_a_connection_that_is_missing_is_refused_by_its_name(world: CloudWorld) -> None:
    with pytest.raises(AirflowFailException, match=f"Airflow connection '{CONN_ID}'") as refused:
        validate(world)
    assert "AirflowNotFoundException" in str(refused.value)
    assert not is_recorded(world)
