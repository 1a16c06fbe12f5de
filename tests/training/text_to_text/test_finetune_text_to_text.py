"""A T5 model is fine-tuned by one command, scored, and the same whatever interrupts it."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tf_keras.optimizers.legacy import SGD

from pipeline_store.formats import TrainingResult
from tests.training.text_to_text.models import random_model, random_rows, write_model
from tests.training.text_to_text.vocabularies import WORDS
from trained_models.errors import PreemptedError
from trained_models.phases import Phase
from trained_models.text_to_text.sizes import PAD, SOURCE, TARGET
from training import finetune_text_to_text
from training.runtime.job import StopRequest
from training.text_to_text.mixture import Mixture
from training.text_to_text.objective import make_replica_step
from training.text_to_text.setup import RunFolder

CONFIG = """
init_checkpoint = "t5"
max_source_length = 24
max_target_length = 16
num_train_epochs = 2.0
global_batch_size = 8
eval_batch_size = 16
learning_rate = 1e-3
steps_per_loop = 2
weight_decay_rate = 0.01
num_beams = 2

[[tasks]]
name = "color"
target = "label"
train = "color.csv"

[[tasks]]
name = "swap"
prefix = "swap: "
train = "swap.jsonl"
test_fraction = 0.2
weight = 2.0
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a model, two tasks and their configuration."""
    write_model(tmp_path / "t5", "1.1")
    random = np.random.default_rng(4)
    rows = [f"{random.choice(WORDS[:5])} {' '.join(random.choice(WORDS, 3))}" for _ in range(48)]
    lines = ["text,target", *(f"{row},{row.split()[0]}" for row in rows)]
    (tmp_path / "color.csv").write_text("\n".join(lines) + "\n")
    objects = [{"text": row, "target": " ".join(reversed(row.split()))} for row in rows]
    (tmp_path / "swap.jsonl").write_text("".join(json.dumps(one) + "\n" for one in objects))
    (tmp_path / "tune.toml").write_text(CONFIG)
    return tmp_path


class StopAt(StopRequest):
    """Asks to stop when it is asked for the n-th time."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._left = number

    @property
    def requested(self) -> bool:
        self._left -= 1
        return self._left < 0


def tune(folder: Path, run: str, stop: StopRequest) -> RunFolder:
    layout = RunFolder(str(folder / run))
    arguments = Namespace(config=str(folder / "tune.toml"), run=layout.root, check=False)
    finetune_text_to_text._finetune(arguments, stop)
    return layout


@pytest.mark.thorough
def test_an_interrupted_training_comes_out_bit_for_bit(folder: Path) -> None:
    whole = tune(folder, "whole", StopAt(10_000))
    for number in (2, 3):
        with pytest.raises(PreemptedError):
            tune(folder, "cut", StopAt(number))
    cut = tune(folder, "cut", StopAt(10_000))
    results = [TrainingResult.load(layout.training.result) for layout in (whole, cut)]
    assert results[0].weights_sha256 == results[1].weights_sha256
    assert len(results[1].resumed_from) == 2
    assert Path(whole.scores).read_text() == Path(cut.scores).read_text()
    for name in ("color-test", "swap-test", "swap-validation"):
        files = [Path(layout.root, f"predictions/{name}.jsonl") for layout in (whole, cut)]
        assert files[0].read_bytes() == files[1].read_bytes()

    scores: dict[str, Any] = json.loads(Path(whole.scores).read_text())
    assert set(scores["tasks"]["color"]["test"]["metrics"]) == {
        *("accuracy", "macro_f1", "invalid_share")
    }
    assert set(scores["tasks"]["swap"]["test"]["metrics"]) == {"exact_match", "rouge_l", "bleu"}
    before = Path(whole.scores).stat().st_mtime_ns
    tune(folder, "whole", StopAt(0))
    assert Path(whole.scores).stat().st_mtime_ns == before


def test_the_check_writes_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--config", str(folder / "tune.toml"), "--run", str(folder / "run"), "--check"]
    assert finetune_text_to_text.main(words) == 0
    assert "Checked: nothing was written." in capsys.readouterr().out
    assert not (folder / "run").exists()
    assert finetune_text_to_text.main(["--config", str(folder / "no.toml"), *words[2:]]) == 40


def test_pads_count_nothing_in_the_loss() -> None:
    model = random_model("1.0")
    step = make_replica_step(model, SGD(0.0), 1.0)
    source, target = random_rows(4, 6), random_rows(4, 5)
    wide = {
        SOURCE: np.pad(source, [[0, 0], [0, 3]], constant_values=PAD),
        TARGET: np.pad(target, [[0, 0], [0, 4]], constant_values=PAD),
    }
    first, second = (
        step({name: tf.constant(ids) for name, ids in batch.items()})
        for batch in ({SOURCE: source, TARGET: target}, wide)
    )
    assert float(first.target_tokens) == float(second.target_tokens) == (target != 0).sum()
    assert int(first.tokens) == (target != 0).sum() + (source != 0).sum()
    np.testing.assert_allclose(float(first.loss_sum), float(second.loss_sum), rtol=1e-5)
    np.testing.assert_allclose(float(first.gradient_norm), float(second.gradient_norm), rtol=1e-4)


def test_tasks_have_their_shares_of_rows_and_all_their_examples() -> None:
    mixture = Mixture(Phase("main", 0, 100, 0, 0, 7), 1, [5, 1, 11], [1.0, 0.5, 2.5])
    numbers = np.concatenate([mixture.rows(tf.constant(s, tf.int64)).numbers for s in range(40)])
    tasks = np.searchsorted([5, 6], numbers, side="right")
    for rows in (40, 120, 280):
        counts = np.bincount(tasks[:rows], minlength=3)
        np.testing.assert_allclose(counts, np.array([1.0, 0.5, 2.5]) / 4 * rows, atol=1.01)
    of_last = numbers[tasks == 2]
    for epoch in range(10):
        assert sorted(of_last[11 * epoch : 11 * epoch + 11]) == list(range(6, 17))
    assert (numbers[tasks == 1] == 5).all()
    assert of_last[:11].tolist() != of_last[11:22].tolist()
