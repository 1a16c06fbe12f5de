"""The Terraform files as plain Python, parsed by python-hcl2: no Terraform, no network."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hcl2

FOLDER = Path(__file__).parents[2] / "infrastructure"
_OPTIONS = hcl2.SerializationOptions(with_comments=False, explicit_blocks=False)


def files() -> dict[str, str]:
    """Return the text of every file, by name."""
    return {path.name: path.read_text() for path in sorted(FOLDER.glob("*.tf"))}


@dataclass(frozen=True)
class Resource:
    """One resource; blocks in it are lists of mappings, expressions their text."""

    type: str
    name: str
    body: Mapping[str, Any]

    @property
    def address(self) -> str:
        """Return what Terraform calls it."""
        return f"{self.type}.{self.name}"

    def block(self, *path: str) -> dict[str, Any]:
        """Return the only block at a path, or nothing."""
        found: Any = self.body
        for name in path:
            blocks = found.get(name, [])
            found = blocks[0] if blocks else {}
        return dict(found)


@dataclass(frozen=True)
class Tree:
    """All files together, as Terraform sees them."""

    content: Mapping[str, list[dict[str, Any]]]

    @classmethod
    def parse(cls, texts: Mapping[str, str]) -> Tree:
        """Parse files given as text."""
        content: dict[str, list[dict[str, Any]]] = {}
        for text in texts.values():
            for kind, blocks in _parsed(text).items():
                content.setdefault(kind, []).extend(blocks)
        return cls(content)

    def named(self, kind: str) -> dict[str, dict[str, Any]]:
        """Return variables or outputs, by name."""
        return {name: body for block in self.content.get(kind, []) for name, body in block.items()}

    @property
    def locals(self) -> dict[str, Any]:
        """Return the local values."""
        return {name: value for block in self.content["locals"] for name, value in block.items()}

    def resources(self, *types: str) -> Iterator[Resource]:
        """Yield the resources of these types; of all, if none is given."""
        for block in self.content["resource"]:
            for kind, bodies in block.items():
                for name, body in bodies.items():
                    if not types or kind in types:
                        yield Resource(kind, name, body)

    def resource(self, address: str) -> Resource:
        """Return a resource that has to be there."""
        [found] = [one for one in self.resources() if one.address == address]
        return found


def strings(value: Any) -> Iterator[str]:
    """Yield every text in a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, one in value.items():
            yield str(key)
            yield from strings(one)
    elif isinstance(value, list):
        for one in value:
            yield from strings(one)


@functools.cache
def _parsed(text: str) -> dict[str, list[dict[str, Any]]]:
    """Parse one file, once: that takes a noticeable part of a second."""
    content: dict[str, list[dict[str, Any]]] = _plain(
        hcl2.loads(text, serialization_options=_OPTIONS)
    )
    return content


def _plain(value: Any) -> Any:
    """Return literals as they are and expressions as their text."""
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, Mapping):
        return {_text(key): _plain(one) for key, one in value.items()}
    return _text(value) if isinstance(value, str) else value


def _text(value: str) -> str:
    if len(value) > 1 and value[0] == value[-1] == '"':
        return value[1:-1]
    if value.startswith("${") and value.endswith("}") and value.count("${") == 1:
        return value[2:-1]
    return value
