"""Runs the parts under supervisord (http://supervisord.org) and talks to it over its socket."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, cast
from xmlrpc.client import Fault, ServerProxy

import psutil
from pydantic import BaseModel, ConfigDict
from supervisor.xmlrpc import SupervisorTransport

from local.stack.parts import Part, Tier
from local.stack.paths import RuntimePaths, StackError, StatePaths
from pipeline_store.formats.base import StoredFile

LOG_NAME = "supervisord"
ANSWER_SECONDS = 20.0
SPAWNED = re.compile(r"spawned: '([^']+)' with pid \d+")


class NotAnsweringError(StackError):
    """No supervisord can be reached at the control socket."""


@dataclass(frozen=True)
class PartProcess:
    """The state of a part as supervisord reports it."""

    state: str
    """STOPPED, STARTING, RUNNING, BACKOFF, STOPPING, EXITED, FATAL or UNKNOWN."""
    pid: int | None
    started: float
    """Seconds since the epoch."""
    exit_code: int
    starts: int
    """Number of starts since supervisord was started."""

    @property
    def died(self) -> bool:
        """Whether it ended by itself with a failure or was restarted."""
        failed = self.state == "EXITED" and self.exit_code != 0
        return failed or self.state in {"BACKOFF", "FATAL"} or self.starts > 1


def render(parts: Iterable[Part], paths: StatePaths, runtime: RuntimePaths) -> str:
    """Return the content of supervisord's configuration file.

    :raises StackError: a path cannot be expressed in that file.
    """
    sections: dict[str, dict[str, object]] = {
        "unix_http_server": {"file": runtime.supervisor_socket, "chmod": "0700"},
        "rpcinterface:supervisor": {
            "supervisor.rpcinterface_factory": "supervisor.rpcinterface:make_main_rpcinterface"
        },
        # Its log goes to standard output, and from there into a file.
        "supervisord": {
            "logfile": "/dev/null",
            "logfile_maxbytes": 0,
            "pidfile": paths.root / "supervisord.pid",
            "directory": paths.airflow_home,
            "user": os.getuid(),
        },
    }
    by_tier: dict[Tier, list[Part]] = {}
    for part in parts:
        if part.listens:
            # It forms a group of its own by its name, which is also the name of its tier.
            sections[f"eventlistener:{part.name}"] = _listener(part, paths)
            continue
        by_tier.setdefault(part.tier, []).append(part)
        sections[f"program:{part.name}"] = _program(part, paths)
    for tier, members in by_tier.items():
        # A group of its own per tier: supervisord stops one group after the other.
        names = ",".join(part.name for part in members)
        sections[f"group:{_group(tier)}"] = {"programs": names, "priority": int(tier)}
    lines = []
    for section, options in sections.items():
        lines += [f"[{section}]", *(_option(name, value) for name, value in options.items()), ""]
    return "\n".join(lines)


def _listener(part: Part, paths: StatePaths) -> dict[str, object]:
    """Return the options of an event listener, which talks to supervisord on its stdout."""
    options = {
        name.replace("stdout", "stderr"): value
        for name, value in _program(part, paths).items()
        if name != "redirect_stderr"
    }
    return options | {
        "stdout_logfile": "NONE",
        "events": "TICK_5",
        # Missing events before its start is no error; a start may take minutes.
        "buffer_size": 200,
        "priority": int(part.tier),
    }


def _program(part: Part, paths: StatePaths) -> dict[str, object]:
    return {
        "command": shlex.join(part.launch),
        "autostart": False,
        "autorestart": not part.once,
        "startsecs": 0 if part.once else 1,
        "startretries": 10,
        "stopsignal": part.stop_signal,
        "stopwaitsecs": part.stop_seconds,
        "stopasgroup": part.stop_group,
        "killasgroup": True,
        "redirect_stderr": True,
        # supervisord expands "%" in this option twice.
        "stdout_logfile": str(paths.log(part.name)).replace("%", "%%"),
        "stdout_logfile_maxbytes": "20MB",
        "stdout_logfile_backups": 1,
    }


def _option(name: str, value: object) -> str:
    text = str(value)
    if re.search(r"\s[;#]|[\r\n]", text):
        raise StackError(
            f"{text!r} cannot be written into supervisord's configuration: it contains a line "
            "break, or a space before ';' or '#'. Use a folder without these in its path."
        )
    return f"{name} = {text.replace('%', '%%')}"


def _group(tier: Tier) -> str:
    return tier.name.lower()


class Supervisor:
    """The supervisord of one stack."""

    def __init__(self, paths: StatePaths, runtime: RuntimePaths) -> None:
        self._paths = paths
        self._socket = runtime.supervisor_socket

    @property
    def log(self) -> Path:
        """Log file of all starts, deaths and restarts."""
        return self._paths.log(LOG_NAME)

    def launch(self, environment: Mapping[str, str]) -> ProcessId:
        """Start supervisord without any part and wait until it answers.

        :param environment: environment that the parts inherit.
        :raises StackError: it does not answer; its log is in the message.
        """
        with self.log.open("w") as log:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-P", "-m", "supervisor.supervisord"),
                    *("--nodaemon", "--configuration", str(self._paths.supervisor_config)),
                ],
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        deadline = time.monotonic() + ANSWER_SECONDS
        while not self.answers():
            if process.poll() is not None or time.monotonic() > deadline:
                raise StackError(f"supervisord does not start:\n{self.log.read_text()}")
            time.sleep(0.1)
        return ProcessId.of(process.pid)

    def answers(self) -> bool:
        """Return whether a supervisord can be reached at the control socket."""
        try:
            self._call("getState")
        except NotAnsweringError:
            return False
        return True

    def start(self, part: Part) -> None:
        """Start a part without waiting for it."""
        self._call("startProcess", f"{_group(part.tier)}:{part.name}", False)

    def stop(self, part: Part) -> None:
        """Stop a part without waiting for it; supervisord does not restart it."""
        self._call("stopProcess", f"{_group(part.tier)}:{part.name}", False)

    def shutdown(self) -> None:
        """Stop all parts in reverse order, then supervisord itself; returns at once."""
        self._call("shutdown")

    def processes(self) -> dict[str, PartProcess]:
        """Return the state of every part.

        :raises NotAnsweringError: supervisord or its socket is gone.
        """
        found = cast("list[dict[str, Any]]", self._call("getAllProcessInfo"))
        # Read after the call, so that a process just reported is counted.
        starts = SPAWNED.findall(self.log.read_text(errors="replace"))
        found.sort(key=lambda info: (Tier[info["group"].upper()], info["name"]))
        return {
            info["name"]: PartProcess(
                state=info["statename"],
                pid=info["pid"] or None,
                started=float(info["start"]),
                exit_code=info["exitstatus"],
                starts=starts.count(info["name"]),
            )
            for info in found
        }

    def _call(self, method: str, *arguments: object) -> object:
        transport = SupervisorTransport(None, None, serverurl=f"unix://{self._socket}")
        # The address only has to look like one; the transport connects to the socket.
        with ServerProxy("http://supervisor", transport=transport) as server:
            try:
                return getattr(server.supervisor, method)(*arguments)
            except Fault as fault:
                raise StackError(f"supervisord refuses {method}{arguments}: {fault}") from fault
            except OSError as error:
                raise NotAnsweringError(
                    f"supervisord does not answer at {self._socket}: {error}"
                ) from error


class ProcessId(BaseModel):
    """The identity of a process, distinct from a later one with the same pid."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    pid: int
    started: float
    """Seconds since the epoch, as the operating system reports it."""

    @classmethod
    def of(cls, pid: int) -> ProcessId:
        """Return the identity of a running process."""
        return cls(pid=pid, started=psutil.Process(pid).create_time())

    def is_running(self) -> bool:
        """Return whether this very process still runs; a zombie does not."""
        try:
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.started) < 1.0
            return same and process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False


class StackRecord(StoredFile):
    """The record of a state folder's stack."""

    kind: ClassVar[str] = "local-stack"

    runtime_dir: str
    """Folder of the Unix sockets."""
    ports: dict[str, int]
    """TCP port on the loopback interface by part."""
    extra_environment: dict[str, str]
    """Settings that the caller added or replaced."""
    stop_seconds: float
    """Maximum seconds for the supervisor to stop everything in order."""
    supervisor: ProcessId | None
    """The last supervisord started; None once the stack was stopped cleanly."""
