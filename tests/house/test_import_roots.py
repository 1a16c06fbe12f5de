"""Import roots and packages: what several tools are told is the same."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest

from local.commands import import_path
from local.stack.paths import REPOSITORY
from tpu_lifecycle.boot.bundle import PACKAGES

PROJECT: dict[str, Any] = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
TOOLS = PROJECT["tool"]
DISTRIBUTIONS = packages_distributions()
VM_CONTRACT = "What a TPU VM runs needs nothing but itself"


def rooms() -> set[str]:
    """Return the rooms with Python of ours, `plugins/` as the packages in it."""
    python = {path.parent.name for path in REPOSITORY.glob("*/*.py")}
    found = python - {"dags", "plugins", "tests", "infrastructure", "scripts"}
    inner = {path.parent.name for path in (REPOSITORY / "plugins").glob("*/*.py")}
    return found | inner


def test_every_tool_has_the_import_roots_of_the_tests() -> None:
    roots = TOOLS["pytest"]["ini_options"]["pythonpath"]
    assert TOOLS["ruff"]["src"] == roots
    assert [".", *TOOLS["mypy"]["mypy_path"].split(":")] == roots
    assert import_path() == os.pathsep.join(str(REPOSITORY / root) for root in roots)


def test_every_room_is_under_the_import_contracts() -> None:
    linter = TOOLS["importlinter"]
    assert set(linter["root_packages"]) == rooms()
    layers = next(c for c in linter["contracts"] if c["name"] == "Imports run one way")["layers"]
    in_order = {part.strip().partition(".")[0] for layer in layers for part in layer.split("|")}
    # The emulator stands alone, under a contract of its own.
    assert in_order == rooms() - {"tpu_emulator"}


def test_a_bundle_has_what_the_contract_names() -> None:
    contracts = TOOLS["importlinter"]["contracts"]
    contract = next(found for found in contracts if found["name"] == VM_CONTRACT)
    assert list(PACKAGES) == contract["source_modules"]
    assert {*contract["source_modules"], *contract["forbidden_modules"]} == rooms()


# Files that no job on a TPU VM uses, and what they alone import.
NOT_ON_A_VM = {
    "jinja2": ("trained_models/downstream/page.py", "trained_models/compression/page.py"),
    "py3langid": ("corpus/text/languages.py",),
    "sentencex": ("corpus/text/content.py",),
}


def test_the_image_of_a_bundle_has_all_that_it_imports() -> None:
    locked = (REPOSITORY / "docker" / "requirements-training.txt").read_text()
    names = re.findall(r"^([\w-]+)==", locked, re.MULTILINE)
    there = {name.lower().replace("_", "-") for name in names}
    missing = set()
    for room in PACKAGES:
        for path in (REPOSITORY / room).rglob("*.py"):
            for name in imported(path) - set(sys.stdlib_module_names) - set(PACKAGES):
                shippers = {dist.lower().replace("_", "-") for dist in DISTRIBUTIONS[name]}
                if not shippers & there:
                    where = path.relative_to(REPOSITORY).as_posix()
                    if not where.startswith(NOT_ON_A_VM.get(name, ())):
                        missing.add(f"{where}: {name}")
    assert not missing


def imported(path: Path) -> set[str]:
    """Return the top names of all that a file imports, within functions too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found


@pytest.mark.parametrize(
    "path",
    [*REPOSITORY.glob("dags/*.py"), *REPOSITORY.glob("plugins/*.py")],
    ids=lambda path: path.name,
)
def test_a_dag_knows_neither_engines_nor_rigs(path: Path) -> None:
    """No contract sees these files: Airflow loads them by path."""
    engines = {"tensorflow", "tf_keras", "official", "apache_beam"}
    assert not imported(path) & (engines | {"local", "tests", "tpu_emulator", "verification"})


def test_a_wrong_import_is_found(tmp_path: Path) -> None:
    """The linter sees the code: an arrow that runs up breaks a contract."""
    for name in ("corpus", "scripts", "local", "pyproject.toml"):
        (tmp_path / name).symlink_to(REPOSITORY / name)
    for room in sorted(rooms() - {"corpus", "local"}):
        source = next(
            path for path in (REPOSITORY / room, REPOSITORY / "plugins" / room) if path.is_dir()
        )
        target = tmp_path / source.relative_to(REPOSITORY)
        target.parent.mkdir(exist_ok=True)
        target.mkdir() if room == "pipeline_store" else target.symlink_to(source)
    for path in (REPOSITORY / "pipeline_store").iterdir():
        (tmp_path / "pipeline_store" / path.name).symlink_to(path)
    (tmp_path / "pipeline_store" / "wrong.py").write_text("import corpus.errors\n")
    code = (
        "import sys; sys.path[:0] = ['.', 'plugins']\n"
        "from importlinter.cli import lint_imports_command; lint_imports_command()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "pipeline_store.wrong -> corpus.errors" in done.stdout
