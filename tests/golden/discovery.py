"""Finds what the code defines, wherever it lies, so that moving a module changes nothing here."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
PLUGINS = "plugins"
"""A folder of the import path, not a package."""

RIGS = ("docker", "local", "verification")
"""Top folders of what measures, breaks and shows the product: their names are promised to nobody.

Of these only make targets, and the formats of files that outlive a process, are in the lists.
"""


@cache
def sources(*, rigs: bool = False) -> dict[str, str]:
    """Return the source of every module by its dotted name, of rigs too if asked for."""
    found = {}
    for path in sorted(REPOSITORY.glob("*/**/*.py")):
        parts = path.relative_to(REPOSITORY).with_suffix("").parts
        if parts[0].startswith(".") or parts[0] in ("tests", "dags"):
            continue
        if rigs or parts[0] not in RIGS:
            name = ".".join(parts[1:] if parts[0] == PLUGINS else parts)
            found[name.removesuffix(".__init__")] = path.read_text()
    return found


def subclasses(base: type, *, rigs: bool = False) -> list[Any]:
    """Return every class of the project that is made from a base, in order of their names."""
    names = {base.__name__}
    modules: set[str] = set()
    # Again and again, as a base may be defined in a module that comes later.
    while True:
        words = re.compile(
            rf"^class (\w+)\((?=[^)]*\b(?:{'|'.join(sorted(names))})\b)", re.MULTILINE
        )
        hits = {name: words.findall(text) for name, text in sources(rigs=rigs).items()}
        modules = {name for name, classes in hits.items() if classes}
        more = {one for classes in hits.values() for one in classes}
        if more <= names:
            break
        names |= more
    for name in sorted(modules):
        importlib.import_module(name)
    ours = [found for found in _below(base) if found.__module__ in modules]
    return sorted(set(ours), key=lambda found: found.__qualname__)


def _below(base: type) -> Iterator[type]:
    for found in base.__subclasses__():
        yield found
        yield from _below(found)


def calls(name: str) -> Iterator[ast.Call]:
    """Yield every call in the product of what has a name, such as ``get`` or ``os.environ.get``."""
    for text in sources().values():
        if name in text:
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(name):
                    yield node


@cache
def class_tree(of: type) -> ast.Module:
    """Return the syntax tree of a class."""
    return ast.parse(textwrap.dedent(inspect.getsource(of)))


def own_bases(of: type) -> list[type]:
    """Return the class and those of its bases that the project defines."""
    return [base for base in of.__mro__ if base.__module__ in sources()]


def literal_keys(node: ast.AST) -> Iterator[str]:
    """Yield the keys of every dictionary that is written out below a node."""
    for found in ast.walk(node):
        if isinstance(found, ast.Dict):
            keys = (key.value for key in found.keys if isinstance(key, ast.Constant))
            yield from (key for key in keys if isinstance(key, str))
