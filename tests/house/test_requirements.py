"""What is installed is locked, all of it by hash."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOCKED = sorted(
    path for folder in (ROOT, ROOT / "docker") for path in folder.glob("requirements*.txt")
)


@pytest.mark.parametrize("path", LOCKED, ids=lambda path: path.name)
def test_every_package_has_one_version_and_a_hash(path: Path) -> None:
    packages = re.split(r"\n(?=[\w.\[\]-]+==)", path.read_text())
    found = [package for package in packages if not package.startswith("#")]
    assert found
    for package in found:
        assert re.match(r"[\w.\[\]-]+==\S+ .*\\\n    --hash=sha256:[0-9a-f]{64}", package), package


@pytest.mark.parametrize("extra", ["observe", "mlflow", "hub"])
def test_an_extra_does_not_change_what_is_installed_without_it(extra: str) -> None:
    """All that it shares has the same version; the rest is in its own file alone."""
    usual, more = (
        dict(re.findall(r"^([\w.\[\]-]+)==(\S+)", (ROOT / name).read_text(), re.MULTILINE))
        for name in ("requirements.txt", f"requirements-{extra}.txt")
    )
    assert {name: more[name] for name in more.keys() & usual.keys()}.items() <= usual.items()
    added = more.keys() - usual.keys()
    assert "mlflow-skinny" in added if extra == "mlflow" else not added


def test_torch_is_installed_by_hash_or_not_at_all(tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    (tmp_path / "bin").mkdir()
    for name in ("python", "uv"):
        tool = tmp_path / "bin" / name
        tool.write_text(f'#!/bin/sh\necho {name} "$@" >> {calls}\nexit 1\n')
        tool.chmod(0o755)
    command = [ROOT / "scripts" / "install-torch", tmp_path]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "PIP_FIND_LINKS" in done.stderr
    asked = calls.read_text().splitlines()
    assert [line.split()[0] for line in asked] == ["python", "uv"]
    assert all("--require-hashes" in line for line in asked)


def test_both_files_of_torch_name_one_version() -> None:
    built = (ROOT / "requirements-torch-cpu.txt").read_text()
    asked = (ROOT / "requirements-torch.in").read_text()
    (version,) = re.findall(r"^torch==(\S+)$", asked, re.MULTILINE)
    assert f"\ntorch=={version}+cpu " in built
