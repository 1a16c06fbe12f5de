"""Who may commit, and exit codes for everything that ends a job."""

from __future__ import annotations

from pathlib import Path

import pytest
import tensorflow as tf

from pipeline_config import ConfigError
from pipeline_store.formats import ExitKind, FormatError, Holder
from trained_models.commit import STANDALONE_TOKEN, CommitGuard
from trained_models.errors import (
    BadDataError,
    LostHolderError,
    NonFiniteLossError,
    PreemptedError,
    UserError,
)
from training.runtime.job import run_job


def hold(path: Path, token: str) -> None:
    Holder(sequence=1, generation=1, attempt=3, token=token).write(str(path))


def test_without_a_pipeline_anybody_may_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REPRETRAIN_HOLDER_URI", raising=False)
    monkeypatch.delenv("REPRETRAIN_TOKEN", raising=False)
    guard = CommitGuard.from_environment()
    guard.check()
    assert guard.token == STANDALONE_TOKEN


def test_only_the_holder_may_commit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "holder.json"
    monkeypatch.setenv("REPRETRAIN_HOLDER_URI", str(path))
    monkeypatch.setenv("REPRETRAIN_TOKEN", "mine")
    guard = CommitGuard.from_environment()
    with pytest.raises(LostHolderError, match="names nobody as the holder"):
        guard.check()
    hold(path, "mine")
    guard.check()
    hold(path, "another")
    with pytest.raises(LostHolderError, match="names attempt 3 as the holder of this run, not"):
        guard.check()


def test_half_an_environment_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRETRAIN_TOKEN", "mine")
    monkeypatch.delenv("REPRETRAIN_HOLDER_URI", raising=False)
    with pytest.raises(LostHolderError, match="only one is set"):
        CommitGuard.from_environment()


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (UserError("x"), ExitKind.USER_ERROR),
        (ConfigError(["x"]), ExitKind.USER_ERROR),
        (FileNotFoundError("x"), ExitKind.USER_ERROR),
        (BadDataError("x"), ExitKind.BAD_DATA),
        (FormatError("x"), ExitKind.BAD_DATA),
        (MemoryError("x"), ExitKind.OUT_OF_MEMORY),
        (tf.errors.ResourceExhaustedError(None, None, "x"), ExitKind.OUT_OF_MEMORY),
        (tf.errors.InternalError(None, None, "RESOURCE_EXHAUSTED: x"), ExitKind.OUT_OF_MEMORY),
        (PreemptedError("x"), ExitKind.PREEMPTED),
        (NonFiniteLossError("x"), ExitKind.FAILED),
        (LostHolderError("x"), ExitKind.FAILED),
        (ZeroDivisionError("x"), ExitKind.FAILED),
    ],
)
def test_every_failure_has_its_exit_code(
    error: Exception, kind: ExitKind, capsys: pytest.CaptureFixture[str]
) -> None:
    def job() -> None:
        raise error

    assert run_job(job) == kind.exit_code
    assert "x" in capsys.readouterr().out


def test_out_of_memory_comes_with_advice(capsys: pytest.CaptureFixture[str]) -> None:
    def job() -> None:
        raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor")

    assert run_job(job) == 42
    advice = capsys.readouterr().out
    assert "Twice the training.gradient_accumulation_steps" in advice
    assert "smaller global_batch_size" in advice


def test_success_is_zero() -> None:
    assert run_job(lambda: None) == 0
