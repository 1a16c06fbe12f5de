"""A TPU slice of several hosts, of which worker 0 drives all chips; here these are CPUs."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from pipeline_config import PipelineConfig
from pipeline_config.rental_schema import TpuConfig
from pipeline_store.formats import EvaluationReport, ExitKind
from pipeline_store.layout import RunLayout
from tests.training.corpora import TinyStore
from tests.training.hosts import (
    HOSTS,
    PATIENCE,
    Host,
    Network,
    largest_difference,
    loopback,
    losses,
    namespaces,
    start_host,
    wait_for_checkpoint,
    weights,
)
from tests.training.jobs import committed_steps, result, train, train_arguments
from tests.training.runtime import test_workers
from tests.training.runtime.test_workers import INTERVAL, LOSS_TOLERANCE, STEPS, WEIGHT_TOLERANCE
from trained_models import metric_files
from trained_models.errors import UserError
from training import evaluate
from training.runtime import slices
from training.runtime.workers import Cluster

LONG = 200
# Of losses after so many steps: the rounding of each step is in all that follow.
LONG_TOLERANCE = 1e-4
MOUNT = 'mount -t tmpfs none "$0" && exec "$@"'


def settings(**more: object) -> PipelineConfig:
    return test_workers.settings(evaluation__rows_per_checkpoint=16, **more)


def driven(**more: object) -> PipelineConfig:
    return settings(training__distribution_strategy="tpu", **more)


def training_of(
    store: TinyStore, run: RunLayout, manifest: str, folder: Path, network: Network | None = None
) -> AbstractContextManager[list[Host]]:
    arguments = ["training.train", *train_arguments(store, run, manifest)]
    return a_slice(folder, arguments, network)


@contextmanager
def a_slice(
    folder: Path, arguments: list[str], network: Network | None = None
) -> Iterator[list[Host]]:
    """Start a job on all hosts, as their agents do; what still runs in the end is killed.

    :param arguments: the module, and its command line.
    """
    network = network or loopback()
    folders = [folder / str(index) for index in range(HOSTS)]
    for own in folders:
        own.mkdir(parents=True)
    hosts: list[Host] = []
    try:
        for index, (own, others) in enumerate(zip(folders, reversed(folders), strict=True)):
            # In place of the folder of the other host's temporary files it has an empty one.
            mount = ["unshare", "--mount", "sh", "-c", MOUNT, str(others)]
            command = [sys.executable, "-m", "tests.training.slice_host", *arguments]
            hidden = [*(mount if os.geteuid() == 0 else []), *command]
            hosts.append(start_host(index, network, own, hidden, {"TMPDIR": str(own)}))
        yield hosts
    finally:
        for host in hosts:
            host.process.kill()
            host.process.wait()


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
    with training_of(store, run, manifest, folder / "hosts") as hosts:
        assert [host.wait(PATIENCE * 3) for host in hosts] == [0] * HOSTS, hosts[0].output
    return Twin(store, manifest, alone, run)


@pytest.mark.thorough
def test_a_slice_has_the_losses_and_weights_of_one_machine(twin: Twin) -> None:
    alone, both = losses(twin.alone), losses(twin.driven)
    assert len(alone) == STEPS
    assert alone[-1] < alone[0] - 1.0, "nothing was learned"
    assert both == pytest.approx(alone, rel=LOSS_TOLERANCE)
    assert result(twin.driven).tokens == result(twin.alone).tokens
    difference = largest_difference(weights(twin.alone), weights(twin.driven))
    print(f"weights: {difference:.1e}")
    assert difference < WEIGHT_TOLERANCE


@pytest.mark.thorough
def test_a_slice_leaves_the_events_of_one_machine(twin: Twin) -> None:
    alone, both = (
        EventAccumulator(run.training.events).Reload() for run in (twin.alone, twin.driven)
    )
    # A TPU's peak is known, a CPU's is not.
    assert set(both.Tags()["tensors"]) == {*alone.Tags()["tensors"], "mfu"}
    for tag in alone.Tags()["tensors"]:
        steps = [event.step for event in alone.Tensors(tag)]
        assert [event.step for event in both.Tensors(tag)] == steps, tag


@pytest.mark.thorough
def test_a_slice_scores_held_out_rows_as_one_machine_does(twin: Twin) -> None:
    assert len(held_out(twin.alone)) == STEPS // INTERVAL
    assert held_out(twin.driven) == pytest.approx(held_out(twin.alone), rel=LOSS_TOLERANCE)


@pytest.mark.thorough
def test_a_lost_host_is_named_and_the_next_slice_goes_on_where_it_was(
    twin: Twin, tmp_path: Path
) -> None:
    # Long enough not to be done when the host is lost.
    alone = twin.store.run("long", settings(training__train_steps=LONG))
    assert train(twin.store, alone, twin.manifest) == 0
    run = twin.store.run("lost", driven(training__train_steps=LONG))
    with training_of(twin.store, run, twin.manifest, tmp_path / "first") as hosts:
        wait_for_checkpoint(run, hosts)
        hosts[1].process.send_signal(signal.SIGKILL)
        # Bounded: it neither hangs nor goes on with half of the chips.
        assert hosts[0].wait(PATIENCE) == ExitKind.KILLED.exit_code
    [line] = [line for line in hosts[0].output.splitlines() if " killed: " in line]
    assert " killed: worker 1 (localhost:" in line
    assert ") was lost, and worker 0 (localhost:" in line
    # With the reason, whichever of the broken connections was noticed first.
    assert re.search(r"cannot go on alone: \S+.* Start all machines again", line)
    assert "root error" not in line
    saved = committed_steps(run)[-1]
    assert INTERVAL <= saved < LONG

    with training_of(twin.store, run, twin.manifest, tmp_path / "second") as hosts:
        assert [host.wait(PATIENCE * 3) for host in hosts] == [0] * HOSTS, hosts[0].output
    assert result(run).resumed_from == [saved]
    # Not bit for bit: two uninterrupted trainings of these stand-ins differ by rounding, too.
    assert result(run).final_loss == pytest.approx(result(alone).final_loss, rel=LONG_TOLERANCE)


@pytest.mark.slow
def test_a_lost_driver_lets_the_others_end_and_a_finished_run_needs_none(
    twin: Twin, tmp_path: Path
) -> None:
    run = twin.store.run("driver", driven(training__train_steps=2000))
    with training_of(twin.store, run, twin.manifest, tmp_path / "first") as hosts:
        wait_for_checkpoint(run, hosts)
        hosts[0].process.send_signal(signal.SIGKILL)
        assert hosts[1].wait(PATIENCE) == ExitKind.KILLED.exit_code
    assert "killed: worker 0 (localhost:" in hosts[1].output
    assert "ended before its job was done" in hosts[1].output

    with training_of(twin.store, twin.driven, twin.manifest, tmp_path / "done") as hosts:
        assert [host.wait(PATIENCE) for host in hosts] == [0] * HOSTS
    assert "trained already" in hosts[0].output


def test_a_host_that_does_not_lend_its_chips_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slices, "PATIENCE", -1000.0)
    monkeypatch.setattr(slices.subprocess, "Popen", lambda command, env: None)
    address, other = loopback().addresses
    with pytest.raises(UserError, match=rf"worker 0 \({address}\) does not lend its chips"):
        slices.join(Cluster((address, other)), TpuConfig(accelerator_type="v5litepod-16"))


@pytest.mark.slow
def test_a_slice_over_a_network_has_the_losses_of_one_machine(twin: Twin, tmp_path: Path) -> None:
    # On one machine every process reaches every other; here the driver's own address does not
    # lead from the other host to the driver, as on a slice.
    run = twin.store.run("network", driven())
    with (
        namespaces() as network,
        training_of(twin.store, run, twin.manifest, tmp_path / "hosts", network) as hosts,
    ):
        assert [host.wait(PATIENCE * 3) for host in hosts] == [0] * HOSTS, hosts[0].output
    assert losses(run) == pytest.approx(losses(twin.alone), rel=LOSS_TOLERANCE)
    assert held_out(run) == pytest.approx(held_out(twin.alone), rel=LOSS_TOLERANCE)


@pytest.mark.slow
def test_a_slice_evaluates_as_one_machine_does(twin: Twin, tmp_path: Path) -> None:
    reports = []
    for name, run in (("alone", twin.alone), ("driven", twin.driven)):
        words = ["--store", twin.store.layout.root, "--config", run.config]
        words += ["--current-set", "2026-01-01", "--set", f"2026-01-01={twin.manifest}"]
        words += ["--model", f"candidate={twin.alone.training.root}"]
        words += ["--output", str(tmp_path / f"{name}.json")]
        if run is twin.alone:
            assert evaluate.main(words) == 0
        else:
            with a_slice(tmp_path / "hosts", ["training.evaluate", *words]) as hosts:
                codes = [host.wait(PATIENCE * 3) for host in hosts]
            assert codes == [0] * HOSTS, hosts[0].output
        reports.append(EvaluationReport.load(words[-1]))
    alone, driven_ = (report.models[0].sets[0] for report in reports)
    assert driven_.loss_sums == pytest.approx(alone.loss_sums, rel=LOSS_TOLERANCE)
    assert driven_.token_counts == alone.token_counts
