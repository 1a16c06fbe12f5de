"""Progress of the data job: workers write counts to a folder, the launcher logs their sums.

There is one file per process. Beam's own counters arrive only when a bundle ends, and on one
machine a worker's whole work is one bundle.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path

_SECONDS_BETWEEN_WRITES = 0.5
_SECONDS_BETWEEN_LOOKS = 0.5
_LOOKS_BETWEEN_LINES = 4
# Over less time no rate is logged, because the start of a pass is known only to within a poll.
_SECONDS_FOR_A_RATE = 1.0
_MEGABYTE = 1e6
_PLAN = "plan.json"

logger = logging.getLogger(__name__)

Counts = Counter[str]


class Pass(StrEnum):
    """The passes over the text: signing a corpus or reading labeled examples, then converting."""

    SIGN = "signing"
    READ = "reading"
    CONVERT = "converting"


class ProgressMeter:
    """Counts for one pass over all shards that this process works on.

    :param folder: the folder that the launcher polls; None if it cannot read this machine's.
    """

    def __init__(self, folder: str | None, stage: Pass) -> None:
        self._file = None if folder is None else Path(folder, f"{stage}-{uuid.uuid4().hex}.json")
        self._lock = threading.Lock()
        self._done: Counts = Counter()
        self._running: dict[str, Counts] = {}
        self._last_write = 0.0
        self._write(always=True)

    def update(self, uri: str, **counts: int) -> None:
        """Record the progress of a shard."""
        with self._lock:
            self._running[uri] = Counter(counts)
            self._write()

    def finish(self, uri: str, **counts: int) -> None:
        """Record that a shard is done."""
        with self._lock:
            self._done.update(self._running.pop(uri, Counter()) | Counter({**counts, "shards": 1}))
            self._write()

    def flush(self) -> None:
        """Make sure that the launcher sees the last counts."""
        with self._lock:
            self._write(always=True)

    def _write(self, always: bool = False) -> None:
        now = time.monotonic()
        if self._file is None or (not always and now - self._last_write < _SECONDS_BETWEEN_WRITES):
            return
        self._last_write = now
        counts = Counter(self._done)
        for running in self._running.values():
            counts.update(running)
        _replace(self._file, counts)


def announce_plan(folder: str | None, *, shards: int, size: int, reused: int) -> None:
    """Report to the launcher the shards and bytes to convert, and the shards done already."""
    if folder is not None:
        _replace(Path(folder, _PLAN), Counter({"shards": shards, "bytes": size, "reused": reused}))


def _replace(path: Path, counts: Counts) -> None:
    """Write counts; on failure keep the previous ones, as only the progress lines need them.

    On a full disk, the writes that the job does need fail and report it.
    """
    aside = path.with_name(f".{uuid.uuid4().hex}")
    with suppress(OSError):
        try:
            aside.write_text(json.dumps(counts))
            aside.replace(path)
        finally:
            aside.unlink(missing_ok=True)


class ProgressLines:
    """Progress lines of the workers, logged to stderr every two seconds.

    :param shards: the number of input files.
    :param size: their size in bytes.
    :param first_pass: the pass before converting.
    :param unit: the word for documents in the lines.
    """

    def __init__(
        self,
        folder: Path,
        *,
        shards: int,
        size: int,
        first_pass: Pass = Pass.SIGN,
        unit: str = "documents",
    ) -> None:
        self._folder = folder
        self._first_pass = first_pass
        self._unit = unit
        self._totals = {first_pass: Counter({"shards": shards, "bytes": size})}
        self._begun: dict[Pass, float] = {}
        self._said: tuple[Pass, Counts] | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        """Log lines while the context lasts, and the last ones at its end."""
        ended = threading.Event()

        def work() -> None:
            looks = 0
            while not ended.wait(_SECONDS_BETWEEN_LOOKS):
                looks += 1
                self._look()
                if looks % _LOOKS_BETWEEN_LINES == 0:
                    self._say()

        thread = threading.Thread(target=work, daemon=True, name="progress-lines")
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            self._look()
            self._say()

    def _look(self) -> None:
        """Record which passes have begun."""
        for stage in Pass:
            if stage not in self._begun and any(self._folder.glob(f"{stage}-*.json")):
                self._begun[stage] = time.monotonic()
        plan = self._folder / _PLAN
        if Pass.CONVERT not in self._totals and plan.exists():
            self._totals[Pass.CONVERT] = Counter(json.loads(plan.read_text()))
            self._say_plan()

    def _say(self) -> None:
        """Log a line on the current pass, if its counts have changed."""
        begun = [stage for stage in Pass if stage in self._begun and stage in self._totals]
        if begun and self._totals[begun[-1]]["shards"]:
            self._say_once(begun[-1])

    def _say_plan(self) -> None:
        if self._first_pass in self._begun:
            self._say_once(self._first_pass)
        plan = self._totals[Pass.CONVERT]
        logger.info(
            "%d shards to convert, %.1f MB; %d are done already",
            plan["shards"],
            plan["bytes"] / _MEGABYTE,
            plan["reused"],
        )

    def _say_once(self, stage: Pass) -> None:
        counts = self._read(stage)
        if (stage, counts) != self._said:
            self._said = stage, counts
            logger.info("%s", self._line(stage, counts))

    def _read(self, stage: Pass) -> Counts:
        counts: Counts = Counter()
        for file in self._folder.glob(f"{stage}-*.json"):
            counts.update(json.loads(file.read_text()))
        return counts

    def _line(self, stage: Pass, counts: Counts) -> str:
        totals = self._totals[stage]
        seconds = time.monotonic() - self._begun[stage]
        parts = [
            f"{stage}: {counts['shards']} of {totals['shards']} shards",
            f"{counts['documents']:,} {self._unit}",
            f"{counts['bytes'] / _MEGABYTE:.1f} of {totals['bytes'] / _MEGABYTE:.1f} MB",
        ]
        if stage is Pass.CONVERT:
            parts.append(f"{counts['tokens']:,} tokens")
        if stage is Pass.CONVERT and seconds > _SECONDS_FOR_A_RATE:
            parts.append(f"{counts['tokens'] / seconds:,.0f} tokens/s")
        left = totals["bytes"] - counts["bytes"]
        if left > 0 and counts["bytes"] and seconds > _SECONDS_FOR_A_RATE:
            parts.append(f"{_clock(left * seconds / counts['bytes'])} left")
        return ", ".join(parts)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def folder_for_progress(run_folder: Path) -> Path:
    """Create and return the folder of a run to which its workers write their counts."""
    folder = run_folder / "progress"
    os.makedirs(folder, exist_ok=True)
    return folder
