"""A container engine for the test: runs a compose file's services on this machine, without images.

Each service is a process tree with a root, users, host name and process numbers of its own; all
share one network, in which their names are known. What the file says of commands, environment,
mounts, users, secrets, health checks, order and stopping is what happens. Needs root.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.verification.compose.compose_file import ComposeFile, Service
from tests.verification.compose.container import confined
from tests.verification.compose.images import VENV, Image, airflow_image, postgres_image

_CLONE_NEWNET = 0x40000000
# Each look is a process of its own, and competes with what is being waited for.
_POLL_SECONDS = 3.0
_MARKER = "COMPOSE_CHECK"


class EngineError(AssertionError):
    """A service did not become what the file wants of it."""


@dataclass
class Running:
    """A started service."""

    service: Service
    process: subprocess.Popen[bytes]
    log: Path


@dataclass
class Engine:
    """The services of a compose file.

    :param compose: the file.
    :param state: folder for volumes and logs.
    :param seconds: how long one service may take to become healthy.
    """

    compose: ComposeFile
    state: Path
    seconds: float = 600.0
    running: dict[str, Running] = field(default_factory=dict)
    completed: set[str] = field(default_factory=set)
    namespace: str = ""
    exit_codes: dict[str, int] = field(default_factory=dict)
    left: list[int] = field(default_factory=list)
    """Processes that were still there when all services had been stopped."""

    def up(self) -> None:
        """Start everything in order and wait until all that has a health check is healthy."""
        self.namespace = f"compose-{os.getpid()}"
        _run("ip", "netns", "add", self.namespace)
        _run("ip", "-n", self.namespace, "link", "set", "lo", "up")
        services = self.compose.services()
        self._write_hosts(services)
        waiting = dict(services)
        while waiting:
            ready = [one for one in waiting.values() if all(map(self._is_met, one.needs.items()))]
            if not ready:
                raise EngineError(f"{sorted(waiting)} wait for each other or for what is gone")
            for service in ready:
                del waiting[service.name]
                self._start(service)
                if service.name in self._awaited(services):
                    self._await(service)
        for running in list(self.running.values()):
            self._await(running.service)

    def down(self) -> None:
        """Stop everything in reverse order, as the file says; nothing is left after it."""
        if not self.namespace:
            return
        try:
            for name in reversed(list(self.running)):
                self._stop(self.running.pop(name))
        finally:
            # Of a service that has ended nothing is left; of one that failed to start, perhaps.
            self.left = self.pids()
            for pid in self.left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            _run("ip", "netns", "delete", self.namespace)
            self.namespace = ""

    def pids(self) -> list[int]:
        """Return the processes of all services; not this one, which may be in their network."""
        if not self.namespace:
            return []
        found = subprocess.run(
            ["ip", "netns", "pids", self.namespace],
            capture_output=True,
            text=True,
            check=True,
        )
        return [pid for pid in map(int, found.stdout.split()) if pid != os.getpid()]

    def volume(self, name: str) -> Path:
        """Return the folder that stands for a named volume."""
        return self.state / "volumes" / name

    def log(self, name: str) -> str:
        """Return what a service has written."""
        return (self.state / "logs" / f"{name}.log").read_text(errors="replace")

    @contextlib.contextmanager
    def network(self) -> Iterator[None]:
        """Put the calling thread into the services' network."""
        libc = ctypes.CDLL(None, use_errno=True)
        with open("/proc/thread-self/ns/net") as own, open(f"/run/netns/{self.namespace}") as other:
            if libc.setns(other.fileno(), _CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), f"setns {self.namespace}")
            try:
                yield
            finally:
                libc.setns(own.fileno(), _CLONE_NEWNET)

    def _awaited(self, services: dict[str, Service]) -> set[str]:
        return {name for service in services.values() for name in service.needs}

    def _is_met(self, need: tuple[str, str]) -> bool:
        name, condition = need
        if condition == "service_completed_successfully":
            return name in self.completed
        return name in self.running

    def _await(self, service: Service) -> None:
        """Wait until a service is healthy, or has ended well if it is one that ends."""
        running = self.running[service.name]
        deadline = time.monotonic() + self.seconds
        while True:
            code = running.process.poll()
            if code == 0 and service.body.get("restart") == "no":
                self.completed.add(service.name)
                del self.running[service.name]
                return
            if code is not None:
                raise EngineError(f"{service.name} ended with {code}:\n{self._tail(service.name)}")
            if service.body.get("restart") != "no" and self._is_healthy(service):
                return
            if time.monotonic() > deadline:
                raise EngineError(f"{service.name} is not healthy:\n{self._tail(service.name)}")
            time.sleep(_POLL_SECONDS)

    def _is_healthy(self, service: Service) -> bool:
        if "healthcheck" not in service.body:
            return True
        kind, *command = service.body["healthcheck"]["test"]
        assert kind == "CMD", kind
        first = _first_process(self.running[service.name].process.pid)
        if first is None:
            return False
        specification = json.loads((self.state / f"{service.name}.json").read_text())
        inside = ["nsenter", f"--target={first}", "--mount", "--uts", "--ipc", "--net", "--pid"]
        inside += ["--root", f"--wdns={specification['working_dir']}"]
        with (self.state / "logs" / f"{service.name}-health.log").open("ab") as log:
            checked = subprocess.run(
                [*inside, *confined(specification["uid"], command)],
                env=specification["environment"],
                stdout=log,
                stderr=subprocess.STDOUT,
                check=False,
            )
        return checked.returncode == 0

    def _start(self, service: Service) -> None:
        image = self._image(service)
        for mount in service.mounts:
            if mount.is_volume and not self.volume(mount.source).exists():
                self._make_volume(mount.source, service, owned=mount.target in image.owned)
        entrypoint = service.body.get("entrypoint", list(image.command_before))
        command = [*entrypoint, *service.body.get("command", [])]
        process = self._launch(service, image, command)
        log = self.state / "logs" / f"{service.name}.log"
        self.running[service.name] = Running(service, process, log)

    def _make_volume(self, name: str, service: Service, *, owned: bool) -> None:
        folder = self.volume(name)
        folder.mkdir(parents=True)
        if owned:
            os.chown(folder, service.uid, service.uid)

    def _launch(
        self, service: Service, image: Image, command: list[str]
    ) -> subprocess.Popen[bytes]:
        specification = self.state / f"{service.name}.json"
        specification.write_text(json.dumps(self._specification(service, image, command)))
        launcher = Path(__file__).with_name("container.py")
        # Without a marker of this kind nobody could tell who left a process behind.
        environment = {"PATH": os.environ["PATH"], _MARKER: self.namespace}
        with (self.state / "logs" / f"{service.name}.log").open("ab") as log:
            return subprocess.Popen(
                [
                    *("ip", "netns", "exec", self.namespace),
                    # Whatever ends this process ends the services, too.
                    *("setpriv", "--pdeathsig", "KILL"),
                    *("unshare", "--mount", "--uts", "--ipc", "--pid", "--fork"),
                    *("--kill-child", "--propagation", "private"),
                    *(sys.executable, str(launcher), str(specification)),
                ],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _specification(
        self, service: Service, image: Image, command: list[str]
    ) -> dict[str, object]:
        mounts = [*image.mounts, (str(self.state / "hosts"), "/etc/hosts", True)]
        for mount in service.mounts:
            source = self.volume(mount.source) if mount.is_volume else Path(mount.source)
            mounts.append((str(source), mount.target, mount.read_only))
        for secret in service.body.get("secrets", []):
            mounts.append((self.compose.secret(secret), f"/run/secrets/{secret}", True))
        closed = [
            str(path) for path in Path(sys.base_prefix).parents if path.stat().st_mode & 1 == 0
        ]
        environment = image.environment | service.environment
        # The first that is mounted is the one that holds the others.
        return {
            "hostname": service.body.get("hostname", service.name),
            "working_dir": image.working_dir,
            "environment": environment | {"PYTHONDONTWRITEBYTECODE": "1"},
            "command": command,
            "uid": service.uid,
            "read_only": bool(service.body.get("read_only")),
            "tmpfs": ["/run/secrets", *service.body.get("tmpfs", [])],
            "mounts": sorted(mounts, key=lambda one: one[1].count("/")),
            "traversable": [path for path in closed if path != "/"],
            "added_lines": {
                "/etc/passwd": f"{image.user_name}-x:x:{service.uid}:{service.uid}::"
                f"{environment.get('HOME', '/')}:/bin/sh\n"
            },
        }

    def _image(self, service: Service) -> Image:
        return postgres_image() if "postgres" in service.body["image"] else airflow_image()

    def _write_hosts(self, services: dict[str, Service]) -> None:
        (self.state / "logs").mkdir(parents=True)
        lines = ["127.0.0.1 localhost"]
        # An address for each, so that each has one name.
        lines += [f"127.0.1.{number} {name}" for number, name in enumerate(services, 1)]
        (self.state / "hosts").write_text("\n".join(lines) + "\n")

    def _stop(self, running: Running) -> None:
        service = running.service
        number = getattr(signal, service.body.get("stop_signal", "SIGTERM"))
        first = _first_process(running.process.pid)
        if first is not None and running.process.poll() is None:
            os.kill(first, number)
            try:
                running.process.wait(service.seconds("stop_grace_period"))
            except subprocess.TimeoutExpired:
                running.process.kill()
        self.exit_codes[service.name] = running.process.wait()

    def _tail(self, name: str) -> str:
        lines = self.log(name).splitlines()
        health = self.state / "logs" / f"{name}-health.log"
        more = health.read_text().splitlines()[-5:] if health.exists() else []
        return "\n".join([*lines[-40:], *more])


def _first_process(unshared: int) -> int | None:
    """Return the first process of the container that a started `unshare` has made.

    None before there is one, and when the container has ended.
    """
    try:
        children = Path(f"/proc/{unshared}/task/{unshared}/children").read_text().split()
    except FileNotFoundError:
        return None
    return int(children[0]) if children else None


def _run(*command: str) -> None:
    subprocess.run(command, check=True)


def why_not() -> str | None:
    """Return why this machine cannot run the engine, or None."""
    if os.geteuid() != 0:
        return "needs root, to make namespaces and mounts"
    missing = [name for name in ("ip", "unshare", "setpriv") if shutil.which(name) is None]
    if missing:
        return f"needs {', '.join(missing)}"
    if not VENV.joinpath("bin", "airflow").exists():
        return "needs .venv-team; make it: make compose-check"
    if VENV.is_relative_to("/tmp"):
        return f"needs a checkout outside /tmp: a container's own /tmp hides {VENV}"
    return None
