#!/usr/bin/env python3
"""Startup script of a TPU VM: fetches the run's code, verifies it and keeps its agent running.

It runs at every boot, with the Python that PATH finds first: the one that has TensorFlow. It needs
nothing else and installs nothing. What it must know is in the attributes of the node.
"""

from __future__ import annotations

import hashlib
import http.client
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
import zipfile
from pathlib import Path

METADATA_HOST = os.environ.get("GCE_METADATA_HOST", "metadata.google.internal")
STORAGE = "https://storage.googleapis.com/"
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
NETWORK_PAUSES = (1, 2, 4, 8, 16, 32, 60)  # at boot the network may not be up yet
LONGEST_PAUSE = 60.0


def say(text: str) -> None:
    """Write a line to the VM's log."""
    print(f"boot: {text}", flush=True)


def fetch(url: str, headers: dict[str, str]) -> bytes | None:
    """Return what is at a URL, or None when the server says that there is nothing."""
    # file:// is the store of a local stack, not a mistake.
    request = urllib.request.Request(url, headers=headers)  # noqa: S310
    for pause in NETWORK_PAUSES:
        try:
            with DIRECT.open(request, timeout=60) as reply:
                return bytes(reply.read())
        except (OSError, http.client.HTTPException) as error:
            if getattr(error, "code", None) == 404:
                return None
            say(f"{url}: {error}; trying again in {pause} s")
            time.sleep(pause)
    sys.exit(f"boot: {url} cannot be read: giving up, nothing is run")


def metadata(path: str) -> str | None:
    """Return a value of the metadata server."""
    url = f"http://{METADATA_HOST}/computeMetadata/v1/instance/{path}"
    value = fetch(url, {"Metadata-Flavor": "Google"})
    return None if value is None else value.decode()


def attribute(name: str) -> str:
    """Return an attribute that the node was created with."""
    value = metadata(f"attributes/{name}")
    return value or sys.exit(f"boot: the node has no metadata {name!r}: nothing is run")


def worker_number() -> str:
    """Return which host of the slice this is."""
    found = re.search(r"^WORKER_ID:\s*'?(\d+)", metadata("attributes/tpu-env") or "", re.MULTILINE)
    return metadata("attributes/agent-worker-number") or (found[1] if found else "0")


def unpack(url: str, sha256: str, work: Path) -> Path:
    """Return the folder of the verified bundle, which an earlier boot may have made."""
    folder = work / f"bundle-{sha256}"
    if folder.exists():
        return folder
    headers = {}
    if url.startswith(STORAGE):  # the VM's own token, shown to nobody else
        token = json.loads(metadata("service-accounts/default/token") or "{}")["access_token"]
        headers["Authorization"] = f"Bearer {token}"
    archive = fetch(url, headers) or b""
    found = hashlib.sha256(archive).hexdigest()
    if found != sha256:
        sys.exit(f"boot: {url} has SHA-256 {found}, expected {sha256}: refused, nothing is run")
    aside = work / "bundle.part"
    shutil.rmtree(aside, ignore_errors=True)
    zipfile.ZipFile(io.BytesIO(archive)).extractall(aside)
    return aside.rename(folder)


class KeepAlive:
    """Starts a command again whenever it ends unexpectedly; SIGTERM is passed on and ends it."""

    def __init__(self, command: list[str], folder: Path) -> None:
        self.command, self.folder = command, folder
        self.child: subprocess.Popen[bytes] | None = None
        self.stopping = False

    def on_sigterm(self, _number: int, _frame: object) -> None:
        """Pass the signal on."""
        self.stopping = True
        if self.child:
            self.child.terminate()

    def run(self) -> None:
        """Return when the command says that it is finished (exit code 0), or after SIGTERM."""
        pause = 1.0
        while not self.stopping:
            started = time.monotonic()
            environment = {**os.environ, "PYTHONPATH": str(self.folder)}
            self.child = subprocess.Popen(self.command, cwd=self.folder, env=environment)
            if self.stopping:  # the signal came while there was no child to pass it on to
                self.child.terminate()
            code = self.child.wait()
            if code == 0:
                return
            pause = 1.0 if time.monotonic() - started > LONGEST_PAUSE else pause
            say(f"the agent ended with exit code {code}; it is started again in {pause:.0f} s")
            resume = time.monotonic() + pause
            while time.monotonic() < resume and not self.stopping:
                time.sleep(0.1)
            pause = min(2 * pause, LONGEST_PAUSE)


def main() -> None:
    """Boot this worker."""
    if sys.version_info < (3, 11):  # noqa: UP036 - a stock VM image may have an older one
        sys.exit(f"boot: {sys.executable} is older than Python 3.11: put a newer one on PATH")
    # The platform starts the script in /, which is no place for files.
    work = Path("/var/lib/tpu-agent") if Path.cwd() == Path("/") else Path.cwd() / "tpu-agent"
    work.mkdir(mode=0o700, parents=True, exist_ok=True)
    sha256, worker = attribute("bundle-sha256"), worker_number()
    folder = unpack(attribute("bundle-url"), sha256, work)
    command = [sys.executable, "-m", "tpu_agent", "--bundle-sha256", sha256, "--worker", worker]
    command += ["--mailbox", attribute("mailbox-uri"), "--released-uri", attribute("released-uri")]
    command += ["--token", attribute("attempt-token"), "--expires-at", attribute("expires-at")]
    command += ["--heartbeat-interval", attribute("heartbeat-interval")]
    command += ["--work-dir", str(work / "agent")]
    agent = KeepAlive(command, folder)
    signal.signal(signal.SIGTERM, agent.on_sigterm)
    say(f"worker {worker} runs bundle {sha256} with {sys.executable}")
    agent.run()
    say("the agent is finished")


if __name__ == "__main__":
    main()
