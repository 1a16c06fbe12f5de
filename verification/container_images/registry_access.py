"""Passes this machine's pip settings to a build as secrets, which are kept out of its image."""

from __future__ import annotations

import ast
import configparser
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

CERTIFICATES_IN_BUILD = "/run/secrets/ca.crt"
# The other pip settings are about this machine: caches, folders, colors.
LENT = (
    "index-url",
    "extra-index-url",
    "trusted-host",
    "proxy",
    "timeout",
    "default-timeout",
    "retries",
)


@dataclass(frozen=True)
class RegistryAccess:
    """Build secrets by id, and texts that must not be in an image."""

    files: Mapping[str, Path]
    private: frozenset[str]


def lend_access(folder: Path) -> RegistryAccess:
    """Write this machine's pip settings for a build into a private folder.

    Settings that name local files and folders are left out; certificates are passed too.
    """
    settings = pip_settings()
    written = configparser.RawConfigParser()
    lent = {name: value for name in LENT if (value := _remote(settings.get(name, "")))}
    files = {"pip": folder / "pip.conf"}
    if certificates := settings.get("cert"):
        lent["cert"] = CERTIFICATES_IN_BUILD
        files["ca"] = Path(certificates)
    written["global"] = lent
    # The file may hold a password.
    with open(os.open(files["pip"], os.O_CREAT | os.O_WRONLY, 0o600), "w") as opened:
        written.write(opened)
    private = {word for value in settings.values() for word in value.split() if "://" in word}
    return RegistryAccess(files, frozenset(private))


def pip_settings() -> dict[str, str]:
    """Return pip's settings by name, from its files and its variables, which take precedence."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], check=True, capture_output=True, text=True
    )
    found: dict[str, str] = {}
    # ":env:.name='value'" comes before "global.name='value'".
    for line in listed.stdout.splitlines():
        name, _, value = line.partition("=")
        found.setdefault(name.rpartition(".")[2], str(ast.literal_eval(value)))
    return found


def _remote(value: str) -> str:
    return " ".join(word for word in value.split() if not word.startswith(("file:", "/")))
