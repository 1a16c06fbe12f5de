"""Saves checkpoints while training goes on: only writing the tensors blocks it."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Self

from pipeline_store.formats import PhaseName
from trained_models.checkpoint_store import CheckpointStore, Commit
from trained_models.state import TrainingState
from training.runtime.phases import phase, saved, saving

log = logging.getLogger("training")


class Saver:
    """A background thread that commits checkpoints, one after the other.

    :meth:`save` returns when the tensors are in local files: from then on training may change the
    variables. Hashing, upload and commit follow in the thread; :meth:`collect` returns their
    outcome. As a context manager it waits at the end until nothing is pending.
    """

    def __init__(self, store: CheckpointStore) -> None:
        self._store = store
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="saver")
        self._pending: Future[Commit] | None = None
        self._step = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with phase(PhaseName.SAVE):
            self._thread.shutdown()
        error = self._pending.exception() if self._pending is not None else None
        if error is not None:
            log.warning("Checkpoint %d was not saved: %s", self._step, error)

    def save(self, write: Callable[[Path], list[Path]], state: TrainingState) -> None:
        """Write a checkpoint's files and begin to commit them.

        :param write: writes the files into a folder and returns them.
        :param state: training state of the checkpoint. The previous checkpoint must have been
            collected.
        """
        scratch = tempfile.TemporaryDirectory()
        with phase(PhaseName.SAVE):
            files = write(Path(scratch.name))
        saving(state.step)
        self._step = state.step
        self._pending = self._thread.submit(self._commit, scratch, files, state)

    def _commit(
        self, scratch: tempfile.TemporaryDirectory[str], files: list[Path], state: TrainingState
    ) -> Commit:
        with scratch:
            commit = self._store.commit(files, state)
        saved(state.step)
        return commit

    def collect(self, *, wait: bool) -> Commit | None:
        """Return the pending checkpoint if it is committed by now; each is returned once.

        :param wait: wait until it is.
        :raises Exception: the error that kept it from being committed.
        """
        pending = self._pending
        if pending is None or not (wait or pending.done()):
            return None
        self._pending = None
        with phase(PhaseName.SAVE):
            return pending.result()
