"""Attacks by text: decompression bombs, endless documents, special files, failing machines."""

from __future__ import annotations

import errno
import io
import os
import random
import re
import resource
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Self
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq

from corpus import partitions
from corpus.errors import UserError
from corpus.text import cleaning, inputs, parquet_documents
from pipeline_store.layout import StoreLayout
from verification.attack_check.data_job import MOST_MEMORY, DataJob, Ended, watched
from verification.attack_check.hostile_corpora import (
    BOMBS,
    CORPORA,
    DOCUMENTS,
    ENDLESS,
    SECRET,
    TAGS,
    Corpus,
    bomb_of_a_dictionary,
)
from verification.attack_check.rows import Row, Tally

_DOCUMENT_SECONDS = 10
"""Processor time for the whole job on a partition of one document."""
_BOMB_SECONDS = 300
_WAIT_SECONDS = 20
_REFUSED = (40, 41)
_FAILED = 45
_ROWS = 100


def _through(corpora: Sequence[Corpus], **limits: Any) -> Callable[[Path, int], Tally]:
    """Return an attack that prepares the first ``times`` of the given corpora."""

    def attack(folder: Path, times: int) -> Tally:
        tally, job = Tally(), DataJob(folder)
        for number, corpus in enumerate(corpora[:times]):
            store = job.store(str(number))
            files = store / "corpus" / "2026-01-31"
            (files / "good.txt").write_bytes(job.text)
            corpus.make(files)
            wanted = _inputs(files)
            ended = job.prepare(store, corpus.settings, **limits)
            found = _problems(ended, corpus, wanted, store)
            tally.add(*(f"{corpus.name}: {line}" for line in found))
            shutil.rmtree(store)
        return tally

    return attack


def _inputs(folder: Path) -> int:
    """Return the number of text files in a partition."""
    return sum(
        path.is_file() and not path.name.startswith(".") and path.name != "_SUCCESS"
        for path in folder.iterdir()
    )


def _problems(ended: Ended, corpus: Corpus, files: int, store: Path) -> Iterator[str]:
    """Yield what is wrong with a job's outcome: it must use the corpus, or say why not."""
    if ended.over:
        yield ended.over
        return
    if ended.exit_code not in (0, *_REFUSED) or ended.has_traceback:
        yield f"exit code {ended.exit_code}: {ended.last_line[:300]}"
        return
    if corpus.refused and (not ended.exit_code or corpus.refused not in ended.last_line):
        yield f"{corpus.refused!r} is not said: {ended.last_line[:200]}"
    if ended.exit_code and not ended.last_line.startswith("prepare_corpus: "):
        yield f"no reason: {ended.last_line[:200]}"
    summary = ended.summary
    if summary and summary["shards_processed"] != files:
        yield f"{summary['shards_processed']} of {files} files are accounted for"
    report = Path(summary["report"]).read_text() if summary else ""
    yield from (f"{tag} is in the report" for tag in TAGS if tag in report)
    letters = (path.read_text() for path in store.glob("shards/**/dead_letter.jsonl"))
    if any(SECRET in text for text in (ended.said, report, *letters)):
        yield "what a file holds is quoted"


@contextmanager
def _without_all() -> Iterator[None]:
    with ExitStack() as stack:
        for mend in (_without_batches, _without_fewer_marks, _without_oddities):
            stack.enter_context(mend())
        yield


def _without_batches() -> AbstractContextManager[Any]:
    """Let a Parquet batch have many rows, regardless of the decoded size of rows and pages."""
    return mock.patch.multiple(
        parquet_documents, _largest_page=lambda _file, _columns: 1, _MAX_BATCH_ROWS=1024
    )


def _without_fewer_marks() -> AbstractContextManager[Any]:
    return mock.patch.object(cleaning, "_fewer_marks", lambda text: text)


@contextmanager
def _without_oddities() -> Iterator[None]:
    """Check neither for entries that are no files, nor for odd names."""
    with (
        mock.patch.object(inputs, "_unusable", return_value=()),
        mock.patch.object(partitions, "overlooked", return_value=()),
    ):
        yield


def odd_partitions(folder: Path, times: int) -> Tally:
    """Put entries next to a partition that look like one but are none; they must be reported."""
    tally = Tally()
    for number in range(times):
        root = folder / str(number)
        (root / "elsewhere").mkdir(parents=True)
        (root / "elsewhere" / "a.txt").write_text("text")
        good = root / "corpus" / "2026-01-01"
        good.mkdir(parents=True)
        (good / "a.txt").write_text("text")
        name = _ODD_PARTITIONS[number % len(_ODD_PARTITIONS)](root / "corpus")
        store, pattern = StoreLayout(str(root)), "corpus/{partition}/*"
        found = [] if partitions.find_partitions(pattern, store) == ["2026-01-01"] else ["found"]
        if not any(name in line for line in partitions.overlooked(pattern, store)):
            found.append(f"no word of {name}")
        tally.add(*found)
        shutil.rmtree(root)
    return tally


def _folder(name: str) -> Callable[[Path], str]:
    def make(corpus: Path) -> str:
        (corpus / name).mkdir()
        (corpus / name / "a.txt").write_text("text")
        return name

    return make


def _linked(name: str, target: str) -> Callable[[Path], str]:
    def make(corpus: Path) -> str:
        (corpus / name).symlink_to(target)
        return name

    return make


def _link_within(corpus: Path) -> str:
    (corpus / "2026-02-01").mkdir()
    (corpus / "2026-02-01" / "a.txt").symlink_to("/nonexistent")
    return "2026-02-01/a.txt"


_ODD_PARTITIONS = (
    _linked("2026-02-01", "../elsewhere"),
    _folder("2026-Q1"),
    _folder("a b"),
    _folder("2026-01-01 (copy)"),
    _folder("JANUARY"),
    _folder("x" * 200),
    _folder("2026_01~"),
    _folder("-rf"),
    _link_within,
)


def stars(folder: Path, times: int) -> Tally:
    """Search for partitions by patterns of many stars that match nothing."""
    tally = Tally()
    (folder / "corpus" / "p").mkdir(parents=True)
    (folder / "corpus" / "p" / ("a" * 200)).write_text("text")
    store = StoreLayout(str(folder))
    for number in range(times):
        count = 5 + number
        pattern = "corpus/{partition}/" + "*a" * count + "*b"

        def look(pattern: str = pattern) -> int:
            return len(partitions.find_partitions(pattern, store))

        ended = watched(look, folder / "told", cpu_seconds=2, memory=MOST_MEMORY)
        bad = ended.over or (ended.exit_code and f"ends with {ended.exit_code}")
        tally.add(*([f"{count} stars: {bad}"] if bad else []))
    return tally


def _trying_all_places(pattern: str, partition: str) -> str:
    """Turn a pattern into a regular expression that backtracks over all positions of all stars."""
    found = re.escape(pattern).replace(r"\*", "[^/]*")
    return found.replace(r"\{partition\}", f"(?P<partition>{partition})")


class _FailingFile:
    """A file whose reads fail after a number of bytes."""

    def __init__(self, file: BinaryIO, error: Exception, after: int) -> None:
        self._file = file
        self._error = error
        self._left = after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    @property
    def closed(self) -> bool:
        return self._file.closed

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise self._error
        return data


def failing_machines(folder: Path, times: int) -> Tally:
    """Prepare Parquet on a machine that fails while reading, then on one that does not."""
    tally, job, draw = Tally(), DataJob(folder), random.Random(1)  # noqa: S311 - drawn by seed
    for number in range(times):
        store = job.store(str(number))
        files = store / "corpus" / "2026-01-31"
        (files / "good.txt").write_bytes(job.text)
        bomb_of_a_dictionary(1 << 20, _ROWS)(files)
        size = (files / "x.parquet").stat().st_size
        fails = (
            _failing_reads(OSError(errno.EIO, os.strerror(errno.EIO)), draw.randrange(size)),
            _failing_reads(MemoryError(), draw.randrange(size)),
            _little_memory(draw.randrange(1 << 20, 16 << 20)),
        )[number % 3]
        with fails:
            first = job.prepare(store)
        found = []
        if first.has_traceback or (first.exit_code and "run again" not in first.last_line):
            found.append(f"exit code {first.exit_code}: {first.last_line[:200]}")
        second = job.prepare(store)
        corrupt = second.summary.get("dropped", {}).get("corrupt_parquet", 0)
        if second.exit_code or corrupt:
            found.append(f"then: {corrupt} corrupt, {second.last_line[:200]}")
        tally.add(*found, lost=bool(second.exit_code or corrupt))
        shutil.rmtree(store)
    return tally


def _failing_reads(error: Exception, after: int) -> AbstractContextManager[Any]:
    real = parquet_documents._as_file

    @contextmanager
    def as_file(stream: BinaryIO) -> Iterator[Any]:
        with real(stream) as file:
            yield _FailingFile(file, error, after)

    return mock.patch.object(parquet_documents, "_as_file", as_file)


@contextmanager
def _little_memory(more: int) -> Iterator[None]:
    """Limit a process to little more memory than it has when it begins to read Parquet.

    The limit applies only while it reads: the processing of rows may need a thread, and libraries
    that cannot start one end the process.
    """
    real = parquet_documents._rows

    def rows(*arguments: Any) -> Iterator[Any]:
        _have_threads()
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        before = resource.getrlimit(resource.RLIMIT_AS)
        limit = (pages * resource.getpagesize() + more, before[1])
        found = real(*arguments)
        while True:
            resource.setrlimit(resource.RLIMIT_AS, limit)
            try:
                row = next(found, None)
            finally:
                resource.setrlimit(resource.RLIMIT_AS, before)
            if row is None:
                return
            yield row

    with mock.patch.object(parquet_documents, "_rows", rows):
        yield


def _have_threads() -> None:
    """Let Arrow start all of its threads: if it cannot, the process ends."""
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    file = io.BytesIO()
    pq.write_table(pa.table({"x": [1]}), file)
    pq.read_table(file)


def _failures_are_damage() -> AbstractContextManager[Any]:
    """Treat a failure of the machine as damage of the file that it read."""
    return mock.patch.object(parquet_documents, "is_of_machine", return_value=False)


def names_of_no_text(folder: Path, times: int) -> Tally:
    """Put files with non-UTF-8 names in a partition; the job must name them in printable text."""
    tally, draw = Tally(), random.Random(1)  # noqa: S311 - drawn by seed
    for number in range(times):
        files = folder / str(number) / "corpus" / "2026-01-01"
        files.mkdir(parents=True)
        (files / "a.txt").write_text("text")
        name = bytes(draw.choices(range(128, 256), k=1 + number % 8)) + b"\xff.txt"
        with open(os.path.join(os.fsencode(files), name), "wb") as file:
            file.write(b"text")
        store = StoreLayout(str(folder / str(number)))
        try:
            inputs.list_inputs("corpus/{partition}/*", "2026-01-01", store)
        except UserError as error:
            said = str(error)
            is_clear = said.isprintable() and "is no UTF-8" in said
            tally.add(*([] if is_clear else [f"unclear: {said!a}"]))
        else:
            tally.add(f"no word of {name!r}")
        shutil.rmtree(files)
    return tally


ROWS = (
    Row("hostile corpora through the data job", _through(CORPORA), len(CORPORA), _without_all, 13),
    Row(
        "bombs: memory of the data job",
        # More than a gigabyte of text takes its time.
        _through(BOMBS, cpu_seconds=_BOMB_SECONDS, seconds=2 * _BOMB_SECONDS),
        len(BOMBS),
        _without_batches,
        3,
    ),
    Row(
        "documents that take long",
        _through(DOCUMENTS, cpu_seconds=_DOCUMENT_SECONDS),
        len(DOCUMENTS),
        _without_fewer_marks,
        2,
    ),
    Row(
        "inputs without an end",
        _through(ENDLESS, cpu_seconds=_DOCUMENT_SECONDS, seconds=_WAIT_SECONDS),
        len(ENDLESS),
        _without_oddities,
        3,
    ),
    Row("file names that are not UTF-8", names_of_no_text, 40, _without_oddities, 8),
    Row(
        "linked folders and odd names of partitions",
        odd_partitions,
        2 * len(_ODD_PARTITIONS),
        _without_oddities,
        len(_ODD_PARTITIONS),
    ),
    Row(
        "patterns of many stars",
        stars,
        20,
        lambda: mock.patch.object(partitions, "_expression", _trying_all_places),
        2,
    ),
    Row("a machine that fails while it reads", failing_machines, 12, _failures_are_damage, 3),
)
