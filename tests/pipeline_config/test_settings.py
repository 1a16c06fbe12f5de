"""Settings of an installation: what is refused, and which variables no job gets."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from pipeline_config import ConfigError
from pipeline_config.settings import (
    TpuService,
    add_store_argument,
    is_private,
    load_settings,
    mlflow_tracking_uri,
    tpu_service,
)


@pytest.mark.parametrize("path", ["airflow", "./airflow", "~/airflow", "$HOME/airflow", "gs://b/x"])
def test_a_hidden_path_has_to_be_absolute(path: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_settings({"REPRETRAIN_HIDDEN_PATHS": f"/run/secrets, {path}"})
    [line] = refused.value.violations
    assert line.startswith(f"REPRETRAIN_HIDDEN_PATHS: {path!r} is no absolute path")


@pytest.mark.parametrize("path", ["/home/*", "/home/airflo?/x", "/home/[a]irflow"])
def test_a_hidden_path_is_no_pattern(path: str) -> None:
    with pytest.raises(ConfigError, match="no pattern"):
        load_settings({"REPRETRAIN_HIDDEN_PATHS": path})


def test_hidden_paths_that_are_some() -> None:
    found = load_settings({"REPRETRAIN_HIDDEN_PATHS": "/run/secrets, /home/airflow/airflow,"})
    assert found.hidden_paths == ("/run/secrets", "/home/airflow/airflow")


@pytest.mark.parametrize(
    "name",
    [
        *("SMTP_PASSWORD", "PGPASSWORD", "db_passwd", "GPG_PASSPHRASE", "SMTP_PASS", "DB_PWD"),
        *("HF_TOKEN", "GITHUB_TOKEN", "AWS_SESSION_TOKEN", "SLACK_TOKENS", "ACCESSTOKEN"),
        *("API_KEY", "APIKEY", "OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"),
        *("AIRFLOW_HOME", "AIRFLOW__CORE__FERNET_KEY", "_AIRFLOW_PROCESS_CONTEXT"),
        *("MY_KEYS", "FERNET_KEY", "CLIENT_SECRET", "SECRET", "webhookSecret"),
        *("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"),
    ],
)
def test_variables_that_no_job_gets(name: str) -> None:
    assert is_private(name)


@pytest.mark.parametrize(
    "name",
    [
        *("PATH", "HOME", "PWD", "OLDPWD", "TMPDIR", "LANG", "SSH_AUTH_SOCK", "KEYBOARD", "MONKEY"),
        *("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT", "CLOUDSDK_CONFIG"),
        *("NO_GCE_CHECK", "GCE_METADATA_TIMEOUT", "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"),
        *("STORAGE_EMULATOR_HOST", "HTTPS_PROXY", "TOKENIZERS_PARALLELISM", "COMPASS_DIR"),
        *("REPRETRAIN_REQUEST_ROOTS", "REPRETRAIN_HIDDEN_PATHS", "REPRETRAIN_STACK", "PGAPPNAME"),
        *("OTEL_EXPORTER_OTLP_ENDPOINT", "MLFLOW_TRACKING_URI"),
    ],
)
def test_variables_that_jobs_get(name: str) -> None:
    assert not is_private(name)


@pytest.mark.parametrize(
    ("uri", "problem"),
    [
        ("", "needs the address of a server"),
        ("sqlite:///x.db", "needs the address of a server"),
        ("https://ada:s3cret@mlflow.example.com", "MLFLOW_TRACKING_PASSWORD"),
        ("ada:s3cret@mlflow.example.com", "MLFLOW_TRACKING_PASSWORD"),
        ("http://ada:s3cret@[broken/x", "MLFLOW_TRACKING_PASSWORD"),
    ],
)
def test_an_address_of_mlflow_is_a_servers_and_holds_no_login(uri: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as refused:
        mlflow_tracking_uri({"MLFLOW_TRACKING_URI": uri})
    assert "s3cret" not in str(refused.value)


def test_the_tpu_service_is_that_of_the_connection_s_variable() -> None:
    extra = {"project": "p", "tpu_api_endpoint": "unix:/x.sock", "tpu_insecure": True}
    name = "AIRFLOW_CONN_CLOUD"
    known = {"REPRETRAIN_GCP_CONN_ID": "cloud"}
    told = TpuService("p", "unix:/x.sock", insecure=True)
    assert tpu_service(known | {name: json.dumps({"extra": extra})}) == told
    assert tpu_service(known | {name: json.dumps({"extra": json.dumps(extra)})}) == told
    named = known | {name: json.dumps({"extra": extra}), "GOOGLE_CLOUD_PROJECT": "q"}
    assert tpu_service(named).project_id == "q"
    for other in ("google-cloud-platform://?project=p", "[]", '{"extra": null}', ""):
        assert tpu_service(known | {name: other}) == TpuService()


def test_an_empty_default_store_is_not_looked_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("REPRETRAIN_STORE_URI", raising=False)

    def store(*words: str) -> str:
        parser = argparse.ArgumentParser()
        add_store_argument(parser)
        return str(parser.parse_args(words).store)

    with pytest.raises(SystemExit):
        store()
    assert "which store? REPRETRAIN_STORE_URI is not set" in capsys.readouterr().err
    assert store("--store", "gs://bucket/store") == "gs://bucket/store"
    (tmp_path / "repretraining").mkdir()
    assert store() == str(tmp_path / "repretraining")
    monkeypatch.setenv("REPRETRAIN_STORE_URI", str(tmp_path))
    assert store() == str(tmp_path)
    # What is set, or typed, and is not there is a mistake as well.
    monkeypatch.setenv("REPRETRAIN_STORE_URI", "/srv/no-store")
    for words in ((), ("--store", f"{tmp_path}/nowhere"), ("--store", __file__)):
        with pytest.raises(SystemExit):
            store(*words)
        assert "there is no such folder" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["thirty", "-5", "nan", "inf"])
def test_a_number_that_is_none_is_named_with_its_variable(text: str) -> None:
    with pytest.raises(ConfigError, match="REPRETRAIN_OVERDUE_HOURS is") as caught:
        load_settings({"REPRETRAIN_OVERDUE_HOURS": text})
    assert repr(text) in str(caught.value)


def test_an_empty_number_or_switch_is_its_default() -> None:
    """As in an example of a file of settings, every line of which is there."""
    default = load_settings({})
    names = ("OVERDUE_HOURS", "QUIET_DAYS", "IDLE_TPU_MINUTES", "MLFLOW_MIRROR", "STORE_URI")
    assert load_settings({f"REPRETRAIN_{name}": "" for name in names}) == default


def test_a_switch_is_on_or_off_and_what_is_neither_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for text, is_on in (("1", True), ("True", True), ("yes", True), ("no", False)):
        assert load_settings({"REPRETRAIN_MLFLOW_MIRROR": text}).mlflow_mirror is is_on
    assert not caplog.messages
    assert not load_settings({"REPRETRAIN_MLFLOW_MIRROR": "maybe"}).mlflow_mirror
    assert "REPRETRAIN_MLFLOW_MIRROR is 'maybe'" in caplog.text


def test_a_setting_that_is_none_is_an_error_of_the_command_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REPRETRAIN_OVERDUE_HOURS", "soon")
    with pytest.raises(SystemExit, match="2"):
        add_store_argument(argparse.ArgumentParser())
    assert "REPRETRAIN_OVERDUE_HOURS is 'soon'" in capsys.readouterr().err
