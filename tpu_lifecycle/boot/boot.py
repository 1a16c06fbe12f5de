#!/usr/bin/env python3
"""Startup script of a TPU VM: fetches the run's code, verifies it, keeps agent and switch running.

It runs at every boot, with the Python that PATH finds first: the one that has TensorFlow. It needs
nothing else and installs nothing. Its parameters are attributes of the node. If that Python is in a
container image, ``boot_container.sh`` is the startup script and runs this one in the image.

The agent (``tpu_agent``) runs the jobs; the switch (``tpu_agent.self_delete``) deletes the TPU when
it expires or is forgotten. If neither can run, the script deletes the TPU itself.
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
import urllib.error
import urllib.request
import zipfile
from datetime import datetime
from pathlib import Path

METADATA_HOST = os.environ.get("GCE_METADATA_HOST", "metadata.google.internal")
STORAGE = "https://storage.googleapis.com/"
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
NETWORK_PAUSES = (1, 2, 4, 8, 16, 32, 60)  # at boot the network may not be up yet
LONGEST_PAUSE = 60.0
TICK = 0.2
LAST_RESORT_AFTER = 600.0  # after the expiry: the switch has had ten minutes


def say(text: str) -> None:
    """Write a line to the VM's log."""
    print(f"boot: {text}", flush=True)


def fetch(url: str, headers: dict[str, str]) -> bytes | None:
    """Return the content of a URL, or None when the server answers 404.

    Raises OSError when it cannot be read for two minutes.
    """
    problem: Exception | None = None
    # file:// is the store of a local stack, not a mistake.
    request = urllib.request.Request(url, headers=headers)  # noqa: S310
    for pause in NETWORK_PAUSES:
        try:
            with DIRECT.open(request, timeout=60) as reply:
                return bytes(reply.read())
        except (OSError, http.client.HTTPException) as error:
            if getattr(error, "code", None) == 404:
                return None
            problem = error
            say(f"{url}: {error}; trying again in {pause} s")
            time.sleep(pause)
    raise OSError(f"{url} cannot be read: {problem}")


def metadata(path: str) -> str | None:
    """Return a value of the metadata server, or None when it has none."""
    url = f"http://{METADATA_HOST}/computeMetadata/v1/instance/{path}"
    value = fetch(url, {"Metadata-Flavor": "Google"})
    return None if value is None else value.decode()


def attribute(name: str) -> str:
    """Return an attribute that the node was created with."""
    value = metadata(f"attributes/{name}")
    return value or sys.exit(f"the node has no metadata {name!r}")


def vm_token() -> str:
    """Return the access token of the VM's service account."""
    token = json.loads(metadata("service-accounts/default/token") or "{}").get("access_token")
    return token or sys.exit(
        "this VM has no service account, so it can neither read the store nor delete its own TPU: "
        "set tpu.service_account to one that may"
    )


def tpu_env() -> dict[str, str]:
    """Return the platform's variables for this host, such as NODE_ID and WORKER_ID."""
    text = metadata("attributes/tpu-env") or ""
    return dict(re.findall(r"^(\w+):\s*'?([^'\s]*)", text, re.MULTILINE))


def worker_number(env: dict[str, str]) -> int:
    """Return the number of this host within the whole TPU, counted across slices."""
    worker = int(metadata("attributes/agent-worker-number") or env.get("WORKER_ID") or 0)
    hosts = len((metadata("attributes/worker-network-endpoints") or "").split(","))
    return int(env.get("MEGASCALE_SLICE_ID") or 0) * hosts + worker


def unpack(url: str, sha256: str, work: Path) -> Path:
    """Return the folder of the verified bundle, which an earlier boot may have made."""
    folder = work / f"bundle-{sha256}"
    if folder.exists():
        return folder
    headers = {}
    if url.startswith(STORAGE):  # the VM's own token, sent nowhere else
        headers["Authorization"] = f"Bearer {vm_token()}"
    archive = fetch(url, headers)
    if archive is None:
        sys.exit(f"{url} does not exist: clear the reserve task, it packs the code again")
    found = hashlib.sha256(archive).hexdigest()
    if found != sha256:
        sys.exit(f"{url} has SHA-256 {found}, expected {sha256}: refused")
    aside = work / "bundle.part"
    shutil.rmtree(aside, ignore_errors=True)
    zipfile.ZipFile(io.BytesIO(archive)).extractall(aside)
    return aside.rename(folder)


class KeepAlive:
    """A command that is restarted whenever it ends unexpectedly."""

    def __init__(self, name: str, command: list[str], folder: Path) -> None:
        self.name, self.command, self.folder = name, command, folder
        self.process: subprocess.Popen[bytes] | None = None
        self.finished = self.terminated = False
        self.started, self.resume, self.pause = 0.0, 0.0, 1.0
        self.worked = time.monotonic()  # when it was last seen running for long enough

    def tick(self) -> None:
        """Start the process if it should run and does not; notice when it has ended."""
        if self.process is None:
            if not self.finished and time.monotonic() >= self.resume:
                self.start()
            return
        code = self.process.poll()
        if code is None:
            if time.monotonic() - self.started > LONGEST_PAUSE:
                self.worked = time.monotonic()
            return
        self.process = None
        if code == 0:
            self.finished = True
            say(f"the {self.name} is finished")
        else:
            self.start_later(f"ended with exit code {code}")

    def start(self) -> None:
        """Start the process, or retry later if the machine cannot start one."""
        environment = {**os.environ, "PYTHONPATH": str(self.folder)}
        self.started = time.monotonic()
        try:
            self.process = subprocess.Popen(self.command, cwd=self.folder, env=environment)
        except OSError as error:
            self.start_later(f"could not be started ({error})")

    def start_later(self, why: str) -> None:
        """Schedule a restart after a pause, which doubles with each end in quick succession."""
        ran = time.monotonic() - self.started
        self.pause = 1.0 if ran > LONGEST_PAUSE else self.pause
        say(f"the {self.name} {why}; it is started again in {self.pause:.0f} s")
        self.resume = time.monotonic() + self.pause
        self.pause = min(2 * self.pause, LONGEST_PAUSE)

    def end(self) -> bool:
        """Ask the process to end; return whether it has."""
        if self.process is None or self.process.poll() is not None:
            return True
        if not self.terminated:
            self.process.terminate()
            self.terminated = True
        return False


class LastResort:
    """Deletion of the TPU with nothing but the standard library, if everything else fails.

    The switch of the bundle knows much more and is the one that should act. This is for a VM on
    which the bundle cannot run. The node's metadata has the requests that the service accepts; an
    emulator accepts none: there this does nothing.
    """

    def __init__(self) -> None:
        self.name = attribute("tpu-name")
        self.urls = deletions(self.name, tpu_env())
        self.is_possible = bool(self.urls)
        self.expires_at = datetime.fromisoformat(attribute("expires-at")).timestamp()
        self.lease_timeout = float(attribute("lease-timeout"))
        self.due = self.expires_at + LAST_RESORT_AFTER
        self.next_try = 0.0

    def give_up_after(self, seconds: float) -> None:
        """Schedule the deletion after this time, which lets a person debug the VM, or at expiry."""
        self.due = min(self.expires_at, time.time() + seconds)

    def tick(self, is_useless: bool = False) -> None:
        """Request the deletion once it is due or the VM is useless, once a minute."""
        is_due = is_useless or time.time() >= self.due
        if not (self.is_possible and is_due and time.time() >= self.next_try):
            return
        self.next_try = time.time() + LONGEST_PAUSE
        for url in self.urls:
            # Whatever the answer to the first, another may be accepted.
            try:
                code = delete(url)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - nobody else would try again
                say(f"deleting {url} failed: {error!r}")
                continue
            say(f"deleting {url}: {code}")
            if code < 300:
                return


def deletions(name: str, env: dict[str, str]) -> list[str]:
    """Return the URLs to which this VM may send DELETE to delete its own TPU, in order."""
    node_id = env.get("NODE_ID") or name.rpartition("/")[2]
    return (metadata("attributes/tpu-deletions") or "").replace("{node}", node_id).split()


def delete(url: str) -> int:
    """Send one DELETE with the VM's own token; return the status of the answer."""
    request = urllib.request.Request(  # noqa: S310 - the node's own metadata has the address
        url,
        method="DELETE",
        headers={"Authorization": f"Bearer {vm_token()}", "User-Agent": "bert-repretraining/vm"},
    )
    try:
        with DIRECT.open(request, timeout=60) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        return error.code


class Supervisor:
    """Keeps agent and switch alive until the VM ends."""

    def __init__(self, agent: KeepAlive, switch: KeepAlive, last_resort: LastResort) -> None:
        self.agent, self.switch, self.last_resort = agent, switch, last_resort
        self.stopping = False

    def on_sigterm(self, _number: int, _frame: object) -> None:
        """Remember that the VM is shutting down."""
        self.stopping = True

    def run(self) -> None:
        """Keep both alive; return after SIGTERM, when the agent has ended.

        The switch is left alone: a VM that shuts down signals every process itself, and one that
        does not, because a person has ended this script, must not lose its switch.
        """
        while not self.stopping:
            self.agent.tick()
            self.switch.tick()
            self.last_resort.tick(self.is_useless())
            time.sleep(TICK)
        while not self.agent.end():
            time.sleep(TICK)

    def is_useless(self) -> bool:
        """Return whether neither agent nor switch has worked for a lease timeout and a minute.

        While one of them works, this script must not judge: it does not read the lease.
        """
        idle = time.monotonic() - max(self.agent.worked, self.switch.worked)
        return idle > self.last_resort.lease_timeout + LONGEST_PAUSE


def boot(work: Path) -> Supervisor:
    """Return the supervisor of this worker's agent and switch, ready to run."""
    if sys.version_info < (3, 11):  # noqa: UP036 - a stock VM image may have an older one
        sys.exit(f"{sys.executable} is older than Python 3.11: set tpu.container_image")
    work.mkdir(mode=0o700, parents=True, exist_ok=True)
    # For the agent's account of the time. In the environment: an agent may not know these values.
    os.environ["REPRETRAIN_IMAGE_PULLED"] = str(time.time())
    os.environ.setdefault("REPRETRAIN_BOOT_BEGAN", os.environ["REPRETRAIN_IMAGE_PULLED"])
    sha256, env = attribute("bundle-sha256"), tpu_env()
    worker = worker_number(env)
    folder = unpack(attribute("bundle-url"), sha256, work)
    common = ["--worker", str(worker), "--work-dir", str(work / "agent")]
    common += ["--mailbox", attribute("mailbox-uri"), "--released-uri", attribute("released-uri")]
    common += ["--expires-at", attribute("expires-at")]
    agent = [sys.executable, "-m", "tpu_agent", *common, "--bundle-sha256", sha256]
    agent += ["--token", attribute("attempt-token")]
    agent += ["--heartbeat-interval", attribute("heartbeat-interval")]
    name = attribute("tpu-name")
    switch = [sys.executable, "-m", "tpu_agent.self_delete", *common, "--tpu-name", name]
    switch += ["--node-id", env.get("NODE_ID") or name.rpartition("/")[2]]
    switch += ["--tpu-api-endpoint", metadata("attributes/tpu-api-endpoint") or ""]
    # In the environment: the switch of an earlier bundle does not know an argument for them.
    os.environ["REPRETRAIN_TPU_DELETIONS"] = "\n".join(deletions(name, env))
    switch += ["--lease-timeout", attribute("lease-timeout")]
    say(f"worker {worker} runs bundle {sha256} with {sys.executable}")
    return Supervisor(
        KeepAlive("agent", agent, folder), KeepAlive("switch", switch, folder), LastResort()
    )


def main() -> None:
    """Boot this worker."""
    # The platform starts the script in /, which is no place for files.
    work = Path("/var/lib/tpu-agent") if Path.cwd() == Path("/") else Path.cwd() / "tpu-agent"
    try:
        supervisor = boot(work)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it is, the TPU must go
        say(f"giving up, nothing is run: {error}")
        wait_for_the_end()
        sys.exit(1)
    signal.signal(signal.SIGTERM, supervisor.on_sigterm)
    supervisor.run()


def wait_for_the_end() -> None:
    """Delete the TPU after its lease timeout, as nothing can run on it; return if impossible."""
    last_resort = None
    while last_resort is None:
        try:
            last_resort = LastResort()
        except OSError as error:  # the metadata server is away: it comes back with the network
            say(f"{error}; trying again")
    last_resort.give_up_after(last_resort.lease_timeout)
    while last_resort.is_possible:
        last_resort.tick()
        time.sleep(TICK)


if __name__ == "__main__":
    main()
