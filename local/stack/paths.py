"""Paths of the stack's files, and of the short private folder for its Unix sockets."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path


class StackError(RuntimeError):
    """The stack cannot start, answer or stop; the message says what to do."""


# The kernel refuses socket paths over 107 bytes (sun_path in unix(7)), and supervisord appends its
# process id while it creates its own; so our paths must stay well below.
LONGEST_SOCKET_PATH = 90
REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class StatePaths:
    """The state folder; the stack writes everything below it except its sockets."""

    root: Path

    @property
    def record(self) -> Path:
        """StackRecord: ports, runtime folder, supervisor process."""
        return self.root / "stack.json"

    @property
    def lock(self) -> Path:
        """Lock file that prevents two commands from working on one stack at once."""
        return self.root / "lock"

    @property
    def logs(self) -> Path:
        """One log file per part."""
        return self.root / "logs"

    @property
    def previous_logs(self) -> Path:
        """The log files of the previous start."""
        return self.root / "logs.previous"

    def log(self, part: str) -> Path:
        """Return the log file of a part, or of the supervisor itself."""
        return self.logs / f"{part}.log"

    @property
    def supervisor_config(self) -> Path:
        """Generated configuration of supervisord."""
        return self.root / "supervisord.conf"

    @property
    def database(self) -> Path:
        """PostgreSQL's data folder."""
        return self.root / "postgres" / "data"

    @property
    def schema_version(self) -> Path:
        """Version of Airflow for the database's schema; deleted together with the database."""
        return self.database / "airflow-schema-version"

    @property
    def airflow_home(self) -> Path:
        """Airflow's own files: task logs and the two files with secrets."""
        return self.root / "airflow"

    @property
    def airflow_config(self) -> Path:
        """Generated keys, readable by the owner only."""
        return self.airflow_home / "airflow.cfg"

    @property
    def passwords(self) -> Path:
        """Generated login, readable by the owner only."""
        return self.airflow_home / "passwords.json"

    @property
    def emulator(self) -> Path:
        """The TPU emulator's resources and the folders of its TPU VMs."""
        return self.root / "tpu_emulator"

    @property
    def store(self) -> Path:
        """The store: shards, runs, models."""
        return self.root / "store"

    @property
    def runs(self) -> Path:
        """The store's folder of runs."""
        return self.store / "runs"

    @property
    def named_runs(self) -> Path:
        """Links to the events of runs by name, from which TensorBoard reads them."""
        return self.root / "tensorboard"

    @property
    def observation(self) -> Path:
        """Configuration and data of Prometheus and Alertmanager, if the stack is observed."""
        return self.root / "observation"

    @property
    def no_gcloud(self) -> Path:
        """A folder that is never created, so that no gcloud login of the user is used."""
        return self.root / "no-gcloud-configuration"

    def create(self) -> None:
        """Create the folders, closed to other users before anything is written into them."""
        try:
            self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
            # Another command may have made it before, for files of its own.
            self.root.chmod(0o700)
            for folder in (self.logs, self.database.parent, self.airflow_home, self.emulator):
                folder.mkdir(exist_ok=True, mode=0o700)
            self.runs.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StackError(
                f"Cannot create the state folder {self.root}: {error}. "
                "Choose a place you can write to with --state-dir."
            ) from error

    def rotate_logs(self) -> None:
        """Start new log files; those of the previous start are kept, older ones are not."""
        shutil.rmtree(self.previous_logs, ignore_errors=True)
        self.logs.rename(self.previous_logs)
        self.logs.mkdir(mode=0o700)


@dataclass(frozen=True)
class RuntimePaths:
    """The folder for Unix sockets: short, private, and removed when the stack is down."""

    root: Path

    @classmethod
    def of(cls, state_dir: Path) -> RuntimePaths:
        """Return the runtime folder of a state folder, which always has the same name.

        :raises StackError: the temporary folder's path is too long for sockets.
        """
        digest = hashlib.sha256(os.fsencode(state_dir)).hexdigest()[:10]
        paths = cls(Path(tempfile.gettempdir()) / f"repretrain-{os.getuid()}-{digest}")
        longest = max(len(os.fsencode(path)) for path in paths.sockets)
        if longest > LONGEST_SOCKET_PATH:
            raise StackError(
                f"Sockets in {paths.root} would have paths of {longest} bytes; at most "
                f"{LONGEST_SOCKET_PATH} are safe. Set TMPDIR to a shorter folder, such as /tmp."
            )
        return paths

    @property
    def supervisor_socket(self) -> Path:
        """Control socket of supervisord."""
        return self.root / "supervisor.sock"

    @property
    def database(self) -> Path:
        """Folder of PostgreSQL's socket."""
        return self.root / "postgres"

    @property
    def emulator_socket(self) -> Path:
        """Socket of the TPU emulator."""
        return self.root / "tpu.sock"

    @property
    def sockets(self) -> tuple[Path, ...]:
        """All socket paths."""
        return (self.supervisor_socket, self.database / ".s.PGSQL.5432", self.emulator_socket)

    def create(self) -> None:
        """Create the folder, or check that the existing one is private and ours.

        The system's temporary folder is writable by all users, so another user may have made a
        folder or link with this name first, and could then read or replace the sockets.

        :raises StackError: it is not a real folder of ours without rights for others.
        """
        try:
            self.root.mkdir(mode=0o700)
        except FileExistsError:
            self._check_private()
        self.database.mkdir(mode=0o700, exist_ok=True)

    def _check_private(self) -> None:
        found = self.root.lstat()
        private = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
        if not private or stat.S_IMODE(found.st_mode) & 0o077:
            raise StackError(
                f"{self.root} is there already and is not a private folder of yours "
                f"(owner {found.st_uid}, mode {stat.filemode(found.st_mode)}). Somebody else may "
                "have made it. Remove it, or set TMPDIR to a folder of your own."
            )
