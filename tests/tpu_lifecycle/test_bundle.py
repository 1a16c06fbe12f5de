"""Code bundles: complete, clean, and equal for equal code."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from pipeline_store import uris
from pipeline_store.layout import StoreLayout
from tests.tpu_agent.world import make_source
from tpu_lifecycle.boot.bundle import build_bundle


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return make_source(tmp_path / "source")


def test_equal_code_has_one_hash_wherever_and_whenever(tmp_path: Path, source: Path) -> None:
    store = StoreLayout(str(tmp_path / "store"))
    first = build_bundle(store, source)
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(source, elsewhere)
    for path in sorted(elsewhere.rglob("*"), reverse=True):
        os.utime(path, (1, 1))
        if path.is_file():
            path.chmod(0o600)
    assert build_bundle(store, elsewhere) == first
    assert uris.list_files(f"{store.root}/bundles") == [first.uri]
    content = uris.read(first.uri)
    assert first.sha256 == hashlib.sha256(content).hexdigest()
    assert first.uri == store.bundle(first.sha256)


def test_other_code_has_another_hash(tmp_path: Path, source: Path) -> None:
    store = StoreLayout(str(tmp_path / "store"))
    first = build_bundle(store, source)
    (source / "training/train.py").write_text("print('changed')\n")
    assert build_bundle(store, source).sha256 != first.sha256


def test_only_what_runs_is_packed(tmp_path: Path, source: Path) -> None:
    store = StoreLayout(str(tmp_path / "store"))
    clean = build_bundle(store, source)
    (source / "training/__pycache__").mkdir()
    (source / "training/__pycache__/train.cpython-311.pyc").write_bytes(b"x")
    (source / "training/.train.py.swp").write_bytes(b"x")
    (source / "tests").mkdir()
    (source / "tests/test_x.py").write_text("")
    assert build_bundle(store, source) == clean
    with zipfile.ZipFile(clean.uri) as archive:
        names = archive.namelist()
    assert "pipeline_config/presets/smoke.toml" in names
    assert "tpu_agent/__main__.py" in names
    assert {name.split("/")[0] for name in names} == {
        "corpus", "pipeline_config", "pipeline_store", "tpu_agent", "trained_models", "training",
    }  # fmt: skip


def test_a_missing_package_is_an_error(tmp_path: Path, source: Path) -> None:
    shutil.rmtree(source / "training")
    with pytest.raises(FileNotFoundError, match="training is missing"):
        build_bundle(StoreLayout(str(tmp_path / "store")), source)


def test_the_repository_s_own_bundle_starts_on_its_own(tmp_path: Path) -> None:
    """The packages need nothing of the repository that is not in the bundle."""
    bundle = build_bundle(StoreLayout(str(tmp_path / "store")))
    code = tmp_path / "code"
    with zipfile.ZipFile(bundle.uri) as archive:
        archive.extractall(code)
    for module in ("tpu_agent", "training.train", "training.evaluate"):
        shown = subprocess.run(
            [sys.executable, "-m", module, "--help"],
            cwd=code,
            env=os.environ | {"PYTHONPATH": str(code)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert shown.returncode == 0, shown.stderr
        assert "usage:" in shown.stdout
