"""Attacks on secrets: looked for in what tasks log, and in all that a local stack starts from.

The secrets are those of an Airflow worker, in its environment, and the keys and the login of a
local stack. Jobs print all that they were given, as one may that fails.
"""

from __future__ import annotations

import configparser
import logging
import os
import shutil
from pathlib import Path
from typing import Any
from unittest import mock

from airflow.sdk.exceptions import AirflowException

from local.stack import settings
from local.stack.stack import Stack
from operators import python_module
from operators.python_module import PythonModuleOperator
from tests.plugins.contexts import context_of
from verification.attack_check.rows import Row, Tally

_SECRETS = {
    name: f"zq7secret{number}"
    for number, name in enumerate(
        (
            "AIRFLOW__CORE__FERNET_KEY",
            "AIRFLOW__API_AUTH__JWT_SECRET",
            "AIRFLOW__API__SECRET_KEY",
            "AIRFLOW_CONN_ALERTS",
            "AIRFLOW_VAR_TOKEN_OF_SOMETHING",
            "_AIRFLOW_WWW_USER_PASSWORD",
            "POSTGRES_PASSWORD",
            "SMTP_PASS",
            "VENDOR_API_KEY",
            "SLACK_TOKEN",
        )
    )
}
"""Of an Airflow worker, by the variable that holds each."""
_SAID = "these are the words of the job"
_TELLS = f"""
import os, pathlib, sys, time
parents = [os.getpid(), os.getppid()]
commands = [pathlib.Path(f"/proc/{{pid}}/cmdline").read_bytes() for pid in parents]
print(dict(os.environ), sys.argv, commands, {_SAID!r}, flush=True)
"""


def task_logs(folder: Path, times: int) -> Tally:
    """Run a module as a task that prints its environment and its command line; read the log."""
    tally, lines = Tally(), list[str]()
    (folder / "some_job.py").write_text(_TELLS)
    log, handler = logging.getLogger("attacked.task"), logging.Handler()
    log.setLevel(logging.INFO)
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    log.handlers = [handler]
    with (
        mock.patch.dict(os.environ, _SECRETS),
        mock.patch.object(python_module, "REPOSITORY", str(folder)),
        mock.patch.object(PythonModuleOperator, "log", log),
    ):
        for _ in range(times):
            lines.clear()
            task = PythonModuleOperator(
                task_id="job", module="some_job", store_uri=str(folder / "store")
            )
            try:
                task.execute(context_of("dag", "run"))
            except AirflowException as error:
                # What it prints last is no summary, so that the task quotes it.
                lines.append(str(error))
            said = "\n".join(lines)
            if _SAID not in said:
                raise RuntimeError(f"The task does not log what its job says: {said[-500:]}")
            for name, secret in _SECRETS.items():
                tally.add(*([f"{name} is in the log"] if secret in said else []))
    return tally


def stack_places(folder: Path, times: int) -> Tally:
    """Make all that a local stack starts from, and look for its keys and its login."""
    tally = Tally()
    for number in range(times):
        stack = Stack(folder / str(number), say=lambda _: None)
        stack.paths.create()
        record = stack._prepare()
        try:
            secrets = {"password": stack.password(), **_keys(stack.paths.airflow_config)}
            places = {
                **{f"variable {name}": value for name, value in stack.environment().items()},
                **{f"ps of {part.name}": " ".join(part.launch) for part in stack.parts()},
                stack.paths.record.name: stack.paths.record.read_text(),
                stack.paths.supervisor_config.name: stack.paths.supervisor_config.read_text(),
            }
            for place, text in places.items():
                found = [name for name, secret in secrets.items() if secret in text]
                tally.add(*([f"{', '.join(found)} in {place}"] if found else []))
        finally:
            shutil.rmtree(record.runtime_dir)
    return tally


def _keys(config: Path) -> dict[str, str]:
    """Return what a stack's configuration of Airflow holds; nothing in it is for everybody."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(config.read_text())
    return {name: key for section in parser.sections() for name, key in parser[section].items()}


def _keys_in_the_environment() -> Any:
    """Give Airflow its keys by the environment, which all that it starts inherits."""
    real = settings._airflow

    def airflow(paths: Any, *arguments: Any) -> dict[str, str]:
        keys = _keys(paths.airflow_config)
        return real(paths, *arguments) | {f"AIRFLOW_{name}": key for name, key in keys.items()}

    return mock.patch.object(settings, "_airflow", airflow)


ROWS = (
    Row(
        "secrets in task logs",
        task_logs,
        2,
        lambda: mock.patch.object(python_module, "is_private", return_value=False),
    ),
    Row(
        "secrets of a local stack: variables, ps, records",
        stack_places,
        1,
        _keys_in_the_environment,
    ),
)
