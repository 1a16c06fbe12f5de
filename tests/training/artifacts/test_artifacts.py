"""Trained files, found and verified without TensorFlow."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pipeline_store.formats import FileDigest, FormatError, TrainingResult
from tests.training.conftest import TwoDays
from tests.training.jobs import ROOT
from trained_models import artifacts
from trained_models.errors import UserError


def test_result_checkpoint_is_the_last_one(two_days: TwoDays) -> None:
    manifest = artifacts.result_checkpoint(two_days.first.training.root)
    assert manifest.step == two_days.store.config.training.train_steps
    assert {Path(file.path).name for file in manifest.files} == {
        "inputs.json",
        "weights.data-00000-of-00001",
        "weights.index",
    }


def test_unfinished_training_has_no_result(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"result\.json"):
        artifacts.result_checkpoint(str(tmp_path))
    with pytest.raises(UserError, match=r"of this project: .*model\.json.*result\.json"):
        artifacts.model_files(str(tmp_path))


def test_copy_is_complete_and_verified(two_days: TwoDays, tmp_path: Path) -> None:
    files, prefix = artifacts.copy_checkpoint_files(
        two_days.first.training.root, str(tmp_path / "version")
    )
    assert prefix == "checkpoint/weights"
    artifacts.verify_files(str(tmp_path / "version"), files)
    copied = {str(p.relative_to(tmp_path / "version")) for p in tmp_path.rglob("*") if p.is_file()}
    assert copied == {file.path for file in files}


def damage(kind: str, path: Path) -> None:
    data = path.read_bytes()
    if kind == "missing":
        path.unlink()
    elif kind == "truncated":
        path.write_bytes(data[:-1])
    else:
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("missing", "is missing; its manifest names it"),
        ("truncated", "has 9 bytes; its manifest says 10"),
        ("flipped", "is damaged: its SHA-256 is"),
    ],
)
def test_damage_is_named(tmp_path: Path, kind: str, message: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    digest = FileDigest(
        path="file",
        bytes=10,
        sha256="84d89877f0d4041efb6bf91a16f0248f2fd573e6af05c19f96bedb9f882f7882",
    )
    artifacts.verify_files(str(tmp_path), [digest])
    damage(kind, path)
    with pytest.raises(FormatError, match=message):
        artifacts.verify_files(str(tmp_path), [digest])
    with pytest.raises(FormatError, match=message):
        artifacts.fetch_file(str(path), digest, tmp_path / "copy")


def test_result_needs_its_checkpoint(two_days: TwoDays, tmp_path: Path) -> None:
    result = TrainingResult.load(two_days.first.training.result)
    result.write(str(tmp_path / "result.json"))
    with pytest.raises(FileNotFoundError, match="checkpoints"):
        artifacts.result_checkpoint(str(tmp_path))


def test_no_tensorflow_is_imported() -> None:
    code = (
        "import sys, trained_models.artifacts, trained_models.record_sources\n"
        "import training.evaluate, training.train\n"
        "print([m for m in ('tensorflow', 'tf_keras', 'official') if m in sys.modules])"
    )
    output = subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True)
    assert output.strip() == "[]"
