"""Paths and modules that prose and configuration name: each is there."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TRACKED = frozenset(
    subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
)
FOLDERS = frozenset(str(folder) for path in TRACKED for folder in Path(path).parents)
ROOMS = sorted(folder for folder in FOLDERS if "/" not in folder and folder not in (".", "docs"))
IMPORT_ROOTS = ("", "plugins/")
NAMING = sorted(
    path
    for path in TRACKED
    if path.endswith((".md", ".Dockerfile", ".tf", ".yaml", ".yml", ".toml", "Makefile"))
    or path in (".dockerignore", ".gcloudignore", ".ci/run")
)
# A file or folder of a room; the beginning must not be the middle of a longer path.
PATH = re.compile(rf"(?<![\w./~$}}-])(?:{'|'.join(map(re.escape, ROOMS))})/[\w./*-]*[\w*/]")
MODULE = re.compile(r"(?<![\w./-])python3? -m ([a-z_]+(?:\.[a-z_]+)*)")
# Folders of a store, of a run and of an image that are called like rooms.
STORED = re.compile(r"(training|corpus|docs)/[^.]*$|training/(result|metrics|events|log)")
# Made by the reader, and in .gitignore.
MADE = re.compile(
    r"docker/compose/(secrets|presets|\.env)|infrastructure/(\.terraform|terraform\.tfvars|terraform\.tfstate)"
)


def is_there(path: str) -> bool:
    path = path.rstrip("/.")
    if "*" in path:
        return any(Path(known).match(path) for known in (*TRACKED, *FOLDERS))
    return path in TRACKED or path in FOLDERS or f"{path}.py" in TRACKED


def is_module(name: str) -> bool:
    place = name.replace(".", "/")
    return any(
        f"{root}{place}{end}" in TRACKED
        for root in IMPORT_ROOTS
        for end in (".py", "/__init__.py", "/__main__.py")
    ) or any(f"{root}{place}" in FOLDERS for root in IMPORT_ROOTS)


@pytest.mark.parametrize("name", NAMING)
def test_what_a_file_names_is_there(name: str) -> None:
    text = (ROOT / name).read_text()
    paths = {path for path in PATH.findall(text) if not (STORED.match(path) or MADE.match(path))}
    gone = [path for path in paths if not is_there(path)]
    gone += [m for m in MODULE.findall(text) if m.split(".")[0] in ROOMS and not is_module(m)]
    assert not gone, f"{name} names what is not there (any more): {sorted(gone)}"
