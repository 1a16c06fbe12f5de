"""Collects the docstrings of installed packages; each module is assigned to one use."""

from __future__ import annotations

import hashlib
import re
import sysconfig
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from local.demo.installed_text import file_texts, package_files, paragraphs

# Folders of site-packages that every installation of this project has; "python" is the standard
# library.
PACKAGES = (
    *("airflow", "apache_beam", "google", "keras", "matplotlib", "numpy"),
    *("pandas", "python", "scipy", "sklearn", "sqlalchemy", "tensorflow"),
)
MAX_CHARACTERS = 3_000_000
_BLANK_LINE = re.compile(r"\n\s*\n")
_PRETRAINING_SHARE = 0.6
_TRAIN_SHARE = 0.22
_VALIDATION_SHARE = 0.07


class Use(StrEnum):
    """The use of a module's text."""

    PRETRAINING = "pretraining"
    TRAIN = "train"
    VALIDATION = "validation"
    TEST = "test"


class Docstring(NamedTuple):
    """A docstring's prose.

    :param module: the file it is from, relative to its package.
    :param paragraphs: its paragraphs, in order.
    :param first_line: its first line, unchanged.
    :param body: the paragraphs after the first blank line.
    """

    package: str
    module: str
    paragraphs: tuple[str, ...]
    first_line: str = ""
    body: tuple[str, ...] = ()

    @property
    def use(self) -> Use:
        """Return its use, the same for a whole module, as docstrings of a module are similar."""
        share = unit_interval(f"{self.package}/{self.module}")
        for use, width in (
            (Use.PRETRAINING, _PRETRAINING_SHARE),
            (Use.TRAIN, _TRAIN_SHARE),
            (Use.VALIDATION, _VALIDATION_SHARE),
        ):
            if share < width:
                return use
            share -= width
        return Use.TEST


def unit_interval(text: str) -> float:
    """Return a number in [0, 1) derived from the hash of a text."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") / 2**64


def harvest(*, max_characters: int = MAX_CHARACTERS) -> list[Docstring]:
    """Return the docstrings of :data:`PACKAGES`; no paragraph occurs twice.

    The same installation yields the same list.

    :param max_characters: maximum per package; modules are taken in the order of their hashes.
    :raises FileNotFoundError: a package is not installed.
    """
    seen: set[str] = set()
    found: list[Docstring] = []
    for package in PACKAGES:
        missing = max_characters
        for docstring in _of_package(package, seen):
            found.append(docstring)
            missing -= sum(map(len, docstring.paragraphs))
            if missing <= 0:
                break
    return found


def _of_package(package: str, seen: set[str]) -> Iterator[Docstring]:
    paths = sysconfig.get_paths()
    folder = Path(paths["stdlib"]) if package == "python" else Path(paths["purelib"], package)
    modules = {str(path.relative_to(folder)): path for path in package_files(folder)}
    for module in sorted(modules, key=unit_interval):
        if modules[module].suffix != ".py":
            continue
        for text in file_texts(modules[module]):
            new = [part for part in dict.fromkeys(paragraphs(text)) if part not in seen]
            seen.update(new)
            if new:
                first = _BLANK_LINE.split(text.strip(), maxsplit=1)[0]
                head = set(paragraphs(first))
                body = tuple(part for part in new if part not in head)
                yield Docstring(package, module, tuple(new), first.partition("\n")[0], body)
