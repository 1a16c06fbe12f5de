"""A training folder with checkpoints whose files hold anything, for tests without a model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipeline_store.formats import BestCheckpoint, TrainingInputs
from pipeline_store.layout import RunLayout
from tests.training.corpora import tiny_config
from trained_models.checkpoint_store import CheckpointStore
from trained_models.commit import CommitGuard
from trained_models.state import TrainingState


def open_store(run: RunLayout, **overrides: Any) -> CheckpointStore:
    """Return the store as a new trainer of a run opens it; ``section__name=value``."""
    config = tiny_config(**overrides)
    inputs = TrainingInputs(settings={}, vocabulary_sha256="0" * 64, records={})
    guard = CommitGuard.from_environment()
    return CheckpointStore(run.training, guard, config, inputs=inputs, data_sha256="0" * 64)


def state(step: int, best: int | None = None) -> TrainingState:
    """Return the state after some step, with the step of the best checkpoint."""
    chosen = None if best is None else BestCheckpoint(step=best, loss=1.0, evaluations_since=0)
    return TrainingState(step=step, loss=2.0, best=chosen)


def writer(content: bytes = b"tensors") -> Callable[[Path], list[Path]]:
    """Return what writes a checkpoint's files."""

    def write(folder: Path) -> list[Path]:
        path = folder / "weights.index"
        path.write_bytes(content)
        return [path]

    return write


def save(store: CheckpointStore, folder: Path, *steps: int, best: int | None = None) -> None:
    """Commit checkpoints, one after the other."""
    for step in steps:
        store.commit(writer()(folder), state(step, best))
