"""Two hosts with networks of their own, and what only shows there or takes long."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline_config import PipelineConfig, load_preset, with_overrides
from pipeline_store.formats import ExitKind
from tests.training.corpora import VOCABULARY_SIZE, TinyStore
from tests.training.hosts import (
    HOSTS,
    PATIENCE,
    Network,
    largest_difference,
    loopback,
    losses,
    namespaces,
    running,
    train_together,
    wait_for_checkpoint,
    weights,
)
from tests.training.jobs import committed_steps, result, train
from tests.training.runtime.test_workers import LOSS_TOLERANCE, WEIGHT_TOLERANCE, settings, together

pytestmark = pytest.mark.slow

SMOKE_STEPS = 60


@pytest.fixture
def network() -> Iterator[Network]:
    # For each test its own: hosts that were cut off stay so, and others would wait for them.
    with namespaces() as hosts:
        yield hosts


def test_hosts_of_two_networks_train_as_one_and_resume_after_one_has_vanished(
    tiny: TinyStore, tmp_path: Path, network: Network
) -> None:
    manifest = tiny.partition("2026-01-01")
    alone = tiny.run("alone", settings())
    assert train(tiny, alone, manifest) == 0
    both = tiny.run("both", together())
    train_together(tiny, both, manifest, tmp_path / "both", network)
    assert losses(both) == pytest.approx(losses(alone), rel=LOSS_TOLERANCE)
    assert largest_difference(weights(alone), weights(both)) < WEIGHT_TOLERANCE

    # Endless, so that it does not end before it is cut off; what it saved is what counts.
    endless = together(training__train_steps=1_000_000, training__steps_per_loop=5)
    cut = tiny.run("cut", endless)
    with running(tiny, cut, manifest, tmp_path / "cut", network) as hosts:
        wait_for_checkpoint(cut, hosts)
        network.cut_off(1)
        # No connection was closed: only the silence tells. Each has lost the other.
        assert [host.wait(PATIENCE) for host in hosts] == [ExitKind.KILLED.exit_code] * HOSTS
    assert "killed: worker 1 (10.77.0.2:2222) was lost" in hosts[0].output
    assert "killed: worker 0 (10.77.0.1:2222) was lost" in hosts[1].output
    assert committed_steps(cut)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_the_death_of_the_first_host_stops_the_other_too(
    tiny: TinyStore, tmp_path: Path, number: signal.Signals
) -> None:
    manifest = tiny.partition("2026-01-01")
    run = tiny.run("run", together(training__train_steps=1_000_000, training__steps_per_loop=5))
    with running(tiny, run, manifest, tmp_path / "hosts", loopback()) as hosts:
        wait_for_checkpoint(run, hosts)
        hosts[0].process.send_signal(number)
        assert hosts[1].wait(PATIENCE) == ExitKind.KILLED.exit_code
    assert "killed: worker 0 (localhost:" in hosts[1].output


def smoke(**more: object) -> PipelineConfig:
    changes = {
        "vocabulary.size": VOCABULARY_SIZE,
        "training.train_steps": SMOKE_STEPS,
        "training.steps_per_loop": 1,
        "training.checkpoint_interval": SMOKE_STEPS // 2,
        "evaluation.rows_per_checkpoint": 0,
    }
    return with_overrides(load_preset("smoke"), changes | more)


def test_two_hosts_train_the_smoke_model_to_the_loss_of_one(
    tmp_path: Path, network: Network
) -> None:
    store = TinyStore.create(tmp_path / "store", smoke())
    manifest = store.partition("2026-01-01", documents=100)
    alone = store.run("alone", smoke())
    joined = {"training.distribution_strategy": "multi_worker_mirrored"}
    both = store.run("both", smoke(**joined))
    assert train(store, alone, manifest) == 0
    train_together(store, both, manifest, tmp_path / "hosts", network)
    one, two = losses(alone), losses(both)
    assert len(one) == SMOKE_STEPS
    assert two == pytest.approx(one, rel=LOSS_TOLERANCE)
    difference = largest_difference(weights(alone), weights(both))
    print(
        f"losses from {one[0]:.3f} to {one[-1]:.3f}, apart by at most "
        f"{max(abs(b / a - 1) for a, b in zip(one, two, strict=True)):.1e} (relative); weights by "
        f"{difference:.1e}"
    )
    assert difference < WEIGHT_TOLERANCE
    assert result(both).tokens == result(alone).tokens
