"""Several hosts that train together: processes on this machine, or in network namespaces."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from pipeline_store import uris
from pipeline_store.formats import CheckpointManifest
from pipeline_store.layout import RunLayout
from tests.serving import free_ports
from tests.training.corpora import TinyStore
from tests.training.host import Notes
from tests.training.jobs import ROOT, result, train_arguments
from trained_models import metric_files
from training.runtime.slices import HELD_PORT

HOSTS = 2
PATIENCE = 150.0
"""Seconds in which hosts that lost one have ended, on a machine that does other things too."""
IP = shutil.which("ip") or ""


@dataclass
class Network:
    """Where the hosts are: what names them, and what a command on one of them begins with."""

    addresses: list[str]
    namespaces: list[str] = field(default_factory=list)

    def on(self, host: int) -> list[str]:
        return [IP, "netns", "exec", self.namespaces[host]] if self.namespaces else []

    def cut_off(self, host: int) -> None:
        """Let a host vanish from the others: nothing arrives any more, no connection is closed."""
        assert _ip("-n", self.namespaces[host], "link", "set", "eth0", "down").returncode == 0


def loopback() -> Network:
    """Return hosts on this machine's own addresses, with ports that nothing listens on now."""
    # A slice listens on a second port of each host.
    return Network([f"localhost:{port}" for port in free_ports(HOSTS, beside=HELD_PORT)])


@contextmanager
def namespaces() -> Iterator[Network]:
    """Give each host a network of its own, with a cable between the two. Needs root."""
    if os.geteuid() != 0 or not IP:
        pytest.skip("network namespaces need root and iproute2")
    unique = uuid.uuid4().hex[:6]
    names = [f"host{number}-{unique}" for number in range(HOSTS)]
    devices = [f"v{number}-{unique}" for number in range(HOSTS)]
    try:
        for name in names:
            if _ip("netns", "add", name).returncode != 0:
                pytest.skip("this machine gives its root no network namespaces")
        cable = _ip("link", "add", devices[0], "type", "veth", "peer", "name", devices[1])
        assert cable.returncode == 0, cable.stderr
        for number, (name, device) in enumerate(zip(names, devices, strict=True)):
            for command in (
                ["link", "set", device, "netns", name, "name", "eth0"],
                ["-n", name, "addr", "add", f"10.77.0.{number + 1}/24", "dev", "eth0"],
                ["-n", name, "link", "set", "lo", "up"],
                ["-n", name, "link", "set", "eth0", "up"],
            ):
                done = _ip(*command)
                assert done.returncode == 0, done.stderr
        # The same port on each, as there is only one host on a machine.
        yield Network([f"10.77.0.{number + 1}:2222" for number in range(HOSTS)], names)
    finally:
        for name in names:
            _ip("netns", "del", name)


def _ip(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([IP, *words], check=False, capture_output=True, text=True)


@dataclass
class Host:
    """One trainer, what it said, and what it noted."""

    process: subprocess.Popen[bytes]
    folder: Path

    @property
    def output(self) -> str:
        return (self.folder / "output").read_text()

    @property
    def progress(self) -> Path:
        return self.folder / "progress"

    @property
    def notes(self) -> Notes:
        return Notes(self.folder / "notes")

    def wait(self, patience: float) -> int:
        """Return the exit code; a host that still runs then fails the test."""
        try:
            return self.process.wait(patience)
        except subprocess.TimeoutExpired:
            pytest.fail(f"still running after {patience} s: {self.output}")


@contextmanager
def running(
    store: TinyStore,
    run: RunLayout,
    manifest: str,
    folder: Path,
    network: Network,
    *,
    dies: tuple[int, int] | None = None,
) -> Iterator[list[Host]]:
    """Start the trainer on all hosts; what still runs in the end is killed.

    :param dies: host, and at which of its reads it is killed.
    """
    arguments = train_arguments(store, run, manifest)
    deaths = dict([dies] if dies else [])
    hosts = [
        _start(number, arguments, folder / str(number), network, deaths.get(number))
        for number in range(HOSTS)
    ]
    try:
        yield hosts
    finally:
        for host in hosts:
            host.process.kill()
            host.process.wait()


def _start(
    number: int, arguments: list[str], folder: Path, network: Network, dies_at: int | None
) -> Host:
    folder.mkdir(parents=True)
    command = [sys.executable, "-m", "tests.training.host", str(folder / "notes"), *arguments]
    environment = {
        "REPRETRAIN_PROGRESS_FILE": str(folder / "progress"),
        "HOST_DIES_AT": str(dies_at or ""),
    }
    return start_host(number, network, folder, command, environment)


def start_host(
    number: int, network: Network, folder: Path, command: list[str], environment: dict[str, str]
) -> Host:
    """Start a command on a host, told of the others as its agent would.

    :param folder: that exists; it gets the output.
    """
    task = {"type": "worker", "index": number}
    tf_config = json.dumps({"cluster": {"worker": network.addresses}, "task": task})
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(
            [*network.on(number), *command],
            cwd=ROOT,
            env=os.environ | {"TF_CONFIG": tf_config} | environment,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    return Host(process, folder)


def train_together(
    store: TinyStore, run: RunLayout, manifest: str, folder: Path, network: Network
) -> list[Host]:
    """Train on all hosts to the end, and return what they left."""
    with running(store, run, manifest, folder, network) as hosts:
        # Shorter than pytest's own limit, which would not show what the hosts said.
        codes = [host.wait(PATIENCE * 3) for host in hosts]
        assert codes == [0] * HOSTS, "\n".join(host.output for host in hosts)
    return hosts


def wait_for_checkpoint(run: RunLayout, hosts: list[Host]) -> None:
    """Return when a checkpoint is committed; fail if a host ends before."""
    while not uris.list_files(run.training.checkpoints):
        for host in hosts:
            if host.process.poll() is not None:
                pytest.fail(f"the trainer ended before a checkpoint: {host.output}")
        time.sleep(0.05)


def losses(run: RunLayout) -> list[float]:
    """Return the loss of each step of a training that reports every step."""
    records = metric_files.read(run.training.metrics)
    found = [record for record in records if record["kind"] == metric_files.LOOP]
    assert [record["step"] for record in found] == list(range(1, len(found) + 1))
    return [record["loss"] for record in found]


def weights(run: RunLayout) -> dict[str, np.ndarray]:
    """Return the weights that a finished training has left, by name."""
    import tensorflow as tf

    from training.importing.tensorflow_checkpoints import keys_by_name

    manifest = CheckpointManifest.load(uris.join(run.training.root, result(run).checkpoint))
    reader = tf.train.load_checkpoint(uris.join(run.training.root, manifest.prefix))
    return {name: reader.get_tensor(key) for name, key in keys_by_name(reader).items()}


def largest_difference(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> float:
    """Return the largest difference of two models' weights, absolute."""
    assert one.keys() == other.keys()
    return max(float(np.abs(one[name] - other[name]).max()) for name in one)
