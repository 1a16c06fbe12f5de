"""Runs the data job's command on a partition in a child process, within limits.

The process is forked from this one, so a safeguard that is disabled here is disabled there. Output,
memory and processor time are those of the command.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from local.demo.tiny import SETTINGS, write_partition
from pipeline_config import load_preset, with_overrides
from pipeline_store.layout import StoreLayout

PARTITION = "2026-01-31"
MOST_MEMORY = 1 << 30
"""Memory in bytes that a process of the data job may use, its libraries included."""
_BEGUN = "begun"
_POLL_SECONDS = 0.02
_REFERENCE_SECONDS = 0.06
"""Of a million additions."""


@dataclass(frozen=True)
class Ended:
    """How a process ended.

    :ivar exit_code: as in Python: the negated number of the signal that ended it, if one did.
    :ivar over: the limit that it exceeded, for which it was killed; empty: none.
    """

    exit_code: int
    over: str
    printed: str
    said: str
    peak_bytes: int

    @property
    def has_traceback(self) -> bool:
        """Return whether it printed a traceback."""
        return "Traceback (most recent call last)" in self.said

    @property
    def last_line(self) -> str:
        """Return the last line that it printed to stderr."""
        return (self.said.strip().splitlines() or [""])[-1]

    @property
    def summary(self) -> dict[str, Any]:
        """Return the JSON that it printed last; empty if it failed or printed none."""
        lines = self.printed.strip().splitlines()
        found: dict[str, Any] = json.loads(lines[-1]) if lines and not self.exit_code else {}
        return found


def watched(
    work: Callable[[], int],
    folder: Path,
    *,
    cpu_seconds: int = 120,
    seconds: float = 240,
    memory: int,
) -> Ended:
    """Run work in a child process, which is killed if it exceeds a limit.

    :param work: returns the exit code.
    :param folder: for what is printed and said; it is made.
    :param cpu_seconds: of the processor, at the reference speed (:func:`_slowness`).
    :param seconds: of the clock, so that waiting has an end, too.
    :param memory: most bytes in memory, without those that this process has already.
    """
    memory += _resident()
    limit = math.ceil(cpu_seconds * _slowness())
    folder.mkdir(parents=True, exist_ok=True)
    pid = os.fork()
    if not pid:
        _work(work, folder, limit)
    over, peak, end = "", 0, time.monotonic() + seconds
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            break
        peak = max(peak, _peak(pid))
        over = over or _over(peak, memory, time.monotonic() > end)
        if over:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        time.sleep(_POLL_SECONDS)
    exit_code = os.waitstatus_to_exitcode(status)
    if exit_code == -signal.SIGXCPU:
        over = f"more than {limit} s of the processor"
    printed, said = ((folder / name).read_text("utf-8", "replace") for name in ("out", "err"))
    return Ended(exit_code, over, printed, said, peak)


def _work(work: Callable[[], int], folder: Path, cpu_seconds: int) -> NoReturn:
    code = 1
    try:
        os.setpgid(0, 0)
        for number, name in ((1, "out"), (2, "err")):
            file = os.open(folder / name, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
            os.dup2(file, number)
        sys.stdout, sys.stderr = (
            open(number, "w", errors="backslashreplace", closefd=False)  # noqa: SIM115 - to the end
            for number in (1, 2)
        )
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 5))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        code = work()
    except BaseException:  # noqa: BLE001 - as a program would end
        traceback.print_exc()
    with contextlib.suppress(ValueError, OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _peak(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    found = (line.split()[1] for line in lines if line.startswith("VmHWM"))
    return int(next(found, "0")) << 10


def _resident() -> int:
    """Return the resident memory of this process in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def _over(peak: int, memory: int, is_late: bool) -> str:
    if peak > memory:
        return "too much memory"
    return "it does not end" if is_late else ""


@cache
def _slowness() -> float:
    """Return the factor by which this processor is slower than the one that limits are for, or 1.

    That one adds ten million numbers in a loop in 0.6 s: the machine that they were set on.
    """
    return max(1.0, min(_million_additions() for _ in range(5)) / _REFERENCE_SECONDS)


def _million_additions() -> float:
    begin, total = time.process_time(), 0
    for number in range(1_000_000):
        total += number
    return time.process_time() - begin


@cache
def _libraries() -> int:
    """Return the resident memory, in bytes, of a process that has only imported the data job."""
    modules = "beam_jobs.prepare_corpus, beam_jobs.report, corpus.text.parquet_documents"
    program = f"import {modules}; print(open('/proc/self/statm').read().split()[1])"
    pages = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True).stdout
    return int(pages) * resource.getpagesize()


class DataJob:
    """The data job on small stores that have a vocabulary and nothing else.

    :param folder: an empty folder for the stores.
    :param told: folder for settings and command output; default: in ``folder``.
    """

    def __init__(self, folder: Path, told: Path | None = None) -> None:
        # Seconds of imports, once instead of in each process.
        import beam_jobs.report  # noqa: F401
        import corpus.text.parquet_documents  # noqa: F401

        self._folder = folder
        self._told = told or folder / "told"
        self._told.mkdir(exist_ok=True)
        self._base = load_preset("smoke")
        begun = StoreLayout(str(folder / _BEGUN))
        write_partition(begun, PARTITION, seed=1)
        self.text = (folder / _BEGUN / "corpus" / PARTITION / "a.txt").read_bytes()
        self._configure({})
        ended = self._run(folder / _BEGUN, "train_vocabulary")
        if ended.exit_code:
            raise RuntimeError(f"The vocabulary cannot be trained: {ended.said}")

    def store(self, name: str) -> Path:
        """Return a new store with an empty partition."""
        path = self._folder / name
        (path / "corpus" / PARTITION).mkdir(parents=True)
        shutil.copytree(self._folder / _BEGUN / "lineages", path / "lineages")
        return path

    def prepare(
        self, store: Path, settings: Mapping[str, Any] | None = None, **limits: Any
    ) -> Ended:
        """Prepare the partition.

        :param settings: settings in addition to those of a tiny model.
        :param limits: see :func:`watched`.
        """
        self._configure(settings or {})
        return self._run(store, "prepare_corpus", **limits)

    def _configure(self, settings: Mapping[str, Any]) -> None:
        given = {"corpus.max_bad_fraction": 1.0, "beam.max_num_workers": 1}
        config = with_overrides(self._base, {**SETTINGS, **given, **settings})
        (self._told / "config.json").write_bytes(config.to_bytes())

    def _run(self, store: Path, command: str, **limits: Any) -> Ended:
        from beam_jobs import prepare_corpus, train_vocabulary

        commands = {"prepare_corpus": prepare_corpus, "train_vocabulary": train_vocabulary}
        arguments = ["--config", str(self._told / "config.json"), "--store", str(store)]
        arguments += ["--partition", PARTITION]
        return watched(
            lambda: commands[command].main(arguments),
            self._told,
            memory=MOST_MEMORY - _libraries(),
            **limits,
        )
