"""The local stack of one state folder: up, down, status."""

from __future__ import annotations

import contextlib
import fcntl
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Self

from local_stack import credentials, ports, settings, shutdown
from local_stack.airflow_api import AirflowApi
from local_stack.errors import StackError
from local_stack.health import HealthCheck
from local_stack.parts import Part, all_parts
from local_stack.paths import RuntimePaths, StatePaths
from local_stack.record import StackRecord
from local_stack.startup import Startup
from local_stack.status import PartStatus, StackStatus
from local_stack.supervision import Supervisor, render

DEFAULT_STATE_DIR = Path(".local")
DEFAULT_START_SECONDS = 240.0


class Stack:
    """The local stack: ``up()`` to use it, ``down()`` to leave nothing behind.

    :param state_dir: folder for everything it keeps; a relative one starts at the working folder.
    :param extra_environment: settings for Airflow and its tasks, added to or replacing those of
        :mod:`local_stack.settings`, such as ``AIRFLOW__SCHEDULER__...``; used by ``up()``.
    :param say: receives one line of progress at a time.
    """

    def __init__(
        self,
        state_dir: Path | str = DEFAULT_STATE_DIR,
        *,
        extra_environment: Mapping[str, str] | None = None,
        say: Callable[[str], None] = print,
    ) -> None:
        self.paths = StatePaths(Path(state_dir).expanduser().resolve())
        self._extra = dict(extra_environment or {})
        self._say = say

    def __enter__(self) -> Self:
        self.up()
        return self

    def __exit__(self, *exception: object) -> None:
        self.down()

    def up(self, start_seconds: float = DEFAULT_START_SECONDS) -> StackStatus:
        """Start what is not running and return when every part does its job.

        :param start_seconds: how long the whole start may take.
        :raises StackError: a part did not start; everything has been stopped again.
        """
        self.paths.create()
        with self._alone():
            before = self.status()
            if before.healthy:
                self._say("The stack is already running.")
                return before
            self._stop()
            record = self._prepare()
            try:
                self._start(record, start_seconds)
            except BaseException:
                self._say("The start did not succeed.")
                self._stop()
                raise
            return self.status()

    def down(self) -> bool:
        """Stop everything; fine when nothing runs.

        :returns: whether there was anything to stop.
        :raises StackError: a process or a port survived.
        """
        if not self.paths.root.exists():
            return False
        with self._alone():
            return self._stop()

    def status(self) -> StackStatus:
        """Return what the stack is doing now."""
        record = self._record()
        if record is None or record.supervisor is None or not record.supervisor.is_running():
            return self._summary(record, ())
        runtime = RuntimePaths(Path(record.runtime_dir))
        check = HealthCheck(runtime, record.ports)
        found = Supervisor(self.paths, runtime).processes()
        now = time.time()
        statuses = []
        for part in all_parts(self.paths, runtime, record.ports):
            process = found[part.name]
            statuses.append(
                PartStatus(
                    name=part.name,
                    state=process.state,
                    problem=check.problem(part.name, process),
                    pid=process.pid,
                    port=record.ports.get(part.name),
                    uptime_seconds=int(now - process.started) if process.pid else 0,
                    restarts=max(process.starts - 1, 0),
                    log=str(self.paths.log(part.name)),
                )
            )
        return self._summary(record, tuple(statuses))

    def environment(self) -> dict[str, str]:
        """Return the environment for Airflow commands against this stack; it holds no secret.

        :raises StackError: the stack was never started.
        """
        record = self._require_record()
        runtime = RuntimePaths(Path(record.runtime_dir))
        return settings.environment(self.paths, runtime, record.ports, record.extra_environment)

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
        """Return the programs of the stack.

        :raises StackError: the stack was never started.
        """
        record = self._require_record()
        return all_parts(self.paths, RuntimePaths(Path(record.runtime_dir)), record.ports)

    def _prepare(self) -> StackRecord:
        credentials.ensure_credentials(self.paths)
        runtime = RuntimePaths.of(self.paths.root)
        runtime.create()
        previous = self._record()
        record = StackRecord(
            runtime_dir=str(runtime.root),
            ports=ports.choose(settings.PORT_NAMES, previous.ports if previous else {}),
            extra_environment=self._extra,
            supervisor=None,
        )
        record.write(str(self.paths.record))
        self.paths.supervisor_config.write_text(render(self.parts(), self.paths, runtime))
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
            check=HealthCheck(runtime, record.ports),
            paths=self.paths,
            say=self._say,
        ).run(seconds)

    def _stop(self) -> bool:
        record = self._record()
        if record is None:
            return False
        stopped = shutdown.stop(self.paths, record, self._say)
        record.model_copy(update={"supervisor": None}).write(str(self.paths.record))
        return stopped

    def _summary(self, record: StackRecord | None, statuses: tuple[PartStatus, ...]) -> StackStatus:
        known = record.ports if record else {}
        return StackStatus(
            running=bool(statuses),
            parts=statuses,
            url=settings.url(known.get(settings.API_SERVER, 0)),
            tensorboard_url=settings.url(known.get(settings.TENSORBOARD, 0)),
            user=credentials.USER,
            state_dir=str(self.paths.root),
        )

    def _record(self) -> StackRecord | None:
        return StackRecord.load_or_none(str(self.paths.record))

    def _require_record(self) -> StackRecord:
        record = self._record()
        if record is None:
            raise StackError(
                f"No stack was ever started in {self.paths.root}. Start one with "
                f"`python -m local_stack up --state-dir {self.paths.root}`."
            )
        return record

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the lock that keeps two commands from working on one stack at once."""
        with self.paths.lock.open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._say("Another command is working on this stack; waiting for it.")
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield
