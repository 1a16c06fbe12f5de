"""Checks the versions of Python and Airflow, and names guarantees that an older Airflow lacks."""

from __future__ import annotations

import importlib.metadata
import sys
from typing import NamedTuple

from packaging.version import InvalidVersion, Version

from preflight.findings import Finding, failed, not_checked, ok

PYTHON = (3, 11)
"""The version for which TensorFlow's, Beam's and Airflow's versions are locked."""


class Guarantee(NamedTuple):
    """A guarantee of this project that needs a minimum version of Airflow."""

    since: str
    what: str


GUARANTEES = (
    Guarantee("3.1.0", "a person approves a model before it is put into use"),
    Guarantee("3.2.0", "each run has a partition of its own, by schedule"),
    Guarantee("3.2.0", "partitions can be backfilled"),
    Guarantee("3.3.0", "a task that waits for a TPU gives it back when a person ends the task"),
    Guarantee("3.3.0", "waiting for an approval holds no worker and no trigger"),
)
"""Sources: Airflow's release notes of these versions; pull requests 61464 and 65590."""


def installed_airflow() -> str | None:
    """Return the version of Airflow that is installed here, if any; Airflow is not imported."""
    try:
        return importlib.metadata.version("apache-airflow-core")
    except importlib.metadata.PackageNotFoundError:
        return None


def python_finding(version: tuple[int, int] | None = None) -> Finding:
    """Check a version of Python.

    :param version: the version; None: that of the running Python.
    """
    version = version or sys.version_info[:2]
    found, needed = (".".join(map(str, numbers)) for numbers in (version, PYTHON))
    if version != PYTHON:
        return failed(
            f"Python {found}; the locked requirements are for {needed}.",
            f"make install PYTHON=python{needed}",
        )
    return ok(found)


def airflow_finding(version: str | None) -> Finding:
    """Check a version of Airflow, and name the guarantees that it cannot give.

    :param version: None: not known.
    """
    if version is None:
        return not_checked(
            "Airflow is not installed here.", "run this where it is, or name it by --airflow-url"
        )
    try:
        found = Version(version).release
    except InvalidVersion:
        return not_checked(f"{version!r} is no version.")
    lost = [g for g in GUARANTEES if found < Version(g.since).release]
    if lost:
        words = "; ".join(f"{g.what} (since {g.since})" for g in lost)
        newest = max((g.since for g in lost), key=Version)
        return failed(
            f"Airflow {version} cannot promise that {words}.",
            f"pip install 'apache-airflow>={newest}', or the locked requirements: make install",
        )
    return ok(version)
