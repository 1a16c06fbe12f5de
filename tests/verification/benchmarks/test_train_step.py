"""What is measured is what trains, and what the compile check compiles."""

from __future__ import annotations

from pathlib import Path

import pytest
import tensorflow as tf

from preflight.compiled.programs import program_id
from tests.training.corpora import TinyStore, tiny_config
from training.loop import step
from verification.benchmarks.train import shapes
from verification.benchmarks.train.sides import ours
from verification.tpu_compile_check.export import export, step_hlo
from verification.tpu_compile_check.lint import fingerprint
from verification.tpu_compile_check.steps import Step

ROWS = 4


@pytest.mark.thorough
def test_the_measured_step_is_the_exported_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny_config(training__global_batch_size=ROWS)
    store = TinyStore.create(tmp_path / shapes.STORE).using(config)
    (tmp_path / shapes.MANIFEST).write_text(store.partition("2026-01-01"))
    made = []
    real = step.make_replica_step

    def recording(*arguments: object) -> object:
        made.append(real(*arguments))
        return made[-1]

    monkeypatch.setattr(step, "make_replica_step", recording)
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    loop, _ = ours.train_loop(strategy, config)
    batches = ours.batches(strategy, config, tmp_path)
    (batch,) = next(batches)
    (measured,) = made

    exported = export(config, program_id(config, ROWS)).hlo
    assert fingerprint(step_hlo(Step(measured, (batch,)))) == fingerprint(exported)
    # And it is that step which the loop runs.
    metrics = loop(batches, tf.constant(2))
    assert float(metrics.masked_tokens) > 0
