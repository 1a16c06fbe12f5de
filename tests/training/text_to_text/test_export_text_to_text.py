"""A fine-tuned T5 model is written as a Hugging Face folder, and as text in, text out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tensorflow as tf

from tests.training.text_to_text.models import random_model, write_model
from tests.training.text_to_text.vocabularies import WORDS, sentencepiece_model
from trained_models.text_to_text.sizes import EOS, describe
from training import export_text_to_text, finetune_text_to_text
from training.text_to_text.rows import Tokenizer, padded
from training.text_to_text.saved_model import StringToString

CONFIG = """
init_checkpoint = "t5"
max_source_length = 12
max_target_length = 8
num_train_epochs = 1.0
global_batch_size = 8
eval_batch_size = 8
evaluations_per_epoch = 0
keep_best = false
[[tasks]]
name = "swap"
train = "swap.jsonl"
validation_fraction = 0.0
test_fraction = 0.3
"""


@pytest.mark.thorough
def test_both_formats_are_the_model(tmp_path: Path) -> None:
    write_model(tmp_path / "t5", "1.0")
    objects = [{"text": f"red {word} {n}", "target": f"{word} red"} for n, word in enumerate(WORDS)]
    (tmp_path / "swap.jsonl").write_text("".join(json.dumps(one) + "\n" for one in objects))
    (tmp_path / "tune.toml").write_text(CONFIG)
    run = ["--run", str(tmp_path / "run")]
    tuned = finetune_text_to_text.main(["--config", str(tmp_path / "tune.toml"), *run])
    assert tuned == 0

    for name in ("hugging_face", "saved_model"):
        words = [*run, "--format", name, "--to", str(tmp_path / name), "--beams", "2"]
        assert export_text_to_text.main(words) == 0
        assert export_text_to_text.main(words) == 40
    assert describe(str(tmp_path / "hugging_face")) == describe(str(tmp_path / "t5"))
    lines = (tmp_path / "run/predictions/swap-test.jsonl").read_text().splitlines()
    scored = [json.loads(line) for line in lines]
    loaded = tf.saved_model.load(str(tmp_path / "saved_model"))
    texts = tf.constant([line["text"] for line in scored])
    found = loaded.signatures["serving_default"](text=texts)["text"].numpy()
    assert [text.decode() for text in found] == [line["output"] for line in scored]


def test_rows_in_the_graph_are_those_of_sentencepiece() -> None:
    model, vocabulary = random_model("1.0"), sentencepiece_model()
    module = StringToString(model, vocabulary, "NFC", (9, 8))
    tokenizer = Tokenizer(vocabulary, model.sizes)
    texts = [" ".join(WORDS[n : n + n % 4]) for n in range(12)]
    rows = module.source_ids(tf.constant(texts)).numpy()
    wanted = [ids if len(ids) <= 9 else [*ids[:8], EOS] for ids in tokenizer.encode(texts)]
    assert [row[row != 0].tolist() for row in rows] == wanted
    # After the end, and beyond the vocabulary, there is no text.
    (red,), (old,) = tokenizer.encode(["red"]), tokenizer.encode(["old"])
    ids = padded([[*red, 5, 6], [99, *old, 5]], 20)
    assert [text.decode() for text in module._texts(tf.constant(ids)).numpy()] == ["red", "old"]
