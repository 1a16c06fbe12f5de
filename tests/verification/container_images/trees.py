"""File systems of images, as far as they are looked at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from verification.container_images.catalogue import Image
from verification.container_images.contents import DPKG_STATUS, SITE_PACKAGES, locked_packages
from verification.container_images.revision import Revision

REVISION = Revision(version="1.2.0", revision="0" * 40, epoch=1_700_000_000)
STATUS = """Package: base-files
Status: install ok installed
Version: 12.4+deb12u11

Package: removed
Status: deinstall ok config-files
Version: 1
"""


def write(root: Path, path: str, text: str = "") -> Path:
    """Write a file of the image."""
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def install(root: Path, name: str, version: str, license_expression: str = "MIT") -> Path:
    """Install a Python package that has nothing but metadata; return their file."""
    folder = f"{SITE_PACKAGES}/{name.replace('-', '_')}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n"
    return write(
        root, f"{folder}/METADATA", f"{metadata}License-Expression: {license_expression}\n"
    )


def make_tree(root: Path, image: Image) -> None:
    """Make what an image must have: what its lock says, and nothing else."""
    write(root, DPKG_STATUS, STATUS)
    write(root, "usr/bin/python3")
    for package in locked_packages(image.lock_path):
        install(root, package.name, package.version)


def description(**config: Any) -> dict[str, Any]:
    """Return an image's configuration as it must be, except for what is given."""
    labels = {
        "org.opencontainers.image.version": REVISION.version,
        "org.opencontainers.image.revision": REVISION.revision,
        "org.opencontainers.image.created": "2023-11-14T22:13:20Z",
    }
    usual = {"User": "10001", "Labels": labels, "Env": ["PATH=/opt/venv/bin:/usr/bin"]}
    return {"config": usual | config, "history": [{"created_by": "RUN apt-get update"}]}
