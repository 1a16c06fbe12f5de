"""Audits what must be in an image, and what must not."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from verification.container_images.catalogue import Image
from verification.container_images.contents import SITE_PACKAGES, locked_packages, python_packages
from verification.container_images.revision import Revision

LABEL = "org.opencontainers.image."
BIN_FOLDERS = ("usr/bin", "usr/local/bin", "usr/sbin", "opt/venv/bin")
BUILD_TOOLS = {"pip", "pip3", "uv", "gcc", "cc", "g++", "make", "ld", "git"}
# Files with credentials and the settings of package managers.
SECRET_FILES = {
    *("pip.conf", ".netrc", ".pypirc", ".git-credentials", "id_rsa", "id_ed25519"),
    *("application_default_credentials.json", "credentials.json", ".env"),
}
SECRET_WORDS = ("TOKEN", "SECRET", "PASSWORD", "PROXY", "CREDENTIALS", "PIP_", "UV_")
SMALL = 1 << 20


def audit(
    image: Image,
    root: Path,
    described: Mapping[str, Any],
    *,
    revision: Revision,
    private: Iterable[str],
) -> list[str]:
    """Return the problems of an image, one line each.

    :param root: root of its file system.
    :param described: its configuration and history.
    :param private: texts that must not be in it, such as addresses with passwords.
    """
    private = sorted(private)
    problems = [
        *_configuration(image, described, revision),
        *_secret_texts(described, root, private),
        *_files(root),
        *_packages(image, root),
    ]
    return [f"{image.name}: {problem}" for problem in problems]


def _configuration(image: Image, described: Mapping[str, Any], revision: Revision) -> Iterator[str]:
    config = described["config"]
    user = config.get("User") or "root"
    if image.root_because is None and user.partition(":")[0] in ("root", "0"):
        yield "its processes are root; add a USER."
    labels = config.get("Labels") or {}
    expected = {
        "version": revision.version,
        "revision": revision.revision,
        "created": revision.arguments["CREATED"],
    }
    for name, value in expected.items():
        if labels.get(LABEL + name) != value:
            yield f"label {LABEL}{name} is {labels.get(LABEL + name)}, expected {value}."
    for variable in config.get("Env") or []:
        name = variable.partition("=")[0]
        if any(word in name.upper() for word in SECRET_WORDS):
            yield f"variable {name} is kept in the image."


def _secret_texts(described: Mapping[str, Any], root: Path, private: list[str]) -> Iterator[str]:
    configuration = json.dumps(described)
    if any(text in configuration for text in private):
        yield "its configuration or history has an address of a package registry's."
    for path in _settings(root):
        content = path.read_bytes()
        if any(text.encode() in content for text in private):
            yield f"/{path.relative_to(root)} has an address of a package registry's."


def _settings(root: Path) -> Iterator[Path]:
    """Yield the small files outside Debian's programs and the locked Python packages."""
    packages = root / SITE_PACKAGES
    for top in ("etc", "home", "root", "opt", "tmp", "run", "var"):
        for path in (root / top).rglob("*"):
            if path.is_symlink() or not path.is_file() or path.is_relative_to(packages):
                continue
            if path.stat().st_size <= SMALL:
                yield path


def _files(root: Path) -> Iterator[str]:
    for path in _settings(root):
        if path.name in SECRET_FILES and path.stat().st_size:
            yield f"/{path.relative_to(root)} may hold a secret."
    for folder in BIN_FOLDERS:
        for tool in sorted(BUILD_TOOLS):
            if (root / folder / tool).exists():
                yield f"/{folder}/{tool} is for building, not for running."
    lists, caches = root / "var/lib/apt/lists", root / "root/.cache"
    leftovers = [*lists.glob("*_Packages*"), *caches.glob("*")]
    for path in leftovers:
        yield f"/{path.relative_to(root)} is left from building."
    for folder in ("opt/repretraining", SITE_PACKAGES):
        for path in (root / folder).rglob("tests"):
            if path.is_dir():
                yield f"/{path.relative_to(root)} is for tests."


def _packages(image: Image, root: Path) -> Iterator[str]:
    installed = {(package.name, package.version) for package in python_packages(root)}
    locked = {(package.name, package.version) for package in locked_packages(image.lock_path)}
    for name, version in sorted(installed - locked):
        yield f"{name} {version} is installed, but not in docker/{image.lock}."
    for name, version in sorted(locked - installed):
        yield f"{name} {version} of docker/{image.lock} is not installed."
