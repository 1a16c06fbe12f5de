"""A training that is interrupted again and again, at random moments and in random ways."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline_store import uris
from pipeline_store.formats import CheckpointManifest
from pipeline_store.layout import RunLayout
from tests.training.corpora import TinyStore
from tests.training.damages import DAMAGES
from tests.training.jobs import (
    FAILED,
    PREEMPTED,
    start_trainer,
    train,
    train_until,
    wait_for_step,
)
from training.model import checkpoints

# Longest that a signal comes after the step it waited for: some loops of steps, or a save.
SECONDS = 0.05


class InterruptedTraining:
    """One run, and the interruptions that it has had."""

    def __init__(
        self,
        store: TinyStore,
        run: RunLayout,
        words: list[str],
        *,
        choice: random.Random,
        scratch: Path,
    ) -> None:
        """Prepare to interrupt a run that has not begun.

        :param words: manifests and options, as for :func:`tests.training.jobs.train`.
        :param choice: decides on everything that is random here.
        :param scratch: folder for progress files.
        """
        self._store = store
        self._run = run
        self._words = words
        self._choice = choice
        self._scratch = scratch
        self._scratch.mkdir()
        self.history: list[str] = []

    def interrupt(self, kind: str, before_step: int) -> None:
        """Go on with the training and interrupt it.

        :param kind: one of :data:`KINDS`.
        :param before_step: it waits at most until a step before this one.
        """
        begin = self._saved_step()
        step = self._choice.randint(begin + 1, max(before_step - 1, begin + 1))
        self.history.append(f"{kind} from {begin} at {step}")
        KINDS[kind](self, step)

    def _saved_step(self) -> int:
        # By their names, as one may be damaged.
        manifests = Path(self._run.training.checkpoints).glob("*.json")
        return max((int(path.stem) for path in manifests), default=0)

    def _send(self, number: signal.Signals, step: int) -> tuple[int, str]:
        """Start a process, send it a signal around some step, return exit code and output."""
        progress = self._scratch / str(len(self.history))
        with start_trainer(self._store, self._run, progress, *self._words) as trainer:
            wait_for_step(trainer, progress, step)
            time.sleep(self._choice.uniform(0, SECONDS))
            trainer.send_signal(number)
            output = trainer.communicate()[0]
        return trainer.returncode, output

    def sigterm(self, step: int) -> None:
        """Ask a process to stop, as a TPU VM is before it is taken away."""
        code, output = self._send(signal.SIGTERM, step)
        assert code == PREEMPTED, output
        assert f"stopped at step {self._saved_step()} of" in output
        assert self._saved_step() >= step

    def sigkill(self, step: int) -> None:
        """Kill a process."""
        code, output = self._send(signal.SIGKILL, step)
        assert code == -signal.SIGKILL, output

    def error_in_a_save(self, _step: int) -> None:
        """Have one of the next saves fail, somewhere between tensors and manifest."""
        place = self._choice.choice([*FAILURES])
        self.history[-1] += f": {place}"
        with pytest.MonkeyPatch.context() as patch:
            FAILURES[place](patch, self._choice.randint(1, 3))
            assert train(self._store, self._run, *self._words) == FAILED

    def damage(self, _step: int) -> None:
        """Stop in good order, then damage the newest checkpoint."""
        with pytest.MonkeyPatch.context() as patch:
            loops = self._choice.randint(1, 12)
            assert train_until(loops, patch, self._store, self._run, *self._words) == PREEMPTED
        name = self._choice.choice([*DAMAGES])
        self.history[-1] += f": {name}"
        DAMAGES[name](self._run, self._saved_step())


def _fail_at(number: int, call: Callable[..., Any], *, after: bool = False) -> Callable[..., Any]:
    """Return a function that fails the n-th time, before or after doing its work."""
    calls = iter(range(1, 1_000_000))

    def failing(*arguments: Any, **options: Any) -> Any:
        fails = next(calls) == number
        if fails and not after:
            raise OSError("interrupted")
        done = call(*arguments, **options)
        if fails:
            raise OSError("interrupted")
        return done

    return failing


def _fail_to_write(patch: pytest.MonkeyPatch, number: int) -> None:
    patch.setattr(checkpoints, "write_files", _fail_at(number, checkpoints.write_files))


def _fail_to_upload(patch: pytest.MonkeyPatch, number: int) -> None:
    upload = uris.upload
    failing = _fail_at(number, upload)

    def tensors_only(path: str, uri: str) -> None:
        (failing if "/attempts/" in uri else upload)(path, uri)

    patch.setattr(uris, "upload", tensors_only)


def _fail_to_commit(patch: pytest.MonkeyPatch, number: int) -> None:
    patch.setattr(CheckpointManifest, "create", _fail_at(number, CheckpointManifest.create))


def _fail_after_the_commit(patch: pytest.MonkeyPatch, number: int) -> None:
    failing = _fail_at(number, CheckpointManifest.create, after=True)
    patch.setattr(CheckpointManifest, "create", failing)


FAILURES = {
    "tensors": _fail_to_write,
    "upload": _fail_to_upload,
    "before the commit": _fail_to_commit,
    "after the commit": _fail_after_the_commit,
}
KINDS = {
    "SIGTERM": InterruptedTraining.sigterm,
    "SIGKILL": InterruptedTraining.sigkill,
    "error in a save": InterruptedTraining.error_in_a_save,
    "damaged checkpoint": InterruptedTraining.damage,
}
