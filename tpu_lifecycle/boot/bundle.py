"""Packs the code that a TPU VM runs into one file named by its content."""

from __future__ import annotations

import hashlib
import io
import zipfile
from dataclasses import dataclass
from pathlib import Path

from pipeline_store import uris
from pipeline_store.layout import StoreLayout

PACKAGES = (
    "corpus",
    "pipeline_config",
    "pipeline_store",
    "tpu_agent",
    "trained_models",
    "training",
)
"""Packages that import none of ours but each other: an import contract of pyproject.toml."""

SUFFIXES = (".py", ".toml")

_SOURCE = Path(__file__).resolve().parents[2]
_EARLIEST_ZIP_TIME = (1980, 1, 1, 0, 0, 0)
_READABLE_FILE = 0o100644 << 16
_UNIX = 3


@dataclass(frozen=True)
class Bundle:
    """A code bundle in the store."""

    sha256: str
    uri: str


def build_bundle(store: StoreLayout, source: Path = _SOURCE) -> Bundle:
    """Pack the code as it is on this machine and store it, unless it is stored already.

    Equal code gives an equal hash, on any machine: the file holds neither times nor owners, and it
    is not compressed, since compressors differ.

    :param store: where bundles lie.
    :param source: folder that holds the packages.
    :raises FileNotFoundError: a package is missing.
    """
    data = _pack(source)
    sha256 = hashlib.sha256(data).hexdigest()
    bundle = Bundle(sha256=sha256, uri=store.bundle(sha256))
    uris.create_if_absent(bundle.uri, data)
    return bundle


def _pack(source: Path) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for package in PACKAGES:
            for path in _files(source / package):
                name = path.relative_to(source).as_posix()
                archive.writestr(_entry(name), path.read_bytes())
    return buffer.getvalue()


def _files(package: Path) -> list[Path]:
    found = sorted(path for path in package.rglob("*") if path.suffix in SUFFIXES)
    if not found:
        raise FileNotFoundError(
            f"Package {package} is missing, but a TPU VM needs it. Keep all packages of the "
            "project in one folder."
        )
    return found


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, date_time=_EARLIEST_ZIP_TIME)
    entry.external_attr = _READABLE_FILE
    entry.create_system = _UNIX
    return entry
