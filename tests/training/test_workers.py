"""Two machines train one model: processes on this one, joined as TF_CONFIG says."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from pipeline_store.layout import RunLayout
from tests.training.corpora import TinyStore, tiny_config
from tests.training.jobs import (
    PREEMPTED,
    committed_steps,
    result,
    start_trainer,
    train,
    wait_for_step,
)

WORKERS = 2


def free_ports(count: int) -> list[int]:
    """Return ports that nothing listens on now."""
    sockets = [socket.create_server(("localhost", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def start_workers(
    store: TinyStore, run: RunLayout, manifest: str, folder: Path
) -> list[subprocess.Popen[str]]:
    """Start the trainer on each "machine"; worker n reports its progress to ``<folder>/<n>``."""
    folder.mkdir()
    cluster = {"worker": [f"localhost:{port}" for port in free_ports(WORKERS)]}
    return [
        start_trainer(
            store,
            run,
            folder / str(number),
            manifest,
            TF_CONFIG=json.dumps({"cluster": cluster, "task": {"type": "worker", "index": number}}),
        )
        for number in range(WORKERS)
    ]


def test_two_machines_train_as_one_and_stop_and_resume_together(
    tiny: TinyStore, tmp_path: Path
) -> None:
    sizes = {
        "training__train_steps": 300,
        "training__steps_per_loop": 5,
        "training__checkpoint_interval": 20,
        "evaluation__rows_per_checkpoint": 16,
    }
    config = tiny_config(training__distribution_strategy="multi_worker_mirrored", **sizes)
    manifest = tiny.partition("2026-01-01")
    alone, run = tiny.run("alone", tiny_config(**sizes)), tiny.run("together", config)

    workers = start_workers(tiny, run, manifest, tmp_path / "first")
    wait_for_step(workers[0], tmp_path / "first" / "0", 25)
    # Not the one that saves.
    workers[1].send_signal(signal.SIGTERM)
    outputs = [worker.communicate()[0] for worker in workers]
    assert [worker.returncode for worker in workers] == [PREEMPTED] * WORKERS, outputs
    stopped_at = committed_steps(run)[-1]
    assert 25 <= stopped_at < 300
    assert all(f"stopped at step {stopped_at} of 300, which is saved" in text for text in outputs)

    workers = start_workers(tiny, run, manifest, tmp_path / "second")
    outputs = [worker.communicate()[0] for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * WORKERS, outputs
    together = result(run)
    assert all(together.weights_sha256[:16] in text for text in outputs)
    assert together.resumed_from == [stopped_at]

    assert train(tiny, alone, manifest) == 0
    assert together.tokens == result(alone).tokens
    # Float32 sums in another order, 300 steps long.
    assert together.final_loss == pytest.approx(result(alone).final_loss, rel=1e-3)
