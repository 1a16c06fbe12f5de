"""Real signals to a real trainer process: the weights come out as if nothing had happened."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.training.corpora import TinyStore, tiny_config
from tests.training.jobs import (
    PREEMPTED,
    committed_steps,
    result,
    start_trainer,
    train,
    wait_for_step,
)


@pytest.mark.parametrize("dynamic", [False, True])
def test_sigterm_and_sigkill_do_not_change_the_weights(
    tiny: TinyStore, tmp_path: Path, dynamic: bool
) -> None:
    config = tiny_config(
        masking__dynamic=dynamic,
        training__train_steps=600,
        training__checkpoint_interval=20,
        training__steps_per_loop=5,
        model__hidden_dropout_prob=0.1,
    )
    tiny = tiny.using(config)
    manifests = [tiny.partition("2026-01-01"), tiny.partition("2026-01-02")]
    straight, interrupted = tiny.run("straight", config), tiny.run("interrupted", config)

    with start_trainer(tiny, interrupted, tmp_path / "first", *manifests) as trainer:
        wait_for_step(trainer, tmp_path / "first", 25)
        trainer.send_signal(signal.SIGTERM)
        output = trainer.communicate()[0]
    assert trainer.returncode == PREEMPTED, output
    stopped_at = committed_steps(interrupted)[-1]
    assert 25 <= stopped_at < 600
    assert f"stopped at step {stopped_at} of 600, which is saved" in output

    with start_trainer(tiny, interrupted, tmp_path / "second", *manifests) as trainer:
        wait_for_step(trainer, tmp_path / "second", stopped_at + 45)
        trainer.kill()
        trainer.communicate()
    assert trainer.returncode == -signal.SIGKILL
    killed_at = committed_steps(interrupted)[-1]
    assert stopped_at < killed_at < 600

    assert train(tiny, straight, *manifests) == 0
    assert train(tiny, interrupted, *manifests) == 0
    assert result(interrupted).resumed_from == [stopped_at, killed_at]
    assert result(interrupted).weights_sha256 == result(straight).weights_sha256
