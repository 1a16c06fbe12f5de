"""Reads a compose file as Docker Compose does: what our files use of the specification.

https://github.com/compose-spec/compose-spec/blob/main/spec.md
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parents[3] / "docker" / "compose"
MAIN = FOLDER / "compose.yaml"
_VARIABLE = re.compile(
    r"\$(?:(?P<escaped>\$)|\{(?P<name>\w+)(?:(?P<rule>:[-?])(?P<word>[^}]*))?\})"
)
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}
# Lists that a second file adds to; other lists it replaces.
_ADDED = {"secrets", "volumes", "networks", "ports"}


class MissingVariableError(ValueError):
    """A variable that has to be set is not."""


@dataclass(frozen=True)
class Mount:
    """What is mounted where: a named volume, or a path of the host."""

    source: str
    target: str
    read_only: bool

    @property
    def is_volume(self) -> bool:
        """Tell whether the source is a named volume."""
        return not self.source.startswith((".", "/"))


@dataclass(frozen=True)
class Service:
    """A service with everything interpolated."""

    name: str
    body: Mapping[str, Any]

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables of the service; the image has others."""
        return {name: str(value) for name, value in self.body.get("environment", {}).items()}

    @property
    def mounts(self) -> list[Mount]:
        """Return volumes and folders."""
        found = []
        for text in self.body.get("volumes", []):
            source, target, *options = text.split(":")
            found.append(Mount(source, target, "ro" in options))
        return found

    @property
    def needs(self) -> dict[str, str]:
        """Return what has to be so of other services before this one starts."""
        wanted = self.body.get("depends_on", {})
        return {name: needed["condition"] for name, needed in wanted.items()}

    @property
    def uid(self) -> int:
        """Return the user's number."""
        return int(str(self.body["user"]).partition(":")[0])

    def seconds(self, key: str, default: str = "10s") -> float:
        """Return a duration such as 1m30s."""
        parts = re.findall(r"(\d+)([smh])", str(self.body.get(key, default)))
        return sum(int(number) * _SECONDS[unit] for number, unit in parts)


@dataclass(frozen=True)
class ComposeFile:
    """One or more files, laid over each other."""

    content: Mapping[str, Any]

    @classmethod
    def load(cls, environment: Mapping[str, str], *paths: Path) -> ComposeFile:
        """Read files with the variables filled in.

        :raises MissingVariableError: a variable that has to be set is not.
        """
        merged: Any = {}
        for path in paths:
            merged = _laid_over(merged, interpolate(yaml.safe_load(path.read_text()), environment))
        return cls(merged)

    def services(self, *profiles: str) -> dict[str, Service]:
        """Return the services that start with these profiles."""
        return {
            name: Service(name, body)
            for name, body in self.content["services"].items()
            if not body.get("profiles") or set(body["profiles"]) & set(profiles)
        }

    def secret(self, name: str) -> str:
        """Return the path of a secret's file."""
        return str(self.content["secrets"][name]["file"])


def read_env_file(path: Path) -> dict[str, str]:
    """Return the variables of a .env file; empty ones count as missing where they must be set."""
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    pairs = (line.split("=", 1) for line in lines)
    return {name: value[1:-1] if value[:1] == "'" else value for name, value in pairs}


def interpolate(value: Any, environment: Mapping[str, str]) -> Any:
    """Fill variables into every text.

    :raises MissingVariableError: one is missing that has to be there; with the file's own message.
    """
    if isinstance(value, Mapping):
        return {key: interpolate(one, environment) for key, one in value.items()}
    if isinstance(value, list):
        return [interpolate(one, environment) for one in value]
    if not isinstance(value, str):
        return value
    return _VARIABLE.sub(lambda match: _value(match, environment), value)


def _value(match: re.Match[str], environment: Mapping[str, str]) -> str:
    if match["escaped"]:
        return "$"
    found = environment.get(match["name"], "")
    if found or not match["rule"]:
        return found
    if match["rule"] == ":?":
        raise MissingVariableError(match["word"] or match["name"])
    return match["word"] or ""


def _laid_over(below: Any, above: Any, key: str = "") -> Any:
    if isinstance(below, Mapping) and isinstance(above, Mapping):
        names = {**below, **above}
        return {
            name: _laid_over(below[name], above[name], name)
            if name in below and name in above
            else names[name]
            for name in names
        }
    if isinstance(below, Sequence) and key in _ADDED:
        return [*below, *above]
    return above
