"""Keys and the login, generated at the first start and kept in files only the owner can read."""

from __future__ import annotations

import base64
import json
import os
import secrets
from collections.abc import Callable
from pathlib import Path

from local.stack.errors import StackError
from local.stack.paths import StatePaths

USER = "admin"


def ensure_credentials(paths: StatePaths) -> None:
    """Create what is missing of the keys and the login, and close the files to others.

    The keys are in Airflow's configuration file and not in the environment, because every task,
    pipeline and child process would inherit the environment.

    :raises StackError: a file belongs to somebody else.
    """
    _write_private(paths.airflow_config, _airflow_config)
    _write_private(paths.passwords, lambda: json.dumps({USER: secrets.token_urlsafe(18)}) + "\n")


def password(paths: StatePaths) -> str:
    """Return the password of ``admin``.

    :raises StackError: the stack was never started, or the file is damaged.
    """
    try:
        return str(json.loads(paths.passwords.read_text())[USER])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StackError(
            f"No password of {USER!r} in {paths.passwords} ({error!r}). Start the stack first; "
            "if the file is damaged, remove it and start again."
        ) from error


def _airflow_config() -> str:
    # A Fernet key is 32 random bytes in URL-safe base64: https://github.com/fernet/spec
    sections = {
        "core": {"fernet_key": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()},
        "api": {"secret_key": secrets.token_urlsafe(32)},
        "api_auth": {"jwt_secret": secrets.token_urlsafe(64)},
    }
    lines = ["# Generated keys. All other settings come from the environment."]
    for section, options in sections.items():
        lines += [f"[{section}]", *(f"{name} = {value}" for name, value in options.items())]
    return "\n".join(lines) + "\n"


def _write_private(path: Path, content: Callable[[], str]) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        _keep_private(path)
        return
    with open(descriptor, "w") as file:
        file.write(content())


def _keep_private(path: Path) -> None:
    try:
        path.chmod(0o600)
    except OSError as error:
        raise StackError(
            f"Cannot make {path} private: {error}. It holds secrets, so it must belong to you."
        ) from error
