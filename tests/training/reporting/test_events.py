"""TensorBoard reads event files in the order in which they were published."""

from __future__ import annotations

from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from training.reporting.events import EventFiles


def test_files_of_one_second_are_read_in_order(tmp_path: Path) -> None:
    events = EventFiles(str(tmp_path))
    # More than ten: TensorFlow numbers the files of a process, without leading zeros.
    for step in range(12):
        events.add(step, {"loss": float(step)})
        events.publish()
    assert len(list(tmp_path.iterdir())) == 12
    read = EventAccumulator(str(tmp_path), size_guidance={"tensors": 0}).Reload()
    assert [event.step for event in read.Tensors("loss")] == list(range(12))
