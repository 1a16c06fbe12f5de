"""Simulates a power cut at every moment: what a disk keeps of unsynced changes.

A file's bytes are durable once the file was synced, and a name once its folder was. Each unsynced
change may independently be kept or lost, so every moment has several outcomes.
"""

from __future__ import annotations

import os
import random
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

_CHANGES = ("fsync", "link", "replace", "unlink", "mkdir")
"""Calls of ``os`` that change a folder or make a change durable; the store makes no others."""

Names = dict[str, int]
"""Inodes by name in one folder."""


class Disk:
    """A folder, with the state that it would have after a power cut.

    Its initial content counts as synced.

    :param root: the folder.
    :param seed: seed of the choice of unsynced changes that are kept.
    """

    def __init__(self, root: Path, seed: int = 1) -> None:
        self._root = root
        self._random = random.Random(seed)  # noqa: S311 - a simulation
        self._bytes: dict[int, bytes] = {}
        self._names: dict[int, Names] = {}
        # While a file is open, its inode number is not reused.
        self._open: list[int] = []
        for folder in (root, *(path for path in root.rglob("*") if path.is_dir())):
            self._keep_names(folder)
        for path in root.rglob("*"):
            if path.is_file():
                self._keep_bytes(path)

    @contextmanager
    def watched(self, before_each: Callable[[], None]) -> Iterator[None]:
        """Track this process's changes; call back before each change, until the callback raises."""
        lock, looks = threading.RLock(), list[bool]()

        def wrap(name: str) -> Callable[..., Any]:
            call: Callable[..., Any] = getattr(os, name)

            def watched(*arguments: Any, **options: Any) -> Any:
                with lock:
                    # The callback writes too, and work that an error ends still cleans up.
                    if looks or not self._is_here(name, arguments):
                        return call(*arguments, **options)
                    looks.append(True)
                    before_each()
                    looks.pop()
                    # A sync writes the content at its beginning.
                    if name == "fsync":
                        self._synced(arguments[0])
                    return call(*arguments, **options)

            return watched

        with ExitStack() as stack:
            for name in _CHANGES:
                stack.enter_context(mock.patch.object(os, name, wrap(name)))
            yield
        for descriptor in self._open:
            os.close(descriptor)

    def cut(self, target: Path) -> Iterator[Path]:
        """Yield copies of the folder after a power cut now, for three of the possible outcomes.

        All unsynced changes are lost; names are kept without bytes; each change is kept by chance.

        :param target: a folder in which each outcome is written, under the name of the tracked
            folder.
        """
        outcomes: list[Callable[[], bool]] = [
            lambda: False,
            lambda: True,
            lambda: self._random.random() < 0.5,
        ]
        there = {path.stat().st_ino: path for path in (self._root, *self._root.rglob("*"))}
        for number, keeps_names in enumerate(outcomes):
            keeps_bytes = keeps_names if number == len(outcomes) - 1 else lambda: False
            outcome = target / str(number) / self._root.name
            outcome.mkdir(parents=True)
            self._copy(there, outcome, keeps_names, keeps_bytes)
            yield outcome

    def _is_here(self, name: str, arguments: tuple[Any, ...]) -> bool:
        """Return whether a call changes the folder, by its last path or the file it syncs."""
        is_two = name in ("link", "replace")
        path = _open_path(arguments[0]) if name == "fsync" else Path(arguments[1 if is_two else 0])
        return path.is_relative_to(self._root)

    def _synced(self, descriptor: int) -> None:
        path = _open_path(descriptor)
        if path.is_dir():
            self._keep_names(path)
        else:
            self._keep_bytes(path)

    def _keep_names(self, folder: Path) -> None:
        self._hold(folder)
        self._names[folder.stat().st_ino] = _names(folder)

    def _keep_bytes(self, path: Path) -> None:
        self._hold(path)
        self._bytes[path.stat().st_ino] = path.read_bytes()

    def _hold(self, path: Path) -> None:
        if path.stat().st_ino not in self._bytes | self._names:
            self._open.append(os.open(path, os.O_RDONLY))

    def _copy(
        self,
        there: dict[int, Path],
        outcome: Path,
        keeps_names: Callable[[], bool],
        keeps_bytes: Callable[[], bool],
    ) -> None:
        """Write one outcome of the folder.

        :param there: current paths by inode.
        :param outcome: an empty folder.
        """

        def write(inode: int, target: Path) -> None:
            path = there.get(inode)
            synced = self._names.get(inode, {})
            for name, child in (_names(path) if path and keeps_names() else synced).items():
                now = there.get(child)
                if child in self._names or (now is not None and now.is_dir()):
                    (target / name).mkdir()
                    write(child, target / name)
                elif now is not None and keeps_bytes():
                    shutil.copyfile(now, target / name)
                else:
                    (target / name).write_bytes(self._bytes.get(child, b""))

        write(self._root.stat().st_ino, outcome)


def _open_path(descriptor: int) -> Path:
    return Path(os.readlink(f"/proc/self/fd/{descriptor}"))


def _names(folder: Path) -> Names:
    with os.scandir(folder) as entries:
        return {entry.name: entry.inode() for entry in entries}
