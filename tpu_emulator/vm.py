"""TPU VM workers: folders and processes that run the node's startup script."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import sqlite3
import subprocess
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psutil

from tpu_emulator import catalog, metadata, names, processes
from tpu_emulator.config import EmulatorConfig
from tpu_emulator.metadata import MetadataServer
from tpu_emulator.store import Store, WorkerRow

_log = logging.getLogger(__name__)
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_EXIT_UNKNOWN = -1


class Vms:
    """Boots, reboots, adopts and ends the workers of nodes.

    Callers make sure that no two methods run at the same time for the same node.
    """

    def __init__(self, store: Store, config: EmulatorConfig) -> None:
        self._store = store
        self._config = config
        self._state_dir = str(config.state_dir)
        self._servers: dict[str, MetadataServer] = {}
        self.hurry = threading.Event()
        """Set when the emulator stops: grace periods are cut short."""

    def boot(self, node: Any) -> None:
        """Runs the startup script on every worker, in its previous folder if there is one."""
        processes.kill(lambda: self._of_nodes([node.name]))
        known = {row.number: row for row in self._store.workers(node.name)}
        for number in range(catalog.ACCELERATOR_TYPES[node.accelerator_type].workers):
            row = known.get(number) or WorkerRow(_marker(node.name, number), node.name, number)
            if row.dead:
                continue
            self._serve_metadata(row, any_port=True)
            row.pid, row.exit_code, row.boots = 0, None, row.boots + 1
            self._store.put_worker(row)
            self._start_script(node, row)

    def recover(self, node: Any) -> None:
        """After a restart of the emulator: adopts the node if all its VMs run, else reboots it."""
        rows = [row for row in self._store.workers(node.name) if not row.dead]
        alive = self._scan()
        try:
            for row in rows:
                self._serve_metadata(row, any_port=False)
        except OSError as error:
            _log.warning("%s: metadata port is taken (%s), rebooting", node.name, error)
            rows = []
        if rows and all(row.marker in alive or row.exit_code is not None for row in rows):
            _log.info("adopted %s", node.name)
            for row in rows:
                self._watch_adopted(row)
        else:
            _log.info("rebooting %s: its processes are gone", node.name)
            self.boot(node)

    def shut_down(self, node_names: Iterable[str], grace: float | None = None) -> None:
        """Runs the shutdown scripts, then ends every process; returns when none is left.

        Raises:
            TimeoutError: a process survives SIGKILL.
        """
        node_names = list(node_names)
        grace = self._config.vm_grace if grace is None else grace
        self._run_shutdown_scripts(node_names, grace)
        processes.terminate(lambda: self._of_nodes(node_names), grace=grace, hurry=self.hurry)

    def kill(self, node_names: Iterable[str]) -> None:
        """Ends every process at once, without shutdown scripts; returns when none is left.

        Raises:
            TimeoutError: a process survives SIGKILL.
        """
        node_names = list(node_names)
        processes.kill(lambda: self._of_nodes(node_names))

    def add_dead_worker(self, node_name: str, number: int) -> None:
        """Marks a worker of a new node as one that never boots."""
        self._store.put_worker(WorkerRow(_marker(node_name, number), node_name, number, dead=True))

    def kill_worker(self, node_name: str, number: int) -> None:
        """Kills one host; no reboot of the node brings it back."""
        marker = _marker(node_name, number)
        self._store.set_worker_dead(marker)
        processes.kill(lambda: self._scan().get(marker, []))

    def freeze_worker(self, node_name: str, number: int) -> None:
        """Stops every process of a worker, as on a host that hangs; they still can be killed."""
        marker = _marker(node_name, number)
        processes.freeze(lambda: self._scan().get(marker, []))

    def remove(self, node_name: str) -> None:
        """Removes the workers of a node that is shut down and their folders, but keeps the logs."""
        for row in self._store.workers(node_name):
            server = self._servers.pop(row.marker, None)
            if server:
                server.close()
            self._keep_log(row)
        shutil.rmtree(self.directory(node_name), ignore_errors=True)
        self._store.remove_workers(node_name)

    def set_preempted(self, node_name: str) -> None:
        """Makes `instance/preempted` TRUE on every worker."""
        self._store.set_worker_flag(node_name, "preempted", on=True)

    def set_maintenance(self, node_name: str, *, announced: bool) -> None:
        """Makes `instance/maintenance-event` say that maintenance is near, or over."""
        self._store.set_worker_flag(node_name, "maintenance", on=announced)

    def stop_all(self, grace: float) -> None:
        """Ends the processes of all VMs; the next start of the emulator boots them again."""
        rows = self._store.workers()
        self.shut_down({row.node for row in rows}, grace)
        processes.kill(lambda: [p for found in self._scan().values() for p in found])
        for row in rows:
            row.pid, row.exit_code = 0, None
            self._store.put_worker(row)

    def close(self) -> None:
        """Stops the metadata servers; the processes keep running."""
        for server in self._servers.values():
            server.close()
        self._servers.clear()

    def pids(self) -> dict[str, list[int]]:
        """Living processes by worker marker, also of workers that no node has."""
        return {
            marker: sorted(process.pid for process in found)
            for marker, found in self._scan().items()
        }

    def directory(self, node_name: str, worker: int | None = None) -> Path:
        """The folder of a node, or of one of its workers."""
        location, node_id = names.split(node_name)
        folder = self._config.state_dir / "vms" / location.zone / node_id
        return folder if worker is None else folder / f"w{worker}"

    def _scan(self) -> dict[str, list[psutil.Process]]:
        sessions = {
            row.pid: row.marker
            for row in self._store.workers()
            # A reused pid must not make an unrelated session ours.
            if row.pid
            and (processes.is_same_process(row.pid, row.started) or not psutil.pid_exists(row.pid))
        }
        return processes.find(self._state_dir, sessions)

    def _of_nodes(self, node_names: Iterable[str]) -> list[psutil.Process]:
        prefixes = tuple(_marker_prefix(name) for name in node_names)
        return [
            process
            for marker, found in self._scan().items()
            if marker.startswith(prefixes)
            for process in found
        ]

    def _serve_metadata(self, row: WorkerRow, *, any_port: bool) -> None:
        if row.marker in self._servers:
            return

        def tree() -> metadata.Tree:
            # Read again each time: UpdateNode and preemption must be visible at once.
            node = self._store.nodes.get(row.node)
            current = {other.marker: other for other in self._store.workers(row.node)}
            if node is None or row.marker not in current:
                return {}
            return metadata.document(
                node,
                worker=row.number,
                preempted=current[row.marker].preempted,
                maintenance=current[row.marker].maintenance,
            )

        try:
            server = MetadataServer(tree, row.port)
        except OSError:
            if not any_port:
                raise
            server = MetadataServer(tree)
        row.port = server.port
        self._servers[row.marker] = server

    def _start_script(self, node: Any, row: WorkerRow) -> None:
        process = self._run_script(node, row, "startup-script")
        if process is None:
            row.pid, row.exit_code = 0, 0
        else:
            row.pid = process.pid
            row.started = psutil.Process(process.pid).create_time()
        self._store.put_worker(row)
        if process is not None:
            threading.Thread(target=self._note_exit, args=(row, process.wait), daemon=True).start()

    def _watch_adopted(self, row: WorkerRow) -> None:
        if not processes.is_same_process(row.pid, row.started):
            return
        process = psutil.Process(row.pid)

        def wait() -> int:
            process.wait()
            return _EXIT_UNKNOWN  # only a parent learns the exit code

        threading.Thread(target=self._note_exit, args=(row, wait), daemon=True).start()

    def _note_exit(self, row: WorkerRow, wait: Any) -> None:
        code = wait()
        # The database is closed, or the folder gone, when the emulator or the node ended first.
        with contextlib.suppress(sqlite3.ProgrammingError):
            self._store.set_worker_exit(row.marker, row.pid, code)
        with contextlib.suppress(OSError), self._serial_log(row) as log:
            log.write(f"tpu_emulator: startup-script exit status {code}\n".encode())

    def _run_shutdown_scripts(self, node_names: list[str], grace: float) -> None:
        running = []
        for name in node_names:
            node = self._store.nodes.get(name)
            for row in self._store.workers(name) if node else ():
                if row.dead:
                    continue
                process = self._run_script(node, row, "shutdown-script")
                if process:
                    running.append(psutil.Process(process.pid))
        processes.wait(running, grace, self.hurry)

    def _run_script(self, node: Any, row: WorkerRow, key: str) -> subprocess.Popen[bytes] | None:
        """Starts the script of this metadata key in a session of its own; None if there is none."""
        text = node.metadata.get(key, "")
        if not text:
            return None
        folder = self.directory(row.node, row.number)
        (folder / "tmp").mkdir(parents=True, exist_ok=True)
        script = folder / key
        script.write_text(text, encoding="utf-8")
        script.chmod(0o700)
        command = [str(script)] if text.startswith("#!") else ["/bin/sh", str(script)]
        with self._serial_log(row) as log:
            log.write(f"tpu_emulator: boot {row.boots}: {key} starts\n".encode())
            log.flush()
            try:
                return subprocess.Popen(
                    command,
                    cwd=folder,
                    env=self._environment(row, folder),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    umask=0o022,
                )
            except OSError as error:
                log.write(f"tpu_emulator: cannot execute the {key}: {error}\n".encode())
                return None

    def _environment(self, row: WorkerRow, folder: Path) -> dict[str, str]:
        return {
            "PATH": _PATH,
            "LANG": "C.UTF-8",
            "HOME": str(folder),
            "TMPDIR": str(folder / "tmp"),
            **self._config.vm_env,
            "GCE_METADATA_HOST": f"127.0.0.1:{row.port}",
            "GCE_METADATA_IP": f"127.0.0.1:{row.port}",
            processes.VM_VARIABLE: row.marker,
            processes.STATE_VARIABLE: self._state_dir,
        }

    def _serial_log(self, row: WorkerRow) -> Any:
        return (self.directory(row.node, row.number) / "serial.log").open("ab")

    def _keep_log(self, row: WorkerRow) -> None:
        source = self.directory(row.node, row.number) / "serial.log"
        if source.exists():
            target = self._config.state_dir / "logs" / f"{row.marker.replace('/', '_')}.log"
            target.parent.mkdir(exist_ok=True)
            os.replace(source, target)


def _marker(node_name: str, number: int) -> str:
    return f"{_marker_prefix(node_name)}w{number}"


def _marker_prefix(node_name: str) -> str:
    location, node_id = names.split(node_name)
    return f"{location.zone}/{node_id}/"
