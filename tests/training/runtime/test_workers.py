"""Two machines train one model: processes on this one, joined as TF_CONFIG says."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
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
    running,
    train_together,
    weights,
)
from tests.training.jobs import PREEMPTED, committed_steps, result, train, wait_for_step
from training.input.records import RecordReader

STEPS, BATCH, INTERVAL = 30, 8, 10
# Both are the sum of the same numbers, added up in another order: float32 rounds at 6e-8 of a
# number, and Adam divides by the root of a moment that begins near zero.
LOSS_TOLERANCE = 1e-5
WEIGHT_TOLERANCE = 1e-4


def settings(**more: object) -> PipelineConfig:
    sizes = {
        "training__train_steps": STEPS,
        "training__steps_per_loop": 1,
        "training__checkpoint_interval": INTERVAL,
        "training__global_batch_size": BATCH,
    }
    return tiny_config(**sizes | more)


def together(**more: object) -> PipelineConfig:
    return settings(training__distribution_strategy="multi_worker_mirrored", **more)


@dataclass(frozen=True)
class Twin:
    """The same training on one host and on two, uninterrupted."""

    store: TinyStore
    manifest: str
    alone: RunLayout
    read_alone: list[int]
    both: RunLayout
    hosts: list[Host]


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Twin:
    folder = tmp_path_factory.mktemp("twin")
    store = TinyStore.create(folder / "store")
    manifest = store.partition("2026-01-01")
    alone, both = store.run("alone", settings()), store.run("both", together())
    numbers: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        read = RecordReader.read

        def noting_read(reader: RecordReader, wanted: npt.NDArray[np.int64]) -> list[bytes]:
            numbers.extend(wanted.tolist())
            return read(reader, wanted)

        patch.setattr(RecordReader, "read", noting_read)
        assert train(store, alone, manifest) == 0
    hosts = train_together(store, both, manifest, folder / "hosts", loopback())
    return Twin(store, manifest, alone, numbers, both, hosts)


@pytest.mark.thorough
def test_two_hosts_have_the_losses_of_one_at_every_step(twin: Twin) -> None:
    alone, both = losses(twin.alone), losses(twin.both)
    assert len(alone) == STEPS
    assert alone[-1] < alone[0] - 1.0, "nothing was learned"
    assert both == pytest.approx(alone, rel=LOSS_TOLERANCE)
    print(f"losses: {max(abs(b / a - 1) for a, b in zip(alone, both, strict=True)):.1e}")
    assert result(twin.both).tokens == result(twin.alone).tokens


@pytest.mark.thorough
def test_two_hosts_end_with_the_weights_of_one(twin: Twin) -> None:
    difference = largest_difference(weights(twin.alone), weights(twin.both))
    print(f"weights: {difference:.1e}")
    assert difference < WEIGHT_TOLERANCE
    sha256 = result(twin.both).weights_sha256
    # Both have said that they have the weights that are in the result.
    assert [sha256[:16] in host.output for host in twin.hosts] == [True] * HOSTS


@pytest.mark.thorough
def test_each_row_is_read_by_exactly_one_host(twin: Twin) -> None:
    # Before that it has looked at the first record of each of the two files.
    shares = [host.notes.of("read")[1:] for host in twin.hosts]
    assert [len(share) for share in shares] == [STEPS] * HOSTS
    assert {len(rows) for share in shares for rows in share} == {BATCH // HOSTS}
    # Host 0 has the first half of each batch of the one host, host 1 the second.
    joined = [number for step in zip(*shares, strict=True) for rows in step for number in rows]
    assert joined == twin.read_alone[2:]
    assert len(joined) == STEPS * BATCH


@pytest.mark.thorough
def test_the_first_host_alone_writes_checkpoints_each_once(twin: Twin) -> None:
    uploads = [
        [uri for uri in host.notes.of("upload") if uri.startswith(twin.both.root)]
        for host in twin.hosts
    ]
    weights_files = [uri for uri in uploads[0] if uri.endswith("/weights.index")]
    assert len(weights_files) == STEPS // INTERVAL
    assert len(set(uploads[0])) == len(uploads[0])
    assert uploads[1] == []
    assert committed_steps(twin.both) == committed_steps(twin.alone)


@pytest.mark.thorough
def test_a_killed_host_stops_the_other_which_names_it_and_both_resume_to_the_same_weights(
    twin: Twin, tmp_path: Path
) -> None:
    run = twin.store.run("killed", together())
    # It reads some batches ahead; the checkpoint of step 10 is there by then, that of 20 may be.
    dies = (1, 2 * INTERVAL + 6)
    first = (twin.store, run, twin.manifest, tmp_path / "first", loopback())
    with running(*first, dies=dies) as hosts:
        assert hosts[1].wait(PATIENCE) == -signal.SIGKILL
        # Bounded: it neither hangs nor goes on alone.
        assert hosts[0].wait(PATIENCE) == ExitKind.KILLED.exit_code
    assert "killed: worker 1 (localhost:" in hosts[0].output
    assert ") was lost, and worker 0 (localhost:" in hosts[0].output
    saved = committed_steps(run)[-1]
    assert saved in (INTERVAL, 2 * INTERVAL)

    train_together(twin.store, run, twin.manifest, tmp_path / "second", loopback())
    assert result(run).resumed_from == [saved]
    assert result(run).weights_sha256 == result(twin.both).weights_sha256


@pytest.mark.thorough
def test_sigterm_to_one_host_stops_both_with_a_checkpoint(twin: Twin, tmp_path: Path) -> None:
    config = together(
        training__train_steps=2000,
        training__steps_per_loop=5,
        training__checkpoint_interval=500,
        evaluation__rows_per_checkpoint=16,
    )
    run = twin.store.run("sigterm", config)
    arguments = (twin.store, run, twin.manifest, tmp_path / "hosts", loopback())
    with running(*arguments) as hosts:
        wait_for_step(hosts[0].process, hosts[0].progress, 25)
        # Not the one that saves.
        hosts[1].process.send_signal(signal.SIGTERM)
        assert [host.wait(PATIENCE) for host in hosts] == [PREEMPTED] * HOSTS
    stopped_at = committed_steps(run)[-1]
    assert 25 <= stopped_at < 2000
    text = f"stopped at step {stopped_at} of 2000, which is saved"
    assert [text in host.output for host in hosts] == [True] * HOSTS
