"""The local stack of one state folder: up, down, status, and rotation of its secrets."""

from __future__ import annotations

import contextlib
import fcntl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Self

from local.stack import credentials, ports, processes, settings, shutdown
from local.stack.airflow_api import AirflowApi
from local.stack.health import HealthCheck
from local.stack.observation import configure, missing_programs, observer_parts, observers
from local.stack.parts import Part, all_parts, stop_seconds
from local.stack.paths import REPOSITORY, RuntimePaths, StackError, StatePaths
from local.stack.startup import Startup
from local.stack.status import PartStatus, StackStatus
from local.stack.supervision import NotAnsweringError, StackRecord, Supervisor, render
from pipeline_config.settings import load_settings
from pipeline_store.formats.base import FormatError

DEFAULT_STATE_DIR = Path(".local")
DEFAULT_START_SECONDS = 300.0
SUPERVISOR_STOP_SECONDS = 10
RECOVERY_SECONDS = 60.0
RECOVERY_POLL_SECONDS = 1.0
# States in which supervisord does not restart a part by itself.
GIVEN_UP = frozenset({"STOPPED", "EXITED", "FATAL"})
# Run as a program and not imported: it needs Airflow, which this package does without.
_ENCRYPT_ANEW = REPOSITORY / "plugins" / "hooks" / "fernet_key.py"


class Stack:
    """The local stack: ``up()`` to use it, ``down()`` to leave nothing behind.

    :param state_dir: folder for all of its files; a relative path starts at the working directory.
    :param extra_environment: settings for Airflow and its tasks, added to or replacing those of
        :mod:`local.stack.settings`, such as ``AIRFLOW__SCHEDULER__...``; used by ``up()``. Must not
        set the address of the database.
    :param observe: whether ``up()`` starts the metrics exporter, and Prometheus and Alertmanager
        if they are installed.
    :param say: receives one line of progress at a time.
    """

    def __init__(
        self,
        state_dir: Path | str = DEFAULT_STATE_DIR,
        *,
        extra_environment: Mapping[str, str] | None = None,
        observe: bool = False,
        say: Callable[[str], None] = print,
    ) -> None:
        self.paths = StatePaths(Path(state_dir).expanduser().resolve())
        self._extra = dict(extra_environment or {})
        settings.require_changeable(self._extra)
        self._observe = observe
        self._say = say

    def __enter__(self) -> Self:
        self.up()
        return self

    def __exit__(self, *exception: object) -> None:
        self.down()

    def up(self, start_seconds: float = DEFAULT_START_SECONDS) -> StackStatus:
        """Start the stack unless it is running, and return when every part is healthy.

        :param start_seconds: maximum seconds for the whole start.
        :raises StackError: a part did not start, and everything has been stopped again; or the
            stack is running with other settings.
        """
        self.paths.create()
        with self._alone():
            running = self._running()
            if running is not None:
                self._check_same_settings()
                self._say("The stack is already running.")
                return running
            self._stop()
            self._say(f"Starting the local stack in {self.paths.root} ...")
            try:
                self._start(self._prepare(), start_seconds)
            except BaseException:
                self._say("The start did not succeed.")
                self._stop()
                raise
            # A healthy part may be slow to report it while others are busy starting.
            return self._running() or self.status()

    def down(self) -> bool:
        """Stop everything; a stack that is not running is no error.

        :returns: whether there was anything to stop.
        :raises StackError: a process survived or a port is still open.
        """
        if not self.paths.root.exists() and not processes.find(self.paths):
            return False
        self.paths.create()
        with self._alone():
            return self._stop()

    def status(self) -> StackStatus:
        """Return the current status of the stack and its parts."""
        record = self._record()
        if record is None or record.supervisor is None or not record.supervisor.is_running():
            return self._summary(record, ())
        runtime = RuntimePaths(Path(record.runtime_dir))
        try:
            found = Supervisor(self.paths, runtime).processes()
        except NotAnsweringError as error:
            self._say(str(error))
            return self._summary(record, ())
        check = HealthCheck(runtime, record.ports)
        now = time.time()
        return self._summary(
            record,
            tuple(
                PartStatus(
                    name=name,
                    state=process.state,
                    problem=check.problem(name, process),
                    pid=process.pid,
                    port=record.ports.get(name),
                    uptime_seconds=int(now - process.started) if process.pid else 0,
                    restarts=max(process.starts - 1, 0),
                    log=str(self.paths.log(name)),
                )
                for name, process in found.items()
            ),
        )

    def environment(self) -> dict[str, str]:
        """Return the environment for Airflow commands against this stack, without secrets.

        :raises StackError: the stack was never started.
        """
        record = self._require_record()
        runtime = RuntimePaths(Path(record.runtime_dir))
        return settings.environment(self.paths, runtime, record.ports, record.extra_environment)

    def as_last_started(self) -> Stack:
        """Return the same stack, configured with the extra settings of its last start.

        :raises StackError: the stack was never started.
        """
        record = self._require_record()
        return Stack(
            self.paths.root,
            extra_environment=record.extra_environment,
            observe=settings.METRICS in record.ports,
            say=self._say,
        )

    def password(self) -> str:
        """Return the password of ``admin``.

        :raises StackError: the stack was never started.
        """
        return credentials.password(self.paths)

    def api(self) -> AirflowApi:
        """Return a client of Airflow's REST API for ``admin``.

        :raises StackError: the stack was never started.
        """
        url = settings.url(self._require_record().ports[settings.API_SERVER])
        return AirflowApi(url, credentials.USER, self.password())

    def parts(self) -> tuple[Part, ...]:
        """Return the parts of the stack.

        :raises StackError: the stack was never started.
        """
        record = self._require_record()
        return self._parts(RuntimePaths(Path(record.runtime_dir)), record.ports)

    def _parts(self, runtime: RuntimePaths, used: Mapping[str, int]) -> tuple[Part, ...]:
        return all_parts(self.paths, runtime, used) + observer_parts(self.paths, used)

    def supervisor(self) -> Supervisor:
        """Return the supervisor, which starts and stops single parts.

        :raises StackError: the stack was never started.
        """
        return Supervisor(self.paths, RuntimePaths(Path(self._require_record().runtime_dir)))

    def _running(self) -> StackStatus | None:
        """Return the status of a healthy stack, waiting for one that is recovering; else None.

        Only a stack that cannot recover is restarted, because a restart ends the runs in it.
        """
        deadline = time.monotonic() + RECOVERY_SECONDS
        while True:
            status = self.status()
            if status.healthy:
                return status
            broken = [part for part in status.parts if part.problem is not None]
            stuck = any(part.state in GIVEN_UP for part in broken)
            if not status.running or stuck or time.monotonic() > deadline:
                for part in broken:
                    self._say(f"  {part.name} does not work: {part.problem}")
                return None
            time.sleep(RECOVERY_POLL_SECONDS)

    def _prepare(self) -> StackRecord:
        self.paths.rotate_logs()
        credentials.ensure_credentials(self.paths)
        runtime = RuntimePaths.of(self.paths.root)
        runtime.create()
        previous = self._record()
        names = settings.PORT_NAMES + (observers() if self._observe else ())
        used = ports.choose(names, previous.ports if previous else {})
        parts = self._parts(runtime, used)
        record = StackRecord(
            runtime_dir=str(runtime.root),
            ports=used,
            extra_environment=self._extra,
            stop_seconds=stop_seconds(parts) + SUPERVISOR_STOP_SECONDS,
            supervisor=None,
        )
        record.write(str(self.paths.record))
        self.paths.supervisor_config.write_text(render(parts, self.paths, runtime))
        if settings.PROMETHEUS in used:
            configure(self.paths, used, load_settings(self.environment()))
        elif self._observe:
            self._say(
                f"No {' and no '.join(missing_programs())} here, so the exporter of metrics runs "
                "without: apt-get install prometheus prometheus-alertmanager (Debian)."
            )
        return record

    def _start(self, record: StackRecord, seconds: float) -> None:
        runtime = RuntimePaths(Path(record.runtime_dir))
        supervisor = Supervisor(self.paths, runtime)
        marked = settings.process_environment(self.environment(), self.paths)
        launched = supervisor.launch(marked)
        record.model_copy(update={"supervisor": launched}).write(str(self.paths.record))
        Startup(
            self.parts(),
            supervisor=supervisor,
            problem=HealthCheck(runtime, record.ports).problem,
            paths=self.paths,
            say=self._say,
        ).run(seconds)

    def _stop(self) -> bool:
        record = self._record()
        stopped = shutdown.stop(self.paths, record, self._say)
        if record is not None and self.paths.root.exists():
            record.model_copy(update={"supervisor": None}).write(str(self.paths.record))
        return stopped

    def _check_same_settings(self) -> None:
        record = self._require_record()
        if self._observe and settings.METRICS not in record.ports:
            raise StackError(
                f"The stack in {self.paths.root} is running without metrics. Stop it first."
            )
        running_with = record.extra_environment
        if self._extra and self._extra != running_with:
            raise StackError(
                f"The stack in {self.paths.root} is running with the extra settings "
                f"{running_with}, not with {self._extra}. Stop it first."
            )

    def _summary(self, record: StackRecord | None, statuses: tuple[PartStatus, ...]) -> StackStatus:
        known = record.ports if record else {}
        return StackStatus(
            running=bool(statuses),
            parts=statuses,
            url=settings.url(known.get(settings.API_SERVER, 0)),
            tensorboard_url=settings.url(known.get(settings.TENSORBOARD, 0)),
            observers={
                name: settings.url(known[name])
                for name in (settings.METRICS, settings.PROMETHEUS, settings.ALERTMANAGER)
                if name in known
            },
            user=credentials.USER,
            state_dir=str(self.paths.root),
        )

    def _record(self) -> StackRecord | None:
        try:
            return StackRecord.load_or_none(str(self.paths.record))
        except FormatError as error:
            # Nothing in it is irreplaceable: processes are found without it, new ports are chosen.
            self._say(f"Ignoring an unreadable record of the last start: {error}")
            return None

    def _require_record(self) -> StackRecord:
        record = self._record()
        if record is None:
            raise StackError(
                f"No stack was ever started in {self.paths.root}. Start one with "
                f"`python -m local.stack up --state-dir {self.paths.root}`."
            )
        return record

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the lock that prevents two commands from working on one stack at once."""
        with self.paths.lock.open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._say("Another command is working on this stack; waiting for it.")
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def rotate(stack: Stack, start_seconds: float) -> StackStatus:
    """Stop a stack, replace its secrets, and start it with the settings of its last start.

    Stored connections and variables are encrypted: without the old key, some could not even be
    listed or deleted. So Airflow has both keys until everything is re-encrypted.

    :param start_seconds: maximum seconds for the start.
    :returns: the status of the restarted stack.
    :raises StackError: the stack was never started, did not start again, or not everything was
        re-encrypted. Nothing is lost then: both keys are kept, and the rotation can be repeated.
    """
    again = stack.as_last_started()
    again.down()
    credentials.renew(again.paths)
    status = again.up(start_seconds)
    done = subprocess.run(
        [sys.executable, "-P", str(_ENCRYPT_ANEW)],
        env=again.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise StackError(
            f"{_ENCRYPT_ANEW} ended with exit code {done.returncode}, so the old Fernet key stays "
            f"in {again.paths.airflow_config}. Remove the cause and repeat:\n"
            f"{(done.stdout + done.stderr)[-2000:]}"
        )
    # Running processes still have the old key, but nothing is encrypted with it any more.
    credentials.forget_old_fernet_keys(again.paths)
    return status
