"""Paths and modules that prose and configuration name: each is there."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
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
SNIPPET = re.compile(r"^\s*from ([a-z_]+(?:\.[a-z_]+)*) import (\w+)", re.MULTILINE)
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


def snippets() -> Iterator[tuple[str, str, str]]:
    """Yield the imports of our modules in programs that stand in strings: file, module, name."""
    for path in sorted(TRACKED):
        if path.endswith(".py"):
            for node in ast.walk(ast.parse((ROOT / path).read_text())):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    for module, name in SNIPPET.findall(node.value):
                        if module.partition(".")[0] in ROOMS:
                            yield path, module, name


def is_importable(module: str, name: str) -> bool:
    """Return whether a module has a name, as far as files tell."""
    stem = ROOT / module.replace(".", "/")
    if stem.with_suffix(".py").exists():
        return name in stem.with_suffix(".py").read_text()
    init = stem / "__init__.py"
    is_inner = (stem / name).is_dir() or (stem / f"{name}.py").exists()
    return is_inner or (init.exists() and name in init.read_text())


def test_programs_in_strings_import_what_is_there() -> None:
    found = [*snippets()]
    assert len(found) > 5
    missing = [snippet for snippet in found if not is_importable(*snippet[1:])]
    assert not missing


def test_the_list_of_files_is_complete() -> None:
    command = ["scripts/list-files", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
