"""Attacks by number: ten thousand small files in a partition, ten thousand partitions."""

from __future__ import annotations

import mmap
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

from corpus import partitions
from corpus.partitions import FoundFile, partition_patterns
from pipeline_store import local, uris
from pipeline_store.layout import StoreLayout
from pipeline_store.request_paths import PLACEHOLDER
from verification.attack_check.data_job import DataJob
from verification.attack_check.rows import Row, Tally

_JOB_SECONDS = 300
"""Limit of processor time for the whole data job on all files."""
_CLOCK_SECONDS = 3600
"""Limit of wall-clock time, in which the job ends also on a busy machine."""
_MOST_WAITS = 13
"""Maximum number of disk syncs that the job waits for per file."""
_OTHER_WAITS = 100
"""Maximum number of disk syncs for the partition as a whole."""
_MOST_CALLS = 4
"""Maximum number of calls to the store for any number of partitions; a listing counts as one."""
_CALLS = ("list", "list_details", "list_named", "read", "read_versioned", "open", "size")


def small_files(folder: Path, times: int) -> Tally:
    """Prepare a partition of ``times`` files, each with one document."""
    tally, job = Tally(), DataJob(folder)
    store = job.store("many")
    files = store / "corpus" / "2026-01-31"
    text = job.text.partition(b"\n\n")[0]
    for number in range(times):
        (files / f"{number:05}.txt").write_bytes(b"%s number %d\n" % (text, number))
    with _counted_waits() as waits:
        ended = job.prepare(store, cpu_seconds=_JOB_SECONDS, seconds=_CLOCK_SECONDS)
    found = [ended.over] if ended.over else []
    if ended.exit_code:
        found.append(f"exit code {ended.exit_code}: {ended.last_line[:300]}")
    elif ended.summary["shards_processed"] != times:
        found.append(f"{ended.summary['shards_processed']} files are accounted for")
    if waits() > times * _MOST_WAITS + _OTHER_WAITS:
        found.append(f"it waits for the disk {waits() / times:.1f} times a file")
    tally.add(*found)
    tally.tried = times
    return tally


@contextmanager
def _counted_waits() -> Iterator[Callable[[], int]]:
    """Yield a function that returns how many syncs this process and its forks waited for.

    Files that are synced together count once.
    """
    # Memory that forks of this process share with it.
    shared, lock = mmap.mmap(-1, 8), threading.Lock()
    sync, together = local._sync, local.together

    def count() -> None:
        with lock:
            shared[:] = (int.from_bytes(shared[:], "little") + 1).to_bytes(8, "little")

    def counted(path: Path) -> None:
        if not threading.current_thread().name.startswith("ThreadPoolExecutor"):
            count()
        sync(path)

    @contextmanager
    def counted_once() -> Iterator[None]:
        count()
        with together():
            yield

    with (
        mock.patch.object(local, "_sync", counted),
        mock.patch.object(local, "together", counted_once),
    ):
        yield lambda: int.from_bytes(shared[:], "little")


def many_partitions(folder: Path, times: int) -> Tally:
    """List ``times`` partitions of one file each, and check that nothing is overlooked."""
    tally, store, pattern = Tally(), StoreLayout(str(folder)), "corpus/{partition}/*"
    names = [f"p-{number:05}" for number in range(times)]
    for name in names:
        (folder / "corpus" / name).mkdir(parents=True)
        (folder / "corpus" / name / "a.txt").write_text("text")
    calls: list[str] = []
    with ExitStack() as stack:
        for name in _CALLS:
            stack.enter_context(mock.patch.object(local.LocalBackend, name, _noted(name, calls)))
        found = partitions.find_partitions(pattern, store)
        odd = [*partitions.overlooked(pattern, store)]
    tally.add(
        *([] if found == names else [f"{len(found)} of {times} partitions are found"]),
        *(f"overlooked: {line}" for line in odd),
        *([f"{len(calls)} calls of the store"] if len(calls) > _MOST_CALLS else []),
    )
    tally.tried = times
    return tally


def _noted(name: str, calls: list[str]) -> Callable[..., Any]:
    real: Callable[..., Any] = getattr(local.LocalBackend, name)

    def noted(*arguments: Any) -> Any:
        calls.append(name)
        return real(*arguments)

    return noted


def _one_by_one(pattern: str, store: StoreLayout) -> Iterator[FoundFile]:
    """List the files of one partition after the other."""
    for part in partition_patterns(pattern, store):
        above = uris.for_library(part.partition(PLACEHOLDER)[0])
        for folder in sorted(Path(above).iterdir()):
            for file in uris.list_details(str(folder)):
                yield FoundFile(part, folder.name, file.uri, file.bytes)


ROWS = (
    Row(
        "10,000 small files",
        small_files,
        10_000,
        lambda: mock.patch.object(local, "together", nullcontext),
        60,
    ),
    Row(
        "10,000 partitions",
        many_partitions,
        10_000,
        lambda: mock.patch.object(partitions, "find_files", _one_by_one),
        50,
    ),
)
