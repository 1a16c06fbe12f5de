"""Which packages of the project a package needs, as its source says."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from verification.container_images.catalogue import REPOSITORY

_MODULE = re.compile(r"[a-z_]+(\.[a-z_]+)+")


def closure(*folders: str) -> set[str]:
    """Return these folders of the repository and all others that they import, directly or not.

    Imports inside functions count, and so do modules that are only named, to be started by name.
    """
    found, to_do = set(folders), list(folders)
    while to_do:
        for path in (REPOSITORY / to_do.pop()).rglob("*.py"):
            new = set(_needed(path)) - found
            found |= new
            to_do += sorted(new)
    return found


def _needed(path: Path) -> Iterator[str]:
    for module in _modules(path):
        top = module.partition(".")[0]
        if (REPOSITORY / top).is_dir():
            yield top


def _modules(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Import():
                yield from (alias.name for alias in node.names)
            case ast.ImportFrom(module=str(module), level=0):
                yield module
            case ast.Constant(value=str(text)) if _MODULE.fullmatch(text) and _exists(text):
                yield text


def _exists(module: str) -> bool:
    path = REPOSITORY / module.replace(".", "/")
    return path.with_suffix(".py").is_file() or (path / "__main__.py").is_file()
