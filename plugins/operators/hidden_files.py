"""Becomes a command that cannot read some files, change others, or reach other processes.

``python hidden_files.py '{"/folder": "hidden", "/folder/store": "write"}' COMMAND ...``

With Landlock (https://docs.kernel.org/userspace-api/landlock.html) a process of any user gives up
rights for good, for itself and for all processes that it starts. It can then neither trace
processes outside of the sandbox nor see their memory and environment, and if the kernel is new
enough cannot signal them. It can still change mode, owner and times of a file. Landlock only grants
rights below a folder. So a folder above a path with other rights gets none itself: its other
entries get them, as they exist when the command starts. Files that are added there later cannot be
read. File names can be listed everywhere.

It is a separate program, of the standard library alone, because the whole process gives up its
rights. If the kernel has no Landlock, it prints a warning and becomes the command unrestricted.
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
"""Landlock versions. Before version 2, a restricted process cannot move files between folders."""
_SET_NO_NEW_PRIVILEGES, _DROP_FROM_BOUNDING_SET = 38, 24
_SYS_PTRACE, _SYS_ADMIN, _PERFMON = 19, 21, 38
"""Root's capabilities that would still allow reading the environment of other processes."""


class Right(StrEnum):
    """A remaining right to a file or a folder."""

    HIDDEN = "hidden"
    READ = "read"
    WRITE = "write"


def give_up(rights: Mapping[Path, Right]) -> None:
    """Give up all but the given rights to files, for this process and all that it starts.

    :param rights: rights to files and folders; entries of a folder inherit its right unless they
        are named themselves. Missing paths are skipped.
    :raises OSError: the kernel has no Landlock, or too old a version of it.
    """
    version = _call(_CREATE_RULESET, None, 0, _ASK_VERSION)
    if version < _LEAST_VERSION:
        raise OSError(f"its version is {version}, and {_LEAST_VERSION} is needed")
    ruleset, handled = _ruleset(version), _handled(version)
    for path, right in left(rights):
        _leave(ruleset, path, handled if right is Right.WRITE else _READ_FILE)
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in (_SYS_PTRACE, _SYS_ADMIN, _PERFMON):
        # Fails for users other than root, who have none of these capabilities.
        libc.prctl(_DROP_FROM_BOUNDING_SET, capability, 0, 0, 0)
    libc.prctl(_SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    _call(_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def _handled(version: int) -> int:
    handled = _OF_FILES | _REFER | _MAKE_AND_REMOVE
    return handled if version >= _TRUNCATE_VERSION else handled & ~_TRUNCATE


def _ruleset(version: int) -> int:
    """Make a ruleset without rules; return its descriptor."""
    # struct landlock_ruleset_attr: handled rights to files, to the network, and scoped actions.
    attributes = struct.pack("=Q", _handled(version))
    if version >= _SCOPE_VERSION:
        attributes += struct.pack("=QQ", 0, _SCOPE_SIGNALS)
    return _call(_CREATE_RULESET, attributes, len(attributes), 0)


def left(rights: Mapping[Path, Right]) -> Iterator[tuple[Path, Right]]:
    """Yield the remaining rights, to whole folders where possible and else to their entries.

    :param rights: see :func:`give_up`.
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
            # The target of a link has its own right, or none.
            children = [Path(entry) for entry in entries if not entry.is_symlink()]
    except PermissionError:
        return
    for child in children:
        yield from _left(child, right, {other: rights[other] for other in below})


def _leave(ruleset: int, path: Path, allowed: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:  # deleted since, or not readable by this user anyway
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
    """Set ``TMPDIR`` to a folder that stays writable, if the usual one contains a named path."""
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
    """Give up the rights in the command line, then become the command."""
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
