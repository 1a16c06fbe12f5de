"""The commands under test, called in this process or as processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipeline_store.formats import CheckpointManifest, ExitKind, Progress, TrainingResult
from pipeline_store.layout import RunLayout
from tests.training.corpora import TinyStore
from training import train as train_command
from training.runtime.job import StopRequest

ROOT = Path(__file__).parents[2]


def train_arguments(store: TinyStore, run: RunLayout, *manifests: str) -> list[str]:
    """Return the trainer's arguments; words beginning with ``--`` end the manifests."""
    options = next((n for n, word in enumerate(manifests) if word.startswith("--")), None)
    words = [] if options is None else list(manifests[options:])
    named = [word for uri in manifests[:options] for word in ("--manifest", uri)]
    return ["--run", run.root, "--store", store.layout.root, *named, *words]


def train(store: TinyStore, run: RunLayout, *manifests: str) -> int:
    """Run the trainer in this process and return its exit code."""
    return train_command.main(train_arguments(store, run, *manifests))


class StopAfter(StopRequest):
    """A stop request that arrives after some looks, as SIGTERM would at that loop."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self._looks = looks

    @property
    def requested(self) -> bool:
        self._looks -= 1
        return self._looks < 0


def train_until(
    loops: int, monkeypatch: pytest.MonkeyPatch, store: TinyStore, run: RunLayout, *manifests: str
) -> int:
    """Run the trainer and ask it to stop after some loops of steps."""
    with monkeypatch.context() as patch:
        patch.setattr(train_command, "StopRequest", lambda: StopAfter(loops))
        return train(store, run, *manifests)


def start_trainer(
    store: TinyStore, run: RunLayout, progress: Path, *manifests: str, **environment: str
) -> subprocess.Popen[str]:
    """Start the trainer as a process that reports to a progress file."""
    return subprocess.Popen(
        [sys.executable, "-m", "training.train", *train_arguments(store, run, *manifests)],
        cwd=ROOT,
        env=os.environ | {"REPRETRAIN_PROGRESS_FILE": str(progress)} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def wait_for_step(process: subprocess.Popen[str], progress: Path, step: int) -> None:
    """Return when the trainer has reported a step; fail if it ends before."""
    while not progress.exists() or Progress.model_validate_json(progress.read_text()).step < step:
        if process.poll() is not None:
            pytest.fail(f"the trainer ended before step {step}: {process.communicate()[0]}")
        time.sleep(0.01)


def result(run: RunLayout) -> TrainingResult:
    """Return the result of a finished run."""
    return TrainingResult.load(run.training.result)


def committed_steps(run: RunLayout) -> list[int]:
    """Return the steps of all committed checkpoints."""
    folder = Path(run.training.checkpoints)
    return sorted(CheckpointManifest.load(str(path)).step for path in folder.glob("*.json"))


def all_files(folder: str | Path) -> dict[str, bytes]:
    """Return the content of every file below a folder."""
    return {
        str(p.relative_to(folder)): p.read_bytes() for p in Path(folder).rglob("*") if p.is_file()
    }


USER_ERROR, BAD_DATA = ExitKind.USER_ERROR.exit_code, ExitKind.BAD_DATA.exit_code
PREEMPTED, FAILED = ExitKind.PREEMPTED.exit_code, ExitKind.FAILED.exit_code
