"""Makes what the compose file needs and no two servers share: secrets, and .env from its example.

Copy-paste: ``python3 docker/compose/make_secrets.py``

It needs nothing but Python's standard library. The secrets lie where ``SECRETS_DIR`` of .env says.
What exists is only replaced if ``--rotate`` names it, which makes nothing that is missing: the
database keeps the password that it was made with, and what Airflow encrypted cannot be read with
another key. What else belongs to a rotation is in ``docs/operate/operation.md``.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import re
import secrets
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Compose mounts the files into containers whose users are not this one, so the files are readable
# and their folder is closed: nobody else on this machine gets through it.
FOLDER_MODE, SECRET_MODE, ENV_MODE = 0o700, 0o444, 0o600


def main(argv: list[str] | None = None) -> int:
    """Make what is missing, or rotate one, and say so; return 0, or 1 when that cannot be done."""
    parser = argparse.ArgumentParser(prog="make_secrets.py", description=__doc__)
    parser.add_argument("--folder", type=Path, default=HERE, help="default: %(default)s")
    parser.add_argument(
        "--rotate",
        metavar="NAME",
        choices=[*_ROTATED, *_STEPS],
        help=f"put a new secret in the place of one that is there: {', '.join(_ROTATED)}. What is "
        "encrypted can be read with the new and the old fernet_key until old_fernet_key is named",
    )
    arguments = parser.parse_args(argv)
    try:
        if arguments.rotate is None:
            make(arguments.folder)
        else:
            rotate(secrets_folder(arguments.folder), arguments.rotate)
    except (OSError, RuntimeError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def make(folder: Path) -> None:
    """Make .env and the secrets in a folder.

    :raises OSError: the folder cannot be written.
    :raises RuntimeError: the folder of the secrets is open to others, or only a part of the
        database's two secrets is there.
    """
    _make_file(folder / ".env", ENV_MODE, (HERE / ".env.example").read_text)
    private = secrets_folder(folder)
    private.mkdir(mode=FOLDER_MODE, exist_ok=True)
    _require_closed(private)
    _make_database_secrets(private)
    for name, content in _OTHERS.items():
        _make_file(private / name, SECRET_MODE, content)


def secrets_folder(folder: Path) -> Path:
    """Return SECRETS_DIR of a folder's .env, where Compose looks for the secrets.

    :raises OSError: there is no .env, which a run without ``--rotate`` makes.
    :raises RuntimeError: it does not say, or in a way that only Compose understands.
    """
    path = folder / ".env"
    found = re.findall(r"^SECRETS_DIR=(.*)$", path.read_text(), re.MULTILINE)
    value = found[-1].partition(" #")[0].strip().strip("'\"") if found else ""
    if not value or value[0] == "~" or "$" in value:
        raise RuntimeError(
            f"{path}: SECRETS_DIR={value!r} is no path as this command needs it. Write the folder "
            "of the secrets out, from / or from this file's folder: SECRETS_DIR=./secrets"
        )
    return folder / value


def _require_closed(private: Path) -> None:
    if private.stat().st_mode & 0o077:
        raise RuntimeError(f"{private} is open to other users; close it: chmod 700 {private}")


def _make_database_secrets(private: Path) -> None:
    """Make the database's password and the address that contains it: one is of no use alone."""
    password, url = private / "database_password", private / "database_url"
    if password.exists() != url.exists():
        there, missing = (password, url) if password.exists() else (url, password)
        raise RuntimeError(f"{there} exists but {missing} does not; they hold the same password.")
    value = secrets.token_urlsafe(32)
    _make_file(password, SECRET_MODE, lambda: value)
    _make_file(
        url, SECRET_MODE, lambda: f"postgresql+psycopg2://airflow:{value}@postgres:5432/airflow"
    )


_OTHERS: dict[str, Callable[[], str]] = {
    # 32 random bytes in URL-safe base64: https://github.com/fernet/spec
    "fernet_key": lambda: base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
    "api_secret_key": lambda: secrets.token_urlsafe(32),
    "jwt_secret": lambda: secrets.token_urlsafe(64),
    "logins": lambda: json.dumps(_passwords(["admin"])),
}
_ROTATED = ("database_password", *_OTHERS)
_STEPS = ("old_fernet_key",)


def rotate(private: Path, name: str) -> None:
    """Put a new secret in the place of one that is there.

    :param name: of its file; ``old_fernet_key``: the keys that were kept behind the new one go.
    :raises OSError: the folder cannot be read or written.
    :raises RuntimeError: it is open to others, the secret is not there, or no old key is.
    """
    _require_closed(private)
    if name == "database_password":
        before, _, after = _existing(private, "database_url").rpartition("@")
        _existing(private, name)
        value = secrets.token_urlsafe(32)
        _replace(private / name, value)
        # Only the password: whoever runs the server may have changed the rest.
        _replace(private / "database_url", f"{before.rpartition(':')[0]}:{value}@{after}")
    elif name == "logins":
        people = json.loads(_existing(private, name))
        _replace(private / name, json.dumps(_passwords(people)))
    elif name == "fernet_key":
        _replace(private / name, f"{_OTHERS[name]()},{_existing(private, name)}")
    elif name == "old_fernet_key":
        new, _, old = _existing(private, "fernet_key").partition(",")
        if not old:
            raise RuntimeError(
                f"{private / 'fernet_key'} holds one key, so there is no old one to drop. First "
                "--rotate fernet_key, a restart, and what docs/operate/operation.md says."
            )
        _replace(private / "fernet_key", new)
    else:
        _existing(private, name)
        _replace(private / name, _OTHERS[name]())


def _existing(private: Path, name: str) -> str:
    path = private / name
    if not path.exists():
        raise RuntimeError(
            f"{path} is not there, so there is nothing to rotate. Look at SECRETS_DIR in .env; a "
            "server that was never started gets its secrets without --rotate."
        )
    return path.read_text()


def _passwords(people: Iterable[str]) -> dict[str, str]:
    return {person: secrets.token_urlsafe(18) for person in people}


def _replace(path: Path, content: str) -> None:
    """Replace a file at once: a container that is started meanwhile reads one or the other."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(content)
    new.chmod(SECRET_MODE)
    new.replace(path)
    print(f"rotated  {path}")


def _make_file(path: Path, mode: int, content: Callable[[], str]) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        print(f"kept  {path}")
        return
    with open(descriptor, "w") as file:
        file.write(content())
    path.chmod(mode)
    print(f"made  {path}")


if __name__ == "__main__":
    sys.exit(main())
