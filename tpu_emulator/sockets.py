"""Folders, locks and the socket: only the user who runs the emulator may reach it.

The emulator executes the startup scripts it is sent, so any user who can connect can run programs.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MAX_PATH_BYTES = 100
"""Linux ends socket paths at 107 bytes, macOS at 103."""


class SocketError(RuntimeError):
    """The emulator cannot use this path; the message says why and what to do."""


def prepare(path: Path) -> None:
    """Checks the socket path and creates its folder.

    Raises:
        SocketError: the path is too long or not a socket, or the folder is not private.
    """
    size = len(os.fsencode(path))
    if size > MAX_PATH_BYTES:
        raise SocketError(
            f"socket path {path} has {size} bytes; Unix sockets allow about {MAX_PATH_BYTES}: "
            "choose a shorter folder, for example one made by `mktemp -d`"
        )
    private_folder(path.parent)
    if path.exists() and not path.is_socket():
        raise SocketError(f"{path} exists and is not a socket: choose another --socket")


def private_folder(folder: Path) -> None:
    """Creates the folder with mode 0700, or checks that it is one of ours with that mode.

    Raises:
        SocketError: it belongs to another user, is open to others, or is no folder.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise SocketError(f"{folder} is a symbolic link or no folder: name the folder itself")
    if status.st_uid != os.geteuid():
        raise SocketError(f"{folder} belongs to another user (uid {status.st_uid}): choose yours")
    if status.st_mode & 0o077:
        raise SocketError(
            f"{folder} has mode {stat.S_IMODE(status.st_mode):04o}, so other users could run "
            f"programs as you: use a folder of its own, or `chmod 700 {folder}`"
        )


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Holds a lock file; a killed process releases it by itself.

    Raises:
        SocketError: another emulator holds it.
    """
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SocketError(f"{path} is locked: another emulator uses this folder") from None
        yield
