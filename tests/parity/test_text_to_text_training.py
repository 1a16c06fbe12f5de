"""A fine-tuning of a T5 is the same in PyTorch, step by step, at a small size."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.parity.conftest import RunTorch
from tests.training.text_to_text.models import write_model
from tests.training.text_to_text.vocabularies import WORDS
from trained_models import metric_files
from trained_models.text_to_text.sizes import Form, describe
from training import finetune_text_to_text
from training.text_to_text.rows import Tokenizer, read_sentencepiece
from training.text_to_text.setup import RunFolder
from verification.text_to_text_check import rows

pytestmark = pytest.mark.parity

PROGRAM = Path(rows.__file__).with_name("in_pytorch.py")
STEPS = 40
CONFIG = """
init_checkpoint = "t5"
max_source_length = 24
max_target_length = 16
num_train_epochs = 10.0
global_batch_size = 16
learning_rate = 1e-3
steps_per_loop = 1
dropout_rate = 0.0
evaluations_per_epoch = 0

[[tasks]]
name = "swap"
train = "train.jsonl"
test = "test.jsonl"
validation_fraction = 0.0
"""


@pytest.mark.parametrize("form", ["1.0", "1.1"])
def test_its_loss_and_its_texts_are_those_of_pytorch(
    tmp_path: Path, form: Form, run_torch: RunTorch
) -> None:
    write_model(tmp_path / "t5", form)
    random = np.random.default_rng(4)
    texts = sorted({" ".join(random.choice(WORDS, 1 + n % 5)) for n in range(140)})
    random.shuffle(texts)
    # 64 examples: four steps are an epoch.
    for split, part in (("train", texts[:64]), ("test", texts[64:])):
        lines = [{"text": text, "target": " ".join(reversed(text.split()))} for text in part]
        content = "".join(json.dumps(line) + "\n" for line in lines)
        (tmp_path / f"{split}.jsonl").write_text(content)
    config = tmp_path / "tune.toml"
    config.write_text(CONFIG)

    rows.write(config, tmp_path)
    assert len(np.load(tmp_path / "rows.npz")["order"]) == STEPS
    files = [tmp_path / name for name in ("rows.npz", "recipe.json", "ids.npy")]
    printed = run_torch(PROGRAM, tmp_path / "t5", *files)
    theirs = json.loads(printed.splitlines()[-1])["loss"]

    run = RunFolder(str(tmp_path / "run"))
    assert finetune_text_to_text.main(["--config", str(config), "--run", run.root]) == 0
    found = metric_files.read(run.training.metrics)
    losses = [float(one["loss"]) for one in found if one["kind"] == metric_files.LOOP]
    assert len(losses) == STEPS
    # It has learned something, which a training of other batches would not have alike.
    assert losses[-1] < 0.9 * losses[0]
    assert losses[-1] == pytest.approx(theirs, rel=1e-3)

    folder = str(tmp_path / "t5")
    tokenizer = Tokenizer(read_sentencepiece(folder), describe(folder))
    others = tokenizer.decode(np.load(tmp_path / "ids.npy"))
    written = Path(run.predictions, "swap-test.jsonl").read_text().splitlines()
    ours = [json.loads(line)["output"] for line in written]
    assert len(set(ours)) > 1
    equal = [one == other for one, other in zip(ours, others, strict=True)]
    assert np.mean(equal) >= 0.9
