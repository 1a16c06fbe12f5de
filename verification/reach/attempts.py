"""Tries each door. What is behind it is neither kept nor reported, only whether it opened."""

from __future__ import annotations

import os
import socket
import stat
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path

from pipeline_config.settings import is_private
from verification.reach.site import Site

SECRETS = Path("/run/secrets")
_ACCOUNT = {"GOOGLE_APPLICATION_CREDENTIALS", "GCE_METADATA_HOST", "GCE_METADATA_IP"}
_SECONDS = 3.0


class Found(StrEnum):
    """The state in which a door was found."""

    OPEN = "open"
    CLOSED = "closed"
    ABSENT = "not there"


def _read(paths: Iterable[Path]) -> Found:
    """Return whether any of the files can be read."""
    found = Found.ABSENT
    for path in paths:
        try:
            with path.open("rb") as file:
                file.read(1)
        except PermissionError:
            found = Found.CLOSED
        except OSError:
            continue
        else:
            return Found.OPEN
    return found


def _files(folder: Path) -> Iterator[Path]:
    for root, _, names in os.walk(folder):
        yield from (Path(root, name) for name in names)


def keys(site: Site) -> Found:
    """Read Airflow's configuration."""
    return _read([Path(site.airflow_home, "airflow.cfg")])


def secrets(site: Site) -> Found:
    """Read the secrets that compose mounts."""
    return _read(_files(SECRETS))


def logins(site: Site) -> Found:
    """Read the file with the passwords."""
    return _read([Path(site.passwords)])


def logs(site: Site) -> Found:
    """Read the log of any task, including this one."""
    return _read(_files(Path(site.airflow_home, "logs")))


def database_files(site: Site) -> Found:
    """Read PostgreSQL's own files."""
    return _read([Path(site.database_files, "PG_VERSION")])


def command_lines(site: Site) -> Found:
    """Read the command line of the first process."""
    return _read([Path("/proc/1/cmdline")])


def _others() -> list[int]:
    """Return the ids of processes that were not started for this job."""
    found = []
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and os.getsid(int(name)) != os.getsid(0):
                found.append(int(name))
        except ProcessLookupError:
            continue
    return found


def environments(site: Site) -> Found:
    """Search for a process whose environment has Airflow's settings."""
    found = Found.ABSENT
    for pid in _others():
        try:
            data = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            found = Found.CLOSED
            continue
        if b"AIRFLOW__" in data:
            return Found.OPEN
    return found


def memories(site: Site) -> Found:
    """Search for a process with readable memory."""
    found = Found.ABSENT
    for pid in _others():
        found = Found.CLOSED
        try:
            for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
                span, rights, *_ = line.split()
                if rights.startswith("r"):
                    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
                        memory.seek(int(span.partition("-")[0], 16))
                        memory.read(16)
                    return Found.OPEN
        except OSError:
            continue
    return found


def own_variables(site: Site) -> Found:
    """Search the job's own environment for private variables."""
    return Found.OPEN if any(map(is_private, os.environ)) else Found.CLOSED


def attributes(site: Site) -> Found:
    """Set the permissions of Airflow's configuration file to their current value."""
    path = Path(site.airflow_home, "airflow.cfg")
    try:
        path.chmod(stat.S_IMODE(path.stat().st_mode))
    except FileNotFoundError:
        return Found.ABSENT
    except OSError:
        return Found.CLOSED
    return Found.OPEN


def names(site: Site) -> Found:
    """List Airflow's folder."""
    try:
        os.listdir(site.airflow_home)
    except FileNotFoundError:
        return Found.ABSENT
    except OSError:
        return Found.CLOSED
    return Found.OPEN


def signals(site: Site) -> Found:
    """Check whether a signal to another process would be permitted; none is sent."""
    found = Found.ABSENT
    for pid in _others():
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            continue
        except PermissionError:
            found = Found.CLOSED
        else:
            return Found.OPEN
    return found


def code(site: Site) -> Found:
    """Put a link into Airflow's DAG folder; it is removed at once."""
    dags = Path(__file__).parents[2] / "dags"
    link = dags / f".{uuid.uuid4().hex}"
    try:
        link.symlink_to("/nowhere")
    except OSError:
        return Found.CLOSED
    link.unlink()
    return Found.OPEN


def database(site: Site) -> Found:
    """Open a database session without a password."""
    import psycopg2  # type: ignore[import-untyped]

    try:
        psycopg2.connect(site.database, connect_timeout=int(_SECONDS)).close()
    except psycopg2.OperationalError:
        return Found.CLOSED
    return Found.OPEN


def rest(site: Site) -> Found:
    """Request, without a login, DAGs as a person does and a connection as a task does."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for path in ("/api/v2/dags", "/execution/connections/google_cloud_default"):
        try:
            opener.open(f"{site.api}{path}", timeout=_SECONDS).close()
        except urllib.error.HTTPError as error:
            if error.code not in (401, 403):
                raise
        else:
            return Found.OPEN
    return Found.CLOSED


def sockets(site: Site) -> Found:
    """Connect to the sockets of a local stack."""
    found = Found.ABSENT
    for path in filter(os.path.exists, site.sockets):
        with socket.socket(socket.AF_UNIX) as connection:
            try:
                connection.connect(path)
            except OSError:
                found = Found.CLOSED
            else:
                return Found.OPEN
    return found


def account(site: Site) -> Found:
    """Search for environment variables that point to a cloud login; none is requested."""
    return Found.OPEN if _ACCOUNT & os.environ.keys() else Found.ABSENT


def store(site: Site) -> Found:
    """Write into the folder of all runs; the file is removed at once."""
    from pipeline_store import uris

    place = uris.join(site.store, "runs", f"{uuid.uuid4().hex}.probe")
    try:
        uris.write(place, b"")
    except OSError:
        return Found.CLOSED
    uris.delete(place)
    return Found.OPEN
