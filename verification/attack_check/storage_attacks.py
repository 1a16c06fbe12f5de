"""Attacks on storage: full and read-only disks, power cuts, killed writes."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock

from beam_jobs import cli
from corpus import errors
from model_registry import registry
from model_registry.consistency import check
from model_registry.retention import pruning
from pipeline_store import local, uris
from pipeline_store.formats import FormatError, ProductionPointer
from pipeline_store.layout import LineageLayout, StoreLayout
from tests.model_registry.retained import POLICY, age
from verification.attack_check.crashes import kill_at_random
from verification.attack_check.data_job import PARTITION, DataJob, Ended
from verification.attack_check.power_cut import Disk
from verification.attack_check.registry_attacks import STAGES, problems, promotion, retention
from verification.attack_check.rows import Row, Tally

_FILL_LEVELS = (0, 4096, 16_384, 65_536)
"""Free bytes on a disk that fills up."""
_JOB_LEVELS: tuple[tuple[int | None, bool], ...] = (
    *((0, False), (None, False), (0, True), (None, True)),
    *((4096, False), (65_536, False), (65_536, True), (200_000, False), (200_000, True)),
)
"""Free bytes for a data job (None: the disk is read-only), and whether temporary files are also on
that disk."""


@contextmanager
def small_disk(folder: Path, megabytes: int = 64) -> Iterator[Path]:
    """Mount a small file system; needs root."""
    folder.mkdir()
    size = f"size={megabytes}M"
    subprocess.run(["/bin/mount", "-t", "tmpfs", "-o", size, "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["/bin/umount", "-l", folder], check=True)


def fill(disk: Path, left: int) -> Path:
    """Fill a disk except for some bytes; return the file that takes the space."""
    free = shutil.disk_usage(disk).free
    filler = disk / "filler"
    with filler.open("wb") as file, suppress(OSError):
        os.posix_fallocate(file.fileno(), 0, max(1, free - left))
    return filler


def full_disks(folder: Path, times: int) -> Tally:
    """Run each stage on a disk that is full to several levels, and again when there is space."""
    tally = Tally()
    for number in range(times):
        prepare, left = STAGES[number % len(STAGES)], _FILL_LEVELS[number // len(STAGES) % 4]
        with small_disk(folder / str(number)) as disk:
            stage = prepare(str(disk / "store"))
            filler = fill(disk, left)
            found = _tried(stage.work)
            if prepare is retention and found:
                found.append("what makes room cannot run")
            found += [f"then: {line}" for line in problems(stage.run)]
            filler.unlink()
            stage.work()
            found += [f"with room again: {line}" for line in problems(stage.run)]
            tally.add(*found)
    return tally


def read_only_disks(folder: Path, times: int) -> Tally:
    """Run each stage on a read-only disk."""
    tally = Tally()
    for number in range(times):
        with small_disk(folder / str(number)) as disk:
            stage = STAGES[number % len(STAGES)](str(disk / "store"))
            subprocess.run(["/bin/mount", "-o", "remount,ro", disk], check=True)
            found = _tried(stage.work)
            tally.add(*found, *problems(stage.run))
    return tally


def data_jobs(folder: Path, times: int) -> Tally:
    """Prepare a partition on a full or read-only disk, then with space."""
    tally, told = Tally(), folder / "told"
    with small_disk(folder / "disk") as disk:
        job = DataJob(disk, told)
        straight = _with_text(job, "straight")
        if (ended := job.prepare(straight)).exit_code:
            raise RuntimeError(f"A data job that nothing disturbs fails: {ended.said}")
        wanted = _records(straight)
        for number in range(times):
            left, is_temporary_there = _JOB_LEVELS[number % len(_JOB_LEVELS)]
            store = _with_text(job, str(number))
            with _unwritable(disk, left):
                temporary = str(disk) if is_temporary_there else None
                with mock.patch.object(tempfile, "tempdir", temporary):
                    found = [*_unclear(job.prepare(store))]
            ended = job.prepare(store)
            if ended.exit_code or _records(store) != wanted:
                found.append(f"with room again: {ended.last_line[:200]}, or other records")
            tally.add(*found, lost=_records(store) != wanted)
            shutil.rmtree(store)
    return tally


def _with_text(job: DataJob, name: str) -> Path:
    store = job.store(name)
    (store / "corpus" / PARTITION / "a.txt").write_bytes(job.text)
    return store


@contextmanager
def _unwritable(disk: Path, left: int | None) -> Iterator[None]:
    """Leave the given number of bytes on a disk; None: make it read-only."""
    if left is not None:
        filler = fill(disk, left)
        yield
        filler.unlink()
        return
    subprocess.run(["/bin/mount", "-o", "remount,ro", disk], check=True)
    yield
    subprocess.run(["/bin/mount", "-o", "remount,rw", disk], check=True)


def _unclear(ended: Ended) -> Iterator[str]:
    """Yield what is wrong with the error of a data job that could not write."""
    if ended.over or ended.has_traceback:
        yield ended.over or f"a traceback: {ended.last_line[:300]}"
    elif ended.exit_code:
        line = ended.last_line
        names_it = "no room" in line or "space" in line or "Read-only" in line
        helps = "prune" in line or "TMPDIR" in line or "writ" in line
        if not (line.startswith("prepare_corpus: ") and names_it and helps and "/" in line):
            yield f"no cause, path or remedy: {line[:300]}"


def _records(store: Path) -> set[bytes]:
    return {path.read_bytes() for path in (store / "shards").rglob("*.tfrecord")}


def _without_lines() -> Any:
    """Pass errors of the disk through the whole data job unchanged."""
    stack = ExitStack()
    stack.enter_context(without_words())
    for module in (cli, errors):
        stack.enter_context(mock.patch.object(module, "is_of_machine", return_value=False))
    return stack


def _tried(work: Callable[[], object]) -> list[str]:
    """Run some work; return what is wrong with its error, if it failed."""
    try:
        work()
    except OSError as error:
        text = str(error)
        clear = [error.filename, "prune --delete" in text or "mount the store for writing" in text]
        return [] if all(clear) else [f"no path or no remedy: {text}"]
    except (registry.RegistryError, FormatError) as error:
        return [f"another error than that of the disk: {error}"]
    return []


def power_cuts(folder: Path, times: int) -> Tally:
    """Cut the power before each change of a promotion, then of a retention pass."""
    tally = Tally()
    for number, prepare in enumerate((promotion, retention)[:times]):
        path, target = folder / str(number), folder / "cut"
        stage = prepare(str(path))
        # Only the registry's own part; no deciding record refers to the rest.
        disk = Disk(path / "lineages" / "default")

        def look(disk: Disk = disk, target: Path = target) -> None:
            for outcome in disk.cut(target):
                found = _lineage_problems(LineageLayout(str(outcome)))
                tally.add(*found, lost=bool(found))
            shutil.rmtree(target)

        with disk.watched(look):
            stage.work()
    return tally


def _lineage_problems(lineage: LineageLayout) -> list[str]:
    try:
        found = list(check(lineage).problems)
        pointer = ProductionPointer.load_or_none(lineage.production)
        if pointer is None:
            return [*found, "no model is in use"]
        registry.verify(lineage, pointer.version_id)
    except (registry.RegistryError, FormatError, OSError) as error:
        return [f"{type(error).__name__}: {error}"]
    return found


def killed_writes(folder: Path, times: int) -> Tally:
    """Kill writes in the middle; retention must list and remove what they leave."""
    tally, chance = Tally(), random.Random(1)  # noqa: S311 - drawn by seed
    path = str(folder / "store")
    stage = retention(path)
    source = folder / "weights"
    source.write_bytes(os.urandom(64 * 2**20))
    for number in range(times):
        uri = f"{path}/runs/{stage.run.key}/training/attempts/{number}/weights"
        kill_at_random(lambda uri=uri: uris.upload(str(source), uri), 0.1, chance)  # type: ignore[misc]
    left = [file for file in Path(path).rglob(f"{local.ASIDE_MARK}*") if file.is_file()]
    age(path)
    for file in left:
        os.utime(file, (0, 0))
    report = pruning.prune(StoreLayout(path), POLICY)
    named = {item.name for item in report.plan.items}
    for file in left:
        name = str(file.relative_to(path))
        tally.add(
            *([] if name in named else [f"{name} is not named"]),
            *([f"{name} stays"] if file.exists() else []),
        )
    tally.tried = times
    return tally


def without_words() -> Any:
    """Pass errors of the disk through unchanged."""
    return mock.patch.object(local, "_explained", lambda error, *_: error)


def without_sync() -> Any:
    """Disable syncing of bytes and names."""
    return mock.patch.object(local, "_sync")


ROWS = (
    Row("full disk", full_disks, 16, without_words, 8),
    Row("read-only store", read_only_disks, 5, without_words, 4),
    Row("data job on a full or read-only disk", data_jobs, 9, _without_lines, 2),
    Row("power cut before each change", power_cuts, 2, without_sync, 1),
    Row(
        "writes killed in the middle",
        killed_writes,
        40,
        lambda: mock.patch.object(local.LocalBackend, "list_leftovers", return_value=[]),
        20,
    ),
)
