"""The command line, as far as it needs no running stack."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from local.stack import migration
from local.stack.__main__ import NOT_RUNNING, main
from local.stack.paths import StackError
from local.stack.stack import Stack


def test_down_without_a_stack_is_fine_and_leaves_no_trace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = tmp_path / "state"
    assert main(["down", "--state-dir", str(state)]) == 0
    assert "Nothing was running" in capsys.readouterr().out
    assert not state.exists()


def test_status_without_a_stack(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--state-dir", str(tmp_path)]) == NOT_RUNNING
    assert "is not running" in capsys.readouterr().out


@pytest.mark.parametrize("content", ["", '{"format": "local-stack", "format_version": 99}'])
def test_a_record_that_cannot_be_read_does_not_keep_down_from_working(
    content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "stack.json").write_text(content)
    assert main(["down", "--state-dir", str(tmp_path)]) == 0
    assert "Ignoring an unreadable record" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["env", "logs", "rotate"])
def test_commands_that_need_a_stack_say_how_to_start_one(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "--state-dir", str(tmp_path)]) == 1
    assert f"python -m local.stack up --state-dir {tmp_path}" in capsys.readouterr().err


def test_malformed_setting_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["up", "--env", "novalue"])
    assert "'novalue' is not of the form NAME=VALUE" in capsys.readouterr().err


def test_settings_of_the_shell_are_not_dropped_without_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(stack: Stack, seconds: float) -> None:
        raise StackError("enough")

    monkeypatch.setattr(Stack, "up", refuse)
    monkeypatch.setenv("REPRETRAIN_SCHEDULE", "0 0 1 1 *")
    monkeypatch.setenv("REPRETRAIN_OWNER", "me")
    words = ["up", "--state-dir", str(tmp_path), "--env", "REPRETRAIN_OWNER=you"]
    assert main(words) == 1
    told = capsys.readouterr().err
    assert "warning: REPRETRAIN_SCHEDULE: the stack takes nothing from your shell" in told
    assert "up --env REPRETRAIN_SCHEDULE='0 0 1 1 *'" in told


def test_every_airflow_task_can_import_the_host_name_cheaply() -> None:
    code = (
        "import sys; from local.stack.hostname import loopback; "
        "print(loopback(), {'psutil', 'pydantic', 'httpx'} & set(sys.modules))"
    )
    output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout
    assert output == b"127.0.0.1 set()\n"


def test_a_database_known_to_be_migrated_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = tmp_path / "done"
    done.write_text(version("apache-airflow-core"))
    assert migration.main(["--done-file", str(done)]) == 0
    assert "already" in capsys.readouterr().out


def test_a_failed_migration_is_not_noted_as_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    monkeypatch.setenv(
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", f"postgresql+psycopg2://x@/x?host={tmp_path}"
    )
    done = tmp_path / "done"
    assert migration.main(["--done-file", str(done)]) != 0
    assert not done.exists()
