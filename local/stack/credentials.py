"""Generates keys and the login at the first start, in files that only the owner can read."""

from __future__ import annotations

import base64
import configparser
import json
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from local.stack.paths import StackError, StatePaths

USER = "admin"


def ensure_credentials(paths: StatePaths) -> None:
    """Create missing keys and the login, and make the files private.

    The keys are in Airflow's configuration file and not in the environment, because every task,
    pipeline and child process would inherit the environment.

    :raises StackError: a file belongs to another user.
    """
    _write_private(paths.airflow_config, lambda: _airflow_config([_fernet_key()]))
    _write_private(paths.passwords, _login)


def renew(paths: StatePaths) -> None:
    """Replace the keys and the login.

    The old Fernet keys are kept after the new one, so that Airflow can still decrypt with them,
    until :func:`forget_old_fernet_keys`.

    :raises StackError: there is no file with keys, or it cannot be read.
    """
    keys = _read_config(paths)["core"]["fernet_key"].split(",")
    _replace_private(paths.airflow_config, _airflow_config([_fernet_key(), *keys]))
    _replace_private(paths.passwords, _login())


def forget_old_fernet_keys(paths: StatePaths) -> None:
    """Keep only the first Fernet key; data encrypted with another one becomes unreadable.

    :raises StackError: there is no file with keys, or it cannot be read.
    """
    sections = _read_config(paths)
    sections["core"]["fernet_key"] = sections["core"]["fernet_key"].partition(",")[0]
    _replace_private(paths.airflow_config, _render(sections))


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


def _login() -> str:
    return json.dumps({USER: secrets.token_urlsafe(18)}) + "\n"


def _fernet_key() -> str:
    # 32 random bytes in URL-safe base64: https://github.com/fernet/spec
    return base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()


def _airflow_config(fernet_keys: Sequence[str]) -> str:
    sections = {
        # Airflow encrypts with the first key and decrypts with any.
        "core": {"fernet_key": ",".join(fernet_keys)},
        "api": {"secret_key": secrets.token_urlsafe(32)},
        "api_auth": {"jwt_secret": secrets.token_urlsafe(64)},
    }
    return _render(sections)


def _render(sections: Mapping[str, Mapping[str, str]]) -> str:
    lines = ["# Generated keys. All other settings come from the environment."]
    for section, options in sections.items():
        lines += [f"[{section}]", *(f"{name} = {value}" for name, value in options.items())]
    return "\n".join(lines) + "\n"


def _read_config(paths: StatePaths) -> dict[str, dict[str, str]]:
    config = configparser.ConfigParser(interpolation=None)
    try:
        config.read_string(paths.airflow_config.read_text())
        config.get("core", "fernet_key")
    except (OSError, ValueError, configparser.Error) as error:
        # The parser's message may quote the file.
        raise StackError(
            f"No Fernet key in {paths.airflow_config} ({type(error).__name__}). Start the stack "
            "first; if the file is damaged, restore it from a backup: without the key stored "
            "connections cannot be read."
        ) from None
    return {section: dict(config[section]) for section in config.sections()}


def _replace_private(path: Path, content: str) -> None:
    """Replace a file atomically: a process that starts meanwhile reads the old or the new one."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    _write_private(new, lambda: content)
    new.replace(path)


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
