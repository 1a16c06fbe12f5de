"""Becomes a command that cannot read some files, change others, nor reach other processes.

``python hidden_files.py '{"/folder": "hidden", "/folder/store": "write"}' COMMAND ...``

By Landlock (https://docs.kernel.org/userspace-api/landlock.html) a process of any user gives up
rights for good, for itself and for all that it starts; it then neither traces, nor sees memory and
environment of, processes that have not, and where the kernel is new enough sends them no signal.
Rights, owner and times of a file it can change as before. Landlock only knows rights that are left
below a folder. So a folder above one that is not like the others has none itself: its other entries
have, as they are when the command starts. What is put there later cannot be read. Names can be,
everywhere.

A program of its own, of the standard library alone, because it is the whole process that gives up
its rights. Where the kernel has no Landlock, it says so and becomes the command as it is.
"""

from __future__ import annotations

import ctypes
import json
import os
import struct
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_ASK_VERSION, _PATH_BENEATH = 1, 1
_WRITE_FILE, _READ_FILE, _REFER, _TRUNCATE = 1 << 1, 1 << 2, 1 << 13, 1 << 14
_MAKE_AND_REMOVE = 0b1_1111_1111 << 4
_OF_FILES = _WRITE_FILE | _READ_FILE | _TRUNCATE
_SCOPE_SIGNALS = 1 << 1
_LEAST_VERSION, _TRUNCATE_VERSION, _SCOPE_VERSION = 2, 3, 6
"""Before the second, no file can be moved to another folder by who has given up anything."""
_SET_NO_NEW_PRIVILEGES, _DROP_FROM_BOUNDING_SET = 38, 24
_SYS_PTRACE, _SYS_ADMIN, _PERFMON = 19, 21, 38
"""Capabilities of root with which other processes' environment can be read all the same."""


class Right(StrEnum):
    """What is left of a file or a folder."""

    HIDDEN = "hidden"
    READ = "read"
    WRITE = "write"


def give_up(rights: Mapping[Path, Right]) -> None:
    """Give up all other rights to some files, for this process and all that it starts.

    :param rights: to files and folders; what lies below the latter has the same, if it is not named
        itself. Absent ones are passed over.
    :raises OSError: the kernel has no Landlock, or not enough of it.
    """
    version = _call(_CREATE_RULESET, None, 0, _ASK_VERSION)
    if version < _LEAST_VERSION:
        raise OSError(f"its version is {version}, and {_LEAST_VERSION} is needed")
    ruleset, handled = _ruleset(version), _handled(version)
    for path, right in left(rights):
        _leave(ruleset, path, handled if right is Right.WRITE else _READ_FILE)
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in (_SYS_PTRACE, _SYS_ADMIN, _PERFMON):
        # Who is not root may not do this, and has none of them.
        libc.prctl(_DROP_FROM_BOUNDING_SET, capability, 0, 0, 0)
    libc.prctl(_SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    _call(_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def _handled(version: int) -> int:
    handled = _OF_FILES | _REFER | _MAKE_AND_REMOVE
    return handled if version >= _TRUNCATE_VERSION else handled & ~_TRUNCATE


def _ruleset(version: int) -> int:
    """Make a ruleset without rules; return its descriptor."""
    # struct landlock_ruleset_attr: rights to files, to the network, and what ends at the ruleset.
    attributes = struct.pack("=Q", _handled(version))
    if version >= _SCOPE_VERSION:
        attributes += struct.pack("=QQ", 0, _SCOPE_SIGNALS)
    return _call(_CREATE_RULESET, attributes, len(attributes), 0)


def left(rights: Mapping[Path, Right]) -> Iterator[tuple[Path, Right]]:
    """Yield the rights that are left: to folders as wholes, and else to their entries.

    :param rights: as of :func:`give_up`.
    """
    there = {path.resolve(): right for path, right in rights.items() if os.path.exists(path)}
    yield from _left(Path("/"), Right.WRITE, there)


def _left(
    path: Path, inherited: Right, rights: Mapping[Path, Right]
) -> Iterator[tuple[Path, Right]]:
    right = rights.get(path, inherited)
    below = [other for other in rights if path in other.parents]
    if not below:
        if right is not Right.HIDDEN:
            yield path, right
        return
    try:
        with os.scandir(path) as entries:
            # A link leads to what has a right of its own, or none.
            children = [Path(entry) for entry in entries if not entry.is_symlink()]
    except PermissionError:
        return
    for child in children:
        yield from _left(child, right, {other: rights[other] for other in below})


def _leave(ruleset: int, path: Path, allowed: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:  # gone since, or nothing that this user may read anyway
        return
    allowed = allowed if path.is_dir() else allowed & _OF_FILES
    try:
        _call(_ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", allowed, place), 0)
    finally:
        os.close(place)


def _call(number: int, *arguments: object) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    result = int(libc.syscall(number, *arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def own_temporary_folder(paths: Iterable[Path]) -> None:
    """Let the command's temporary files go where it can make some: not above what is named."""
    folder = Path(tempfile.gettempdir()).resolve()
    if any(folder in path.resolve().parents for path in paths):
        own = folder / f"data-jobs-{os.getuid()}"
        own.mkdir(mode=0o700, exist_ok=True)
        if own.stat().st_uid != os.getuid():
            own = Path(tempfile.mkdtemp(prefix="data-job-"))
        os.environ["TMPDIR"] = str(own)


def _warn(what: str) -> None:
    advice = "See REPRETRAIN_HIDDEN_PATHS in docs/reference/requests.md."
    print(f"WARNING: {what}. {advice}", file=sys.stderr, flush=True)


def main() -> None:
    """Run the command line: become the command."""
    rights = {Path(path): Right(right) for path, right in json.loads(sys.argv[1]).items()}
    own_temporary_folder(rights)
    hidden = [path for path, right in rights.items() if right is Right.HIDDEN]
    for path in hidden:
        if not os.path.exists(path):
            _warn(f"{path} is not there, so that nothing is hidden by that name")
    try:
        give_up(rights)
    except OSError as error:
        _warn(
            f"{', '.join(map(str, hidden))} can be read by this job, as the kernel does not let it "
            f"give that up by Landlock ({error})"
        )
    command = sys.argv[2:]
    os.execvp(command[0], command)  # noqa: S606


if __name__ == "__main__":
    main()
