"""What is installed is locked, all of it by hash."""

from __future__ import annotations

import re
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


def test_both_files_of_torch_name_one_version() -> None:
    built = (ROOT / "requirements-torch-cpu.txt").read_text()
    asked = (ROOT / "requirements-torch.in").read_text()
    (version,) = re.findall(r"^torch==(\S+)$", asked, re.MULTILINE)
    assert f"\ntorch=={version}+cpu " in built
