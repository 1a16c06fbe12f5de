"""Attacks on real trainings and exports: kills at any moment, no space for a checkpoint.

Each command is a process that begins without TensorFlow and imports it, as on a TPU VM.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from pipeline_store import uris
from pipeline_store.formats import (
    CheckpointManifest,
    ExportCheck,
    FormatError,
    ModelExports,
    TrainingResult,
)
from pipeline_store.layout import ExportsLayout, RunLayout
from tests.training.corpora import TinyStore, tiny_config
from trained_models import artifacts, checkpoint_store
from trained_models.checkpoint_store import CheckpointStore
from trained_models.commit import CommitGuard
from training.exporting import writing
from training.runtime import job
from verification.attack_check.crashes import count_changes, die_at, in_child
from verification.attack_check.data_job import Ended, watched
from verification.attack_check.rows import Row, Tally
from verification.attack_check.storage_attacks import fill, small_disk, without_words

_LIMITS = {"memory": 4 << 30, "cpu_seconds": 300, "seconds": 1200}
"""Limits of a command with TensorFlow on a busy machine."""
_STEPS = 48
_FORMATS = ("hugging_face", "saved_model")
_LEVELS = (0, 60_000, 500_000, 1_500_000)
"""Free bytes on a disk; a checkpoint takes about 150,000."""


class _Trainings:
    """A store with a partition, and the result of an undisturbed training on it.

    :param folder: an empty folder.
    :param told: folder for output; default: in ``folder``.
    """

    def __init__(self, folder: Path, times: int, told: Path | None = None) -> None:
        config = tiny_config(training__train_steps=_STEPS, training__checkpoint_interval=2)
        self.store = TinyStore.create(folder / "store", config)
        self._manifest = self.store.partition("2026-01-01")
        self.run = self.store.run("disturbed")
        self._told = told or folder / "told"
        self.straight = self.store.run("straight")
        self.wanted = ""
        if times:
            began = time.monotonic()
            ended = self.train(self.straight)
            self.seconds = time.monotonic() - began
            if ended.exit_code:
                raise RuntimeError(f"A training that nothing disturbs fails: {ended.printed}")
            self.wanted = TrainingResult.load(self.straight.training.result).weights_sha256

    def command(self, run: RunLayout) -> int:
        """Train in this process; return the exit code."""
        from training import train

        places = ["--run", run.root, "--store", self.store.layout.root]
        return train.main([*places, "--manifest", self._manifest])

    def export(self) -> int:
        """Export the model of the undisturbed training in this process."""
        from training import export_model

        places = ["--store", self.store.layout.root, "--output", self.straight.exports.root]
        model = ["--model", self.straight.training.root, "--config", self.straight.config]
        return export_model.main([*places, *model])

    def train(self, run: RunLayout) -> Ended:
        """Train in a child process."""
        return watched(lambda: self.command(run), self._told, **_LIMITS)

    def problems(self, run: RunLayout) -> Iterator[str]:
        """Yield the problems of a training's checkpoints: all committed ones must be intact."""
        for uri in uris.list_files(run.training.checkpoints):
            try:
                artifacts.verify_files(run.training.root, CheckpointManifest.load(uri).files)
            except (FormatError, FileNotFoundError) as error:
                yield f"{type(error).__name__}: {error}"

    def differences(self, run: RunLayout) -> Iterator[str]:
        """Yield how a finished training differs from an undisturbed one."""
        yield from self.problems(run)
        result = TrainingResult.load_or_none(run.training.result)
        if result is None or result.weights_sha256 != self.wanted:
            yield "the weights are others than those of an undisturbed training"
        named = {
            file.path
            for uri in uris.list_files(run.training.checkpoints)
            for file in CheckpointManifest.load(uri).files
        }
        for uri in uris.list_files(uris.join(run.training.root, "attempts")):
            name = uri.removeprefix(f"{run.training.root}/")
            if name not in named:
                yield f"{name} is left, and nothing names it"


def _kill_when(
    work: Callable[[], int], is_time: Callable[[], bool], after: float, folder: Path
) -> bool:
    """Run work in a process that is killed some time after a condition holds.

    :returns: whether it was still running.
    """
    pid = os.fork()
    if not pid:
        os.setpgid(0, 0)
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        tempfile.tempdir = str(folder)
        os._exit(work())
    while not is_time():
        if os.waitpid(pid, os.WNOHANG)[0]:
            return False
        time.sleep(0.002)
    time.sleep(after)
    os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) < 0


def killed_trainings(folder: Path, times: int) -> Tally:
    """Kill a training repeatedly, around its saves and at random moments; then let it finish."""
    tally, draw = Tally(), random.Random(1)  # noqa: S311 - drawn by seed
    trainings = _Trainings(folder, times)
    run = trainings.run
    for number in range(times):
        saves = len(_stored(run.training.root)) + draw.randint(1, 12)
        end = time.monotonic() + draw.uniform(0, trainings.seconds)

        def is_time(number: int = number, saves: int = saves, end: float = end) -> bool:
            by_clock = time.monotonic() > end
            return by_clock if number % 4 == 3 else len(_stored(run.training.root)) >= saves

        _kill_when(lambda: trainings.command(run), is_time, draw.uniform(0, 0.02), folder)
        found = [*trainings.problems(run)]
        tally.add(*found, lost=bool(found))
    ended = trainings.train(run)
    found = [*trainings.differences(run)]
    if ended.exit_code:
        found.append(f"it cannot go on: {ended.printed[-300:]}")
    tally.add(*found, lost=bool(found))
    return tally


def _stored(folder: str) -> list[Path]:
    return [path for path in Path(folder).rglob("*") if path.is_file()]


def commits_before_bytes() -> AbstractContextManager[Any]:
    """Commit a checkpoint before its bytes are stored."""
    real = CheckpointStore.commit

    def commit(self: CheckpointStore, files: list[Path], state: Any) -> Any:
        with mock.patch.object(checkpoint_store.uris, "upload"):
            done = real(self, files, state)
        time.sleep(0.1)
        for path, digest in zip(files, done.manifest.files, strict=True):
            uris.upload(str(path), uris.join(self._layout.root, digest.path))
        return done

    return mock.patch.object(CheckpointStore, "commit", commit)


def full_disks(folder: Path, times: int) -> Tally:
    """Train on a disk that is full to several levels, then with space.

    Every other time this machine's temporary files are also on that disk.
    """
    tally = Tally()
    with small_disk(folder / "disk", 96) as disk:
        # The output needs space too, so it goes elsewhere.
        trainings = _Trainings(disk, times, folder / "told")
        for number in range(times):
            run = trainings.store.run(f"disturbed-{number}")
            filler = fill(disk, _LEVELS[number // 2 % len(_LEVELS)])
            temporary = disk if number % 2 else None
            with mock.patch.object(tempfile, "tempdir", temporary and str(temporary)):
                ended = trainings.train(run)
            found = [*_unclear(ended), *trainings.problems(run)]
            filler.unlink()
            trainings.train(run)
            lost = [f"with room again: {line}" for line in trainings.differences(run)]
            tally.add(*found, *lost, lost=bool(lost))
    return tally


def _unclear(ended: Ended) -> Iterator[str]:
    """Yield what is wrong with the error of a training on a full disk."""
    said = ended.printed + ended.said
    if not ended.exit_code or ended.over:
        return
    if "Traceback" in said:
        yield f"a traceback: {said[-300:]}"
    if not ("no room" in said or "No space left" in said) or "ree" not in said:
        yield f"no cause or no remedy: {said[-300:]}"


class _Writer:
    """A fake format writer: it writes some files of random bytes."""

    files_sha256 = "0" * 64

    def reason_against(self, name: str) -> str | None:
        return None

    def write(self, name: str, folder: Path) -> ExportCheck:
        (folder / "variables").mkdir(parents=True)
        for file in ("config.json", "variables/a", "variables/b"):
            (folder / file).write_bytes(os.urandom(5000))
        return ExportCheck(rows=1, max_hidden_state_difference=0, max_logit_difference=0, masks=1)


def export_crash_points(folder: Path, times: int) -> Tally:
    """Crash before and after changes of the file system while formats are stored; then repeat."""
    tally = Tally()
    scratch = folder / "scratch"
    scratch.mkdir()
    with mock.patch.object(tempfile, "tempdir", str(scratch)):

        def export(layout: ExportsLayout) -> object:
            guard = CommitGuard.from_environment()
            return writing.export(_Writer(), _FORMATS, layout, guard, dry_run=False)

        changes = count_changes(lambda: export(ExportsLayout(str(folder / "count"))))
        points = [(number, late) for number in range(1, changes + 1) for late in (False, True)]
        for number, late in points[:: max(1, len(points) // times)]:
            layout = ExportsLayout(str(folder / f"{number}-{late}"))
            die_at(lambda layout=layout: export(layout), number, after=late)  # type: ignore[misc]
            found = [*_export_problems(layout)]
            if in_child(lambda layout=layout: export(layout)):  # type: ignore[misc]
                found.append("doing it again fails")
            found += [*_export_problems(layout, is_done=True)]
            tally.add(*found)
    return tally


def _export_problems(layout: ExportsLayout, *, is_done: bool = False) -> Iterator[str]:
    """Yield the problems of stored formats: committed ones must be intact.

    :param is_done: whether they must be committed, and no other files may be left.
    """
    record = ModelExports.load_or_none(layout.record)
    if record is None:
        if is_done:
            yield "it is done, and nothing counts"
        return
    kept = {layout.record}
    for found in record.formats.values():
        root = uris.join(layout.root, found.folder)
        kept |= {uris.join(root, file.path) for file in found.files}
        try:
            artifacts.verify_files(root, found.files)
        except (FormatError, FileNotFoundError) as error:
            yield f"{type(error).__name__}: {error}"
    left = set(uris.list_files(layout.root)) - kept
    if is_done and left:
        yield f"{len(left)} files are left, such as {min(left)}"


def killed_exports(folder: Path, times: int) -> Tally:
    """Kill the export of a real model: when its first bytes are stored, or at a random moment."""
    tally, draw = Tally(), random.Random(1)  # noqa: S311 - drawn by seed
    trainings = _Trainings(folder, times)
    layout = trainings.straight.exports
    for number in range(times):
        end = time.monotonic() + draw.uniform(0, 1.5 * trainings.seconds)

        def is_time(number: int = number, end: float = end) -> bool:
            by_clock = time.monotonic() > end
            return by_clock if number % 2 else len(uris.list_files(layout.root)) > 0

        _kill_when(trainings.export, is_time, draw.uniform(0, 0.01), folder)
        found = [*_export_problems(layout)]
        ended = watched(trainings.export, folder / "told", **_LIMITS)
        if ended.exit_code:
            found.append(f"doing it again fails: {ended.last_line[:300]}")
        found += [*_export_problems(layout, is_done=True)]
        tally.add(*found)
        shutil.rmtree(layout.root, ignore_errors=True)
    return tally


def _without_sweep() -> AbstractContextManager[Any]:
    """Keep the files that earlier tries of an export stored."""
    return mock.patch.object(writing, "_sweep")


@contextmanager
def _without_words() -> Iterator[None]:
    """Pass errors of the disk through unchanged."""
    with without_words(), mock.patch.object(job, "NO_ROOM", ()):
        yield


ROWS = (
    Row("kill -9 of a training", killed_trainings, 16, commits_before_bytes, 4),
    Row("kill -9 of an export", killed_exports, 4, _without_sweep, 1),
    Row(
        "export: crash point before or after each change",
        export_crash_points,
        60,
        _without_sweep,
        30,
    ),
    Row("full disk during a checkpoint", full_disks, 8, _without_words, 2),
)
