"""Checks the health of each part, by asking the part itself rather than its supervisor."""

from __future__ import annotations

import datetime
import socket
from collections.abc import Callable, Mapping

import httpx
import psutil
import psycopg2  # type: ignore[import-untyped]

from local.stack import parts, processes, settings
from local.stack.paths import RuntimePaths
from local.stack.supervision import PartProcess

TIMEOUT_SECONDS = 5.0
# Names in Airflow's health report, by part.
HEARTBEATS = {
    parts.SCHEDULER: "scheduler",
    parts.DAG_PROCESSOR: "dag_processor",
    parts.TRIGGERER: "triggerer",
}
PAGES = {
    settings.API_SERVER: "/api/v2/version",
    settings.TASK_LOGS: "/",
    settings.TENSORBOARD: "/data/environment",
    settings.METRICS: "/metrics",
    settings.PROMETHEUS: "/-/ready",
    settings.ALERTMANAGER: "/-/ready",
}


class HealthCheck:
    """Checks the health of one stack's parts."""

    def __init__(self, runtime: RuntimePaths, ports: Mapping[str, int]) -> None:
        self._runtime = runtime
        self._ports = ports
        # One client for all requests, because creating one reads the system's certificates. No
        # connection is kept open: a server that is being stopped would wait for it.
        self._client = httpx.Client(
            trust_env=False,
            timeout=TIMEOUT_SECONDS,
            limits=httpx.Limits(max_keepalive_connections=0),
        )

    def problem(self, name: str, process: PartProcess) -> str | None:
        """Return what is wrong with a part, or None if it is healthy.

        :param name: the part.
        :param process: its state in supervisord.
        """
        if name == parts.MIGRATION:
            return _migration_problem(process)
        if process.state != "RUNNING" or process.pid is None:
            return f"process is {process.state.lower()}"
        if name in (special := self._of_its_own()):
            return special[name]()
        if name in PAGES:
            return self._page_problem(name, process.pid)
        return self._heartbeat_problem(HEARTBEATS[name], process.started)

    def _of_its_own(self) -> dict[str, Callable[[], str | None]]:
        return {
            parts.POSTGRES: self._database_problem,
            parts.TPU_EMULATOR: self._emulator_problem,
            # It answers only supervisord.
            parts.LIVENESS: lambda: None,
        }

    def _database_problem(self) -> str | None:
        try:
            psycopg2.connect(settings.database_url("", self._runtime), connect_timeout=5).close()
        except psycopg2.Error as error:
            return str(error).strip()
        return None

    def _emulator_problem(self) -> str | None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(TIMEOUT_SECONDS)
            try:
                probe.connect(str(self._runtime.emulator_socket))
            except OSError as error:
                return f"{self._runtime.emulator_socket}: {error}"
        return None

    def _page_problem(self, name: str, pid: int) -> str | None:
        port = self._ports[name]
        try:
            status = self._get(name, PAGES[name]).status_code
        except httpx.HTTPError as error:
            return f"port {port}: {error}"
        if status >= httpx.codes.INTERNAL_SERVER_ERROR:
            return f"port {port} answers with status {status}"
        # Another program may have taken the port between choosing and binding it.
        owned = {listener.port for listener in processes.listeners(_family(pid))}
        return None if port in owned else f"port {port} is answered by another program"

    def _heartbeat_problem(self, component: str, started: float) -> str | None:
        try:
            report = self._get(settings.API_SERVER, "/api/v2/monitor/health").json()[component]
        except (httpx.HTTPError, ValueError, KeyError) as error:
            return f"no health report from the API server: {error!r}"
        heartbeat = report.get(f"latest_{component}_heartbeat")
        if report["status"] != "healthy" or heartbeat is None:
            return f"reported as {report['status']}"
        # Just after a restart the report still shows the previous process as healthy.
        if datetime.datetime.fromisoformat(heartbeat).timestamp() < started:
            return "no heartbeat since its start"
        return None

    def _get(self, name: str, page: str) -> httpx.Response:
        return self._client.get(settings.url(self._ports[name]) + page)


def _migration_problem(process: PartProcess) -> str | None:
    if process.state == "EXITED" and process.exit_code == 0:
        return None
    if process.state == "EXITED":
        return f"ended with exit code {process.exit_code}"
    return f"process is {process.state.lower()}"


def _family(pid: int) -> list[psutil.Process]:
    try:
        parent = psutil.Process(pid)
        return [parent, *parent.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []
