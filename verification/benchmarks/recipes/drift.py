"""Writes text whose language drifts: seven partitions, each mostly about another subject.

The subjects are Python packages that every installation of this project has; the text is their own
documentation. A quarter of a partition is still about the previous subject.
"""

from __future__ import annotations

import hashlib
import sysconfig
from pathlib import Path

from local.demo.installed_text import MAX_GROUP_SHARE, Harvest

SUBJECTS = ("airflow", "sqlalchemy", "apache_beam", "pandas", "scipy", "sklearn", "tensorflow")
PARTITIONS = tuple(f"2026-01-{day:02d}" for day in range(1, len(SUBJECTS) + 1))
_OWN_SHARE = 0.75
_FILES = 2


def write(folder: Path, characters: int) -> None:
    """Write ``folder/<partition>/*.txt``, one document per paragraph; no paragraph occurs twice.

    :param characters: number of characters of each partition.
    :raises FileNotFoundError: a subject's package is not installed.
    """
    harvest, rest = Harvest(), list[str]()
    own = int(characters * _OWN_SHARE)
    for partition, subject in zip(PARTITIONS, SUBJECTS, strict=True):
        documents = _collect(harvest, subject, own + (0 if rest else characters - own))
        following = _collect(harvest, subject, characters - own)
        _write(folder / partition, documents + rest)
        rest = following


def _collect(harvest: Harvest, subject: str, characters: int) -> list[str]:
    package = Path(sysconfig.get_paths()["purelib"], subject)
    # A group gives at most its share of the requested text, and here there is only one group.
    return harvest.collect([[package]], int(characters / MAX_GROUP_SHARE))


def _write(folder: Path, documents: list[str]) -> None:
    folder.mkdir(parents=True)
    mixed = sorted(documents, key=lambda document: hashlib.sha256(document.encode()).digest())
    for number in range(_FILES):
        text = "\n\n".join(mixed[number::_FILES]) + "\n"
        (folder / f"documents-{number}.txt").write_text(text, encoding="utf-8")
