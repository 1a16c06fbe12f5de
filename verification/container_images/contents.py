"""Lists the packages installed in the file system of an image."""

from __future__ import annotations

import re
from dataclasses import dataclass
from email.parser import HeaderParser
from importlib.metadata import distributions
from pathlib import Path

SITE_PACKAGES = "opt/venv/lib/python3.11/site-packages"
DPKG_STATUS = "var/lib/dpkg/status"
PIN = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?==([^ ;\\]+)", re.MULTILINE)


@dataclass(frozen=True, order=True)
class Package:
    """An installed package."""

    kind: str
    """``pypi`` or ``deb``, the type of its package URL."""
    name: str
    version: str
    license: str | None = None
    """From the package's own metadata; None for Debian's packages, whose status has none."""


def python_packages(root: Path) -> list[Package]:
    """Return the Python packages, sorted, with normalized names.

    :param root: root of the image's file system.
    """
    found = distributions(path=[str(root / SITE_PACKAGES)])
    return sorted(
        Package(
            "pypi",
            _normalised(one.metadata["Name"]),
            one.version,
            one.metadata["License-Expression"],
        )
        for one in found
    )


def debian_packages(root: Path) -> list[Package]:
    """Return the Debian packages, sorted.

    :param root: root of the image's file system.
    """
    blocks = (root / DPKG_STATUS).read_text().strip().split("\n\n")
    headers = [HeaderParser().parsestr(block) for block in blocks]
    return sorted(
        Package("deb", one["Package"], one["Version"])
        for one in headers
        if one["Status"].endswith(" installed")
    )


def locked_packages(lock: Path) -> list[Package]:
    """Return the packages that a locked requirements file pins, sorted, with normalized names."""
    found = PIN.findall(lock.read_text())
    return sorted(Package("pypi", _normalised(name), version) for name, version in found)


def _normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
