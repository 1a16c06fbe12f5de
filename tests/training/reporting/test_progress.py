"""What people and programs see of a running training."""

from __future__ import annotations

import logging
import math
from datetime import UTC, datetime
from pathlib import Path

import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from pipeline_store.formats import HeldOutScore, Progress, Rollback
from pipeline_store.layout import TrainingLayout
from tests.training.corpora import tiny_config
from trained_models import metric_files
from trained_models.architectures.architecture import step_flops
from trained_models.phases import phases
from training.reporting.progress import LoopReport, Reporter
from training.runtime.device_memory import device_memory

# A slice is never touched here: its name alone decides what its peak is.
ON_TPU = tiny_config(
    training__distribution_strategy="tpu",
    training__global_batch_size=4096,
    model__hidden_size=1024,
    model__num_hidden_layers=24,
    model__intermediate_size=4096,
    tpu__accelerator_type="v5litepod-8",
)
LOOP = LoopReport(
    step=10,
    steps=2,
    loss=4.5,
    learning_rate=1e-3,
    gradient_norm=0.75,
    tokens=300,
    flops=2 * step_flops(ON_TPU, phases(ON_TPU)[0]),
    seconds=0.5,
    input_wait_seconds=0.125,
)
SCORE = HeldOutScore(loss=4.25, accuracy=0.3, masked_tokens=77)


@pytest.fixture
def layout(tmp_path: Path) -> TrainingLayout:
    return TrainingLayout(str(tmp_path / "training"))


def shown(layout: TrainingLayout) -> dict[str, list[tuple[int, float]]]:
    """Return what TensorBoard shows: step and value by name."""
    events = EventAccumulator(layout.events).Reload()
    return {
        tag: [(e.step, float(tf.make_ndarray(e.tensor_proto))) for e in events.Tensors(tag)]
        for tag in events.Tags()["tensors"]
    }


def test_a_loop_is_one_line_with_speed_and_eta(
    layout: TrainingLayout, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="training")
    reporter = Reporter(ON_TPU, layout, 8)
    reporter.loop(LOOP)
    (phase,) = phases(ON_TPU)
    flops = step_flops(ON_TPU, phase) * 2 / 0.5
    speed = f"{flops / 1e12:.3g} TFLOP/s (MFU {flops / (8 * 197e12):.1%})"
    (line,) = caplog.messages
    assert line == (
        "step 10/12  loss 4.5000  learning rate 1.00e-03  600 tokens/s  "
        f"{speed}  input wait 25.0%  ETA 0:00:00"
    )


def test_tensorboard_and_metrics_have_the_same_numbers(layout: TrainingLayout) -> None:
    reporter = Reporter(ON_TPU, layout, 8)
    reporter.loop(LOOP)
    reporter.held_out(10, SCORE)
    reporter.publish()
    start, loop, held_out = metric_files.read(layout.metrics)
    assert (start["step"], start["peak_flops_per_second"]) == (8, 8 * 197e12)
    assert 0.3 < loop["mfu"] < 0.31
    expected = {
        "loss": 4.5,
        "learning_rate": 1e-3,
        "gradient_norm": 0.75,
        "tokens_per_second": 600.0,
        "steps_per_second": 4.0,
        "input_wait_fraction": 0.25,
        "model_tflops_per_second": pytest.approx(loop["mfu"] * 8 * 197),
        "mfu": loop["mfu"],
    }
    assert {name: loop[name] for name in expected} == expected
    assert (loop["steps"], loop["tokens"], loop["seconds"]) == (2, 300, 0.5)
    expected |= {"held_out_loss": 4.25, "held_out_accuracy": 0.3}
    expected["held_out_perplexity"] = math.exp(4.25)
    expected["model_tflops_per_second"] = loop["model_tflops_per_second"]
    assert shown(layout) == {name: [(10, pytest.approx(value))] for name, value in expected.items()}
    assert (held_out["step"], held_out["loss"], held_out["masked_tokens"]) == (10, 4.25, 77)


def test_rollback_is_said_and_kept(
    layout: TrainingLayout, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="training")
    reporter = Reporter(ON_TPU, layout, 8)
    reporter.rollback(Rollback(from_step=10, to_step=8, reason="loss 9.0 after 4.5"))
    reporter.checkpoint(12)
    assert caplog.messages == [
        "back from step 10 to checkpoint 8: loss 9.0 after 4.5",
        "checkpoint 12 committed",
    ]
    _, rollback, _ = metric_files.read(layout.metrics)
    assert (rollback["step"], rollback["from_step"]) == (8, 10)
    assert rollback["reason"] == "loss 9.0 after 4.5"
    assert shown(layout) == {"rolled_back_steps": [(10, 2)]}


def test_heartbeat_has_the_last_held_out_loss(
    layout: TrainingLayout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "progress.json"
    monkeypatch.setenv("REPRETRAIN_PROGRESS_FILE", str(path))
    reporter = Reporter(ON_TPU, layout, 8)
    reporter.loop(LOOP)
    assert Progress.model_validate_json(path.read_text()).held_out_loss is None
    reporter.held_out(10, SCORE)
    reporter.checkpoint(10)
    reporter.loop(LOOP._replace(step=12))
    progress = Progress.model_validate_json(path.read_text())
    assert (progress.step, progress.held_out_loss, progress.checkpoint_step) == (12, 4.25, 10)


def test_a_process_tells_the_time_it_spent_in_steps(
    layout: TrainingLayout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "progress.json"
    monkeypatch.setenv("REPRETRAIN_PROGRESS_FILE", str(path))
    begin = datetime.now(UTC)
    reporter = Reporter(ON_TPU, layout, 8)
    reporter.loop(LOOP)
    first = Progress.model_validate_json(path.read_text())
    assert first.first_step is not None
    assert begin <= first.first_step <= datetime.now(UTC)
    assert first.stepping_seconds == 0.5
    reporter.loop(LOOP._replace(step=12, seconds=0.25))
    second = Progress.model_validate_json(path.read_text())
    assert (second.first_step, second.stepping_seconds) == (first.first_step, 0.75)
    Reporter(ON_TPU, layout, 12).loop(LOOP)
    resumed = Progress.model_validate_json(path.read_text())
    assert resumed.first_step is not None
    assert resumed.first_step >= first.first_step
    assert resumed.stepping_seconds == 0.5


def test_nothing_is_invented_about_a_cpu(
    layout: TrainingLayout, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="training")
    assert device_memory() is None
    reporter = Reporter(tiny_config(), layout, 8)
    reporter.loop(LOOP)
    reporter.publish()
    assert "model_tflops_per_second" in shown(layout)
    assert not {"mfu", "memory_bytes", "peak_memory_bytes"} & shown(layout).keys()
    assert "MFU" not in caplog.text
