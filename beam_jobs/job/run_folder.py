"""The temporary folder of one local run; the folder and the worker processes end with the run.

The launcher holds a lock on a file in it for as long as it lives; the kernel releases the lock
however the launcher ends. Worker processes wait for the lock and exit when they get it, and the
next run deletes folders whose lock is free. So nothing outlives a launcher that was killed.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PREFIX = "prepare-corpus-"
_LOCK = "owner.lock"


@contextmanager
def run_folder() -> Iterator[Path]:
    """Create a folder for this run and delete it afterwards; first delete those of killed runs."""
    _sweep()
    # Locked before it has the name that others look for.
    aside = Path(tempfile.mkdtemp(prefix=f".{_PREFIX}"))
    lock = _try_lock(aside)
    assert lock is not None  # noqa: S101 - nobody else knows the folder
    folder = aside.rename(aside.with_name(aside.name.removeprefix(".")))
    try:
        yield folder
    finally:
        os.close(lock)
        shutil.rmtree(folder, ignore_errors=True)


def exit_with_launcher(folder: Path) -> None:
    """End this worker process, whatever it does, as soon as the folder's launcher has ended."""

    def wait() -> None:
        try:
            with (folder / _LOCK).open() as file:
                fcntl.flock(file, fcntl.LOCK_SH)
        except FileNotFoundError:
            pass
        os._exit(1)

    threading.Thread(target=wait, daemon=True, name="exit-with-launcher").start()


def _try_lock(folder: Path) -> int | None:
    """Return the descriptor that holds the folder's lock, or None if another process has it."""
    try:
        lock = os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock


def _sweep() -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        if folder.is_symlink() or not folder.is_dir() or folder.stat().st_uid != os.getuid():
            continue
        lock = _try_lock(folder)
        if lock is not None:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)
