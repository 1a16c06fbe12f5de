"""The reaper's command, run outside Airflow again and again, as cron does."""

from __future__ import annotations

import subprocess
import sys
import threading

from local.stack.paths import REPOSITORY, RuntimePaths
from local.stack.stack import Stack

PAUSE_SECONDS = 10.0
PASS_SECONDS = 60.0


class Cron:
    """Runs passes for one owner, in a thread, until stopped.

    :param stack: whose emulator and store are looked at.
    :param owner: value of the owner label.
    """

    def __init__(self, stack: Stack, owner: str) -> None:
        socket = RuntimePaths.of(stack.paths.root).emulator_socket
        self._command = [
            *(sys.executable, "-m", "tpu_lifecycle", "reap", "--once"),
            *("--store", str(stack.paths.store), "--owner", owner, "--project", "local-project"),
            *("--endpoint", f"unix:{socket}", "--insecure"),
        ]
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cron", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Run no further pass; wait for the one that is going on."""
        self._stopped.set()
        self._thread.join(PASS_SECONDS)

    def _run(self) -> None:
        while not self._stopped.is_set():
            # What it says is not looked at: whether the TPU is gone is.
            subprocess.run(
                self._command,
                cwd=REPOSITORY,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                timeout=PASS_SECONDS,
            )
            self._stopped.wait(PAUSE_SECONDS)
