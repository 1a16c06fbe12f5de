"""Runs one command like a container: own files, users, processes and host name.

Started as root by the engine, in new namespaces. The root is an overlay over this machine's, so
that mount points can be made in it and nothing of the machine changes.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

BASE = Path("/mnt")
ROOT = BASE / "root"


def main() -> int:
    specification = json.loads(Path(sys.argv[1]).read_text())
    make_root(specification)
    socket.sethostname(specification["hostname"])
    os.chroot(ROOT)
    os.chdir(specification["working_dir"])
    return run(specification)


def make_root(specification: dict[str, Any]) -> None:
    mount("-t", "tmpfs", "tmpfs", str(BASE))
    for name in ("upper", "work", "root"):
        (BASE / name).mkdir()
    options = f"lowerdir=/,upperdir={BASE}/upper,workdir={BASE}/work"
    mount("-t", "overlay", "overlay", "-o", options, str(ROOT))
    mount("-t", "proc", "proc", str(ROOT / "proc"))
    for name in ("sys", "dev"):
        mount("--rbind", f"/{name}", str(ROOT / name))
    for path in specification["traversable"]:
        inside(path).chmod(0o755)
    for target in specification["tmpfs"]:
        make_point(target)
        mount("-t", "tmpfs", "-o", "mode=1777", "tmpfs", str(inside(target)))
    for source, target, read_only in specification["mounts"]:
        make_point(target, is_file=Path(source).is_file())
        mount("--bind", source, str(inside(target)))
        if read_only:
            mount("-o", "remount,bind,ro", str(inside(target)))
    for target, text in specification["added_lines"].items():
        with inside(target).open("a") as file:
            file.write(text)
    if specification["read_only"]:
        mount("-o", "remount,ro", str(ROOT))


def inside(path: str) -> Path:
    """Return the path below the container's root, with the links in it followed as it will."""
    resolved = ROOT
    for part in Path(path).parts[1:]:
        resolved = resolved / part
        if resolved.is_symlink():
            resolved = inside(os.path.join("/", os.readlink(resolved)))
    return resolved


def make_point(target: str, *, is_file: bool = False) -> None:
    point = inside(target)
    if is_file:
        point.parent.mkdir(parents=True, exist_ok=True)
        point.touch()
    else:
        point.mkdir(parents=True, exist_ok=True)


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def confined(uid: int, command: list[str]) -> list[str]:
    """Return the command that runs a command as a user without any capability."""
    user = [f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
    return [
        *("setpriv", *user, "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all", "--"),
        *command,
    ]


def run(specification: dict[str, Any]) -> int:
    """Run the command as its user, pass signals on and reap, as the engine's own init does."""
    child = subprocess.Popen(
        confined(specification["uid"], specification["command"]),
        env=specification["environment"],
        process_group=0,
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, _frame: os.kill(child.pid, received))
    while True:
        try:
            pid, status = os.wait()
        except ChildProcessError:
            return 0
        if pid == child.pid:
            # The kernel ends all others with this process, the first of its namespace.
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
