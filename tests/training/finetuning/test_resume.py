"""Killed at random moments, a fine-tuning ends as if nothing had happened, bit for bit."""

from __future__ import annotations

import os
import random
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.training.corpora import TinyStore
from tests.training.finetuning.runs import TASK, finetune, results, words, write_run
from tests.training.finetuning.tasks import write_task
from tests.training.jobs import PREEMPTED, ROOT

SEED = int(os.environ.get("INTERRUPTIONS_SEED") or secrets.randbelow(1_000_000))
KINDS = (signal.SIGTERM, signal.SIGKILL, signal.SIGTERM, signal.SIGKILL, signal.SIGTERM)


@pytest.mark.slow
@pytest.mark.timeout(1800)  # seven processes that import TensorFlow
@pytest.mark.parametrize("frozen", [False, True])
def test_five_interruptions_do_not_change_the_weights(
    pretrained: tuple[TinyStore, str], tmp_path: Path, *, frozen: bool
) -> None:
    store, model = pretrained
    choice = random.Random(SEED)
    name = f"{TASK}-frozen-{str(frozen).lower()}"
    settings: dict[str, Any] = {
        "manifest_uri": write_task(store, name),
        "model": model,
        "seeds": (SEED, SEED + 1),
        "num_train_epochs": 50.0,
        "frozen_encoder": frozen,
    }
    straight = write_run(store, f"{name}-straight", **settings)
    assert finetune(store, straight) == 0
    run = write_run(store, f"{name}-interrupted", **settings)
    for number, kind in enumerate(KINDS):
        progress = tmp_path / str(number)
        command = [sys.executable, "-m", "training.finetune", *words(store, run)]
        environment = os.environ | {"REPRETRAIN_PROGRESS_FILE": str(progress)}
        with subprocess.Popen(command, cwd=ROOT, env=environment) as trainer:
            while not progress.exists():
                assert trainer.poll() is None
                time.sleep(0.01)
            time.sleep(choice.uniform(0, 0.5))
            trainer.send_signal(kind)
            code = trainer.wait()
        assert code == (PREEMPTED if kind is signal.SIGTERM else -signal.SIGKILL)
    assert finetune(store, run) == 0
    found = [(result.weights_sha256, result.train_steps) for result in results(run)]
    expected = [(result.weights_sha256, result.train_steps) for result in results(straight)]
    assert found == expected, f"INTERRUPTIONS_SEED={SEED}"
    assert sum(len(result.resumed_from) for result in results(run)) >= 3
