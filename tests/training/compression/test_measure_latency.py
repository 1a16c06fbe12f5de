"""A written model is timed by a command of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf


@pytest.mark.thorough
def test_a_model_is_timed_on_one_thread(tmp_path: Path) -> None:
    names = ("input_word_ids", "input_mask", "input_type_ids")
    signature = [tf.TensorSpec([None, None], tf.int32, name=name) for name in names]

    def logits(words: tf.Tensor, mask: tf.Tensor, types: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"logits": tf.cast(words * mask + types, tf.float32)}

    function = tf.function(logits, input_signature=signature)
    module = tf.Module()
    module.function = function
    signatures = {"logits": function, "serving_default": function}
    tf.saved_model.save(module, str(tmp_path / "model"), signatures=signatures)
    command = [sys.executable, "-m", "training.measure_latency", "--rows", "5", "--length", "7"]
    done = subprocess.run(
        [*command, "--model", str(tmp_path / "model")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert 0 < found["p50_ms"] <= found["p95_ms"]
    assert (found["rows"], found["length"]) == (5, 7)
    done = subprocess.run(
        [*command, "--model", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 40
    assert "cannot be run" in done.stderr
