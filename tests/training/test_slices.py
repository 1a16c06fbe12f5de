"""Worker 0 drives a slice of several hosts; the others have TensorFlow's worker and no Python.

CPUs stand for the chips, processes of TensorFlow's own server for the TPU runtime of each host.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from pipeline_config import PipelineConfig
from pipeline_store.formats import ExitKind
from pipeline_store.layout import RunLayout
from tests.training.corpora import TinyStore, tiny_config
from tests.training.hosts import (
    HOSTS,
    PATIENCE,
    Host,
    largest_difference,
    loopback,
    losses,
    wait_for_checkpoint,
    weights,
)
from tests.training.jobs import ROOT, committed_steps, result, train, train_arguments
from tests.training.test_workers import LOSS_TOLERANCE, WEIGHT_TOLERANCE
from training import metric_files

STEPS, INTERVAL = 30, 10


def settings(**more: object) -> PipelineConfig:
    sizes = {
        "training__train_steps": STEPS,
        "training__steps_per_loop": 1,
        "training__checkpoint_interval": INTERVAL,
        "training__global_batch_size": 8,
        "evaluation__rows_per_checkpoint": 16,
    }
    return tiny_config(**sizes | more)


def driven(**more: object) -> PipelineConfig:
    return settings(training__distribution_strategy="tpu", **more)


@dataclass
class Slice:
    """A trainer on worker 0, and the runtime of each host."""

    driver: Host
    runtimes: list[subprocess.Popen[bytes]]


@contextmanager
def driving(store: TinyStore, run: RunLayout, manifest: str, folder: Path) -> Iterator[Slice]:
    """Start the runtimes and the trainer; what still runs in the end is killed."""
    scratch = folder / "scratch"
    scratch.mkdir(parents=True)
    addresses = loopback().addresses
    # In place of the store and of the trainer's temporary files a runtime has an empty folder, as
    # another machine has.
    hidden = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"']
    command = [*hidden, str(folder.parent)] if os.geteuid() == 0 else []
    command += [sys.executable, "-m", "tests.training.slice_worker", ",".join(addresses)]
    task = {"type": "worker", "index": 0}
    environment = os.environ | {
        "TF_CONFIG": json.dumps({"cluster": {"worker": addresses}, "task": task}),
        "TPU_NAME": ",".join(f"grpc://{address}" for address in addresses),
        "TMPDIR": str(scratch),
    }
    arguments = train_arguments(store, run, manifest)
    with (folder / "output").open("wb") as output, (folder / "runtimes").open("wb") as others:
        runtimes = [
            subprocess.Popen([*command, str(index)], cwd=ROOT, stdout=others, stderr=others)
            for index in range(HOSTS)
        ]
        driver = subprocess.Popen(
            [sys.executable, "-m", "tests.training.slice_driver", *arguments],
            cwd=ROOT,
            env=environment,
            stdout=output,
            stderr=output,
        )
    try:
        yield Slice(Host(driver, folder), runtimes)
    finally:
        for process in (driver, *runtimes):
            process.kill()
            process.wait()


def held_out(run: RunLayout) -> list[float]:
    records = metric_files.read(run.training.metrics)
    return [record["loss"] for record in records if record["kind"] == metric_files.HELD_OUT]


@dataclass(frozen=True)
class Twin:
    """The same training on one machine and on a slice, uninterrupted."""

    store: TinyStore
    manifest: str
    alone: RunLayout
    driven: RunLayout


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Twin:
    folder = tmp_path_factory.mktemp("slice")
    store = TinyStore.create(folder / "store")
    manifest = store.partition("2026-01-01")
    alone, run = store.run("alone", settings()), store.run("driven", driven())
    assert train(store, alone, manifest) == 0
    with driving(store, run, manifest, folder / "hosts") as slice_:
        assert slice_.driver.wait(PATIENCE * 3) == 0, slice_.driver.output
    return Twin(store, manifest, alone, run)


def test_a_slice_has_the_losses_and_weights_of_one_machine(twin: Twin) -> None:
    alone, both = losses(twin.alone), losses(twin.driven)
    assert len(alone) == STEPS
    assert alone[-1] < alone[0] - 1.0, "nothing was learned"
    assert both == pytest.approx(alone, rel=LOSS_TOLERANCE)
    assert result(twin.driven).tokens == result(twin.alone).tokens
    difference = largest_difference(weights(twin.alone), weights(twin.driven))
    print(f"weights: {difference:.1e}")
    assert difference < WEIGHT_TOLERANCE


def test_a_slice_scores_held_out_rows_as_one_machine_does(twin: Twin) -> None:
    assert len(held_out(twin.alone)) == STEPS // INTERVAL
    assert held_out(twin.driven) == pytest.approx(held_out(twin.alone), rel=LOSS_TOLERANCE)


def test_a_lost_host_is_named_and_the_next_slice_goes_on_where_it_was(
    twin: Twin, tmp_path: Path
) -> None:
    run = twin.store.run("lost", driven())
    with driving(twin.store, run, twin.manifest, tmp_path / "first") as slice_:
        wait_for_checkpoint(run, [slice_.driver])
        slice_.runtimes[1].send_signal(signal.SIGKILL)
        # Bounded: it neither hangs nor goes on with half of the chips.
        assert slice_.driver.wait(PATIENCE) == ExitKind.KILLED.exit_code
    assert "killed: worker 1 (localhost:" in slice_.driver.output
    saved = committed_steps(run)[-1]
    assert INTERVAL <= saved < STEPS

    with driving(twin.store, run, twin.manifest, tmp_path / "second") as slice_:
        assert slice_.driver.wait(PATIENCE * 3) == 0, slice_.driver.output
    assert result(run).resumed_from == [saved]
    # Not bit for bit: two uninterrupted trainings of these stand-ins differ by rounding, too.
    difference = largest_difference(weights(twin.driven), weights(run))
    print(f"weights: {difference:.1e}")
    assert difference < WEIGHT_TOLERANCE
