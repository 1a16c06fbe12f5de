"""The text of `make demo-domain`: numerical packages are the domain, other packages general text.

Every installation has this text. Modules whose docstrings become examples of the labeled task are
in neither partition.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from local.demo.tasks import docstrings
from local.demo.tasks.examples import Task
from local.demo.tasks.modules import Docstring, Use

DOMAIN, GENERAL = "2026-01-01", "general"
"""Partitions: the text that training continues on, and the text that it must not forget."""

PACKAGES = {
    DOMAIN: ("keras", "matplotlib", "numpy", "pandas", "scipy", "sklearn", "tensorflow"),
    GENERAL: ("airflow", "apache_beam", "google", "python", "sqlalchemy"),
}
CHARACTERS = {DOMAIN: 3_000_000, GENERAL: 1_000_000}
"""Maximum per partition: as much as minutes on two cores can use."""
GROUP = "module"
"""Field whose documents are all trained on or all held out."""
HARVESTED = 800_000
"""Characters read per package; three fifths of its modules are for pretraining."""
EXAMPLES = {Use.TRAIN: 300, Use.VALIDATION: 100, Use.TEST: 600}
_MIN_CHARACTERS = 300


def write_partition(
    found: Iterable[Docstring], partition: str, folder: Path, characters: int | None = None
) -> int:
    """Write a partition with one document per docstring, as ``folder/<partition>/text.jsonl``.

    Its packages have about equal shares. Each document names its module, as documents of one module
    resemble each other.

    :param characters: maximum, exceeded by at most one document per package; None:
        :data:`CHARACTERS`.
    :returns: the number of documents.
    """
    share = (characters or CHARACTERS[partition]) // len(PACKAGES[partition])
    written: dict[str, int] = defaultdict(int)
    target = folder / partition / "text.jsonl"
    target.parent.mkdir(parents=True)
    count = 0
    with target.open("w", encoding="utf-8") as file:
        for one in found:
            if one.use is not Use.PRETRAINING:
                continue
            package, text = one.package, "\n".join(one.paragraphs)
            is_short = len(text) < _MIN_CHARACTERS
            if package not in PACKAGES[partition] or is_short or written[package] > share:
                continue
            written[package] += len(text)
            count += 1
            file.write(json.dumps({"text": text, GROUP: f"{package}/{one.module}"}) + "\n")
    return count


def labelled_task(found: Iterable[Docstring]) -> Task:
    """Return the labeled task: which package of the domain is a docstring from?"""
    domain = [docstring for docstring in found if docstring.package in PACKAGES[DOMAIN]]
    task = docstrings.build(domain)
    return task._replace(
        splits={split: examples[: EXAMPLES[split]] for split, examples in task.splits.items()}
    )
