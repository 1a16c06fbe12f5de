"""Searches for secrets in task logs, in a stack's start configuration, and in the git history.

The secrets are those in an Airflow worker's environment, and the keys and the login of a local
stack. Jobs print everything they were given, as a failing job may.
"""

from __future__ import annotations

import configparser
import logging
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any
from unittest import mock

from airflow.sdk.exceptions import AirflowException

from local.stack import settings
from local.stack.paths import REPOSITORY
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
"""Secrets of an Airflow worker, by environment variable."""
_KEYS = {
    "a private key": re.compile(r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----"),
    "a key of Google": re.compile(r"AIza[\w-]{35}|ya29\.[\w-]{20,}|GOCSPX-[\w-]{28}"),
    "a key of Amazon": re.compile(r"(?:AKIA|ASIA)[0-9A-Z]{16}"),
    "a token of GitHub": re.compile(r"gh[opsur]_\w{36}|github_pat_\w{22,}"),
    "a token of Slack": re.compile(r"xox[abeprs]-[\w-]{10,}|services/T\w{8,}/B\w{8,}/\w{20,}"),
    "a token of the Hub": re.compile(r"hf_[A-Za-z]{34}"),
    "a web token": re.compile(r"eyJ[\w-]{20,}\.eyJ[\w-]{20,}\.[\w-]{20,}"),
    "a key of Airflow": re.compile(
        r"(?i)(?:fernet_key|jwt_secret|secret_key|password)\"?\s*[=:]\s*[\"']?[\w+/-]{32,}"
    ),
}
_EXAMPLES = ("ghp_" + "a1" * 18, "AKIA" + "B2" * 8, "secret_key = " + "c3" * 32)
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
                # Its last line is no summary, so the task quotes it.
                lines.append(str(error))
            said = "\n".join(lines)
            if _SAID not in said:
                raise RuntimeError(f"The task does not log what its job says: {said[-500:]}")
            for name, secret in _SECRETS.items():
                tally.add(*([f"{name} is in the log"] if secret in said else []))
    return tally


def stack_places(folder: Path, times: int) -> Tally:
    """Create everything that a local stack starts from, and search it for its keys and login."""
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
    """Return the values in a stack's Airflow configuration file, all of which are secret."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(config.read_text())
    return {name: key for section in parser.sections() for name, key in parser[section].items()}


def _keys_in_the_environment() -> Any:
    """Pass Airflow its keys in the environment, which all child processes inherit."""
    real = settings._airflow

    def airflow(paths: Any, *arguments: Any) -> dict[str, str]:
        keys = _keys(paths.airflow_config)
        return real(paths, *arguments) | {f"AIRFLOW_{name}": key for name, key in keys.items()}

    return mock.patch.object(settings, "_airflow", airflow)


def history(folder: Path, times: int) -> Tally:
    """Search the newest commits of this repository, including content that was later removed."""
    tally, repository = Tally(), _repository(folder)
    command = ["git", "-C", str(repository), "log", f"--max-count={times}", "--format=%x00%H %B"]
    command += ["--patch", "--unified=0", "--no-color", "--no-ext-diff"]
    said = subprocess.run(command, check=True, capture_output=True).stdout.decode(errors="replace")
    for commit in said.split("\0")[1:]:
        name = commit[:12]
        tally.add(*(f"{kind} in {name}" for kind, one in _KEYS.items() if one.search(commit)))
    return tally


def _repository(_: Path) -> Path:
    """Return the repository whose history is searched."""
    return REPOSITORY


def _somebody_was_careless() -> Any:
    """Search a repository in which keys were committed and removed by the next commit."""

    def made(folder: Path) -> Path:
        git = ["git", "-C", str(folder), "-c", "user.name=ada", "-c", "user.email=ada@example.com"]
        subprocess.run([*git, "init", "--quiet"], check=True)
        for text in (*_EXAMPLES, "no key"):
            (folder / "settings").write_text(text)
            subprocess.run([*git, "add", "settings"], check=True)
            subprocess.run([*git, "commit", "--quiet", "--message", "settings"], check=True)
        return folder

    return mock.patch(f"{__name__}._repository", made)


ROWS = (
    Row(
        "secrets in the history of the code",
        history,
        100_000,
        _somebody_was_careless,
        100_000,
    ),
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
