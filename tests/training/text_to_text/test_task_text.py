"""Examples of text-to-text tasks are read from every format, divided, and checked."""

from __future__ import annotations

import csv
import gzip
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline_config import ConfigError
from pipeline_config.text_to_text import TextTask, TextToTextConfig, parse_text_to_text
from pipeline_store.formats import TaskSplit
from tests.training.text_to_text.vocabularies import sentencepiece_model, sizes
from trained_models.errors import BadDataError, UserError
from trained_models.text_to_text.sizes import EOS, PAD, SOURCE, TARGET
from training.text_to_text.rows import Tokenizer, task_rows
from training.text_to_text.task_text import TaskText, read_task

TASK = "tasks = [{name='x', train='t'}]"
PAIRS = [(f"red house {n}", f"blue house {n}") for n in range(60)]


def write_jsonl(path: Path, pairs: list[tuple[str, str]]) -> None:
    lines = [json.dumps({"text": text, "target": target}) for text, target in pairs]
    path.write_text("".join(f"{line}\n" for line in lines))


def write_table(path: Path, delimiter: str) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file, delimiter=delimiter)
        writer.writerows([("number", "target", "text"), *((1, b, a) for a, b in PAIRS)])


def task(**settings: Any) -> TextTask:
    return TextTask.model_validate({"name": "swap", "train": "train.*"} | settings)


def read(tmp_path: Path, **settings: Any) -> TaskText:
    return read_task(task(**settings), str(tmp_path))


def pairs_of(found: TaskText) -> set[tuple[str, str]]:
    return {(p.text, p.target) for pairs in found.splits.values() for p in pairs}


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl.gz", "parquet"])
def test_every_format_says_the_same(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"train.{kind}"
    if kind == "parquet":
        first, second = (list(column) for column in zip(*PAIRS, strict=True))
        pq.write_table(pa.table({"text": first, "target": second}), path)
    elif kind == "jsonl.gz":
        write_jsonl(tmp_path / "plain", PAIRS)
        path.write_bytes(gzip.compress((tmp_path / "plain").read_bytes()))
    else:
        write_table(path, "," if kind == "csv" else "\t")
    found = read(tmp_path)
    assert pairs_of(found) == set(PAIRS)
    assert {split: len(p) > 0 for split, p in found.splits.items()} == {
        TaskSplit.TRAIN: True,
        TaskSplit.VALIDATION: True,
        TaskSplit.TEST: True,
    }


def test_equal_texts_are_drawn_into_one_split(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "train.jsonl", [*PAIRS, *PAIRS])
    found = read(tmp_path)
    texts = [{pair.text for pair in pairs} for pairs in found.splits.values()]
    assert sum(map(len, texts)) == len(set().union(*texts)) == len(PAIRS)


def test_an_empty_target_is_refused_and_an_empty_text_is_not(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "train.jsonl", [*PAIRS, ("", "x"), ("red", " ")])
    message = (
        r"1 of 61 train examples cannot be used, and max_bad_fraction is 0: .* line 62: no text"
    )
    with pytest.raises(BadDataError, match=message):
        read(tmp_path)
    found = read(tmp_path, max_bad_fraction=0.1)
    assert found.left_out == {"empty_text": 1, "empty_target": 1}
    assert pairs_of(found) == set(PAIRS)


def test_a_text_in_two_splits_is_refused_or_leaves_the_training_split(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "train.jsonl", PAIRS)
    write_jsonl(tmp_path / "test.jsonl", [PAIRS[3], ("green tree", "white tree")])
    settings = {"test": "test.jsonl", "validation_fraction": 0.0}
    with pytest.raises(BadDataError, match=r"1 of 2 test examples are also .*test\.jsonl line 1"):
        read(tmp_path, **settings)
    found = read(tmp_path, **settings, max_leak_fraction=0.5)
    assert len(found.splits[TaskSplit.TRAIN]) == len(PAIRS) - 1
    assert found.left_out == {"leaked": 1}
    assert TaskSplit.VALIDATION not in found.splits


def test_labels_of_a_test_split_were_seen_in_training(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "train.jsonl", [(f"red {n}", "ab"[n % 2]) for n in range(9)])
    write_jsonl(tmp_path / "test.jsonl", [("green", "c")])
    settings = {"test": "test.jsonl", "validation_fraction": 0.0, "target": "label"}
    with pytest.raises(BadDataError, match=r"1 test examples have a target that no training"):
        read(tmp_path, **settings)
    write_jsonl(tmp_path / "train.jsonl", [(f"red {n}", "a") for n in range(9)])
    with pytest.raises(UserError, match="all training examples have one target"):
        read(tmp_path, **settings)


def test_a_split_without_examples_is_refused(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "train.jsonl", PAIRS[:1])
    with pytest.raises(UserError, match=r"there is no .* example"):
        read(tmp_path)
    with pytest.raises(UserError, match=r"train: no file matches .*other"):
        read(tmp_path, train="other.*")


def config(**settings: Any) -> TextToTextConfig:
    given = {"init_checkpoint": "t5", "tasks": [{"name": "swap", "train": "train.*"}]}
    return TextToTextConfig.model_validate(given | settings)


def test_rows_end_with_the_end_and_come_back(tmp_path: Path) -> None:
    pairs = [("red house old tree", "blue house"), ("red", "blue house old tree stone")] * 10
    write_jsonl(tmp_path / "train.jsonl", pairs)
    found = read(tmp_path, prefix="new ", validation_fraction=0.0, test_fraction=0.0)
    tokenizer = Tokenizer(sentencepiece_model(), sizes("1.0"))
    rows = task_rows(found, config(max_source_length=64, max_target_length=64), tokenizer)
    train = rows[TaskSplit.TRAIN]
    assert tokenizer.decode(train[SOURCE]) == [f"new {text}" for text, _ in pairs]
    assert tokenizer.decode(train[TARGET]) == [target for _, target in pairs]

    cut = task_rows(found, config(max_source_length=64, max_target_length=4), tokenizer)
    assert cut[TaskSplit.TRAIN][TARGET].shape == (20, 4)
    assert (np.sum(cut[TaskSplit.TRAIN][TARGET] == EOS, axis=1) == 1).all()
    assert not (cut[TaskSplit.TRAIN][TARGET][1] == PAD).any()
    found.task = task(prefix="new ", max_truncated_fraction=0.4)
    with pytest.raises(BadDataError, match=r"train targets are longer than max_target_length"):
        task_rows(found, config(max_target_length=4), tokenizer)


def test_a_label_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "train.jsonl", [("red", "blue"), ("old", "\N{SNOWMAN}")] * 3)
    found = read(tmp_path, target="label", validation_fraction=0.0, test_fraction=0.0)
    with pytest.raises(BadDataError, match="1 of 2 labels have signs"):
        task_rows(found, config(), Tokenizer(sentencepiece_model(), sizes("1.0")))


def test_another_models_vocabulary_is_refused() -> None:
    with pytest.raises(UserError, match="no SentencePiece model"):
        Tokenizer(b"not one", sizes("1.0"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("tasks = [{name='x', train='t'}, {name='x', train='t'}]", "x is given more than once"),
        ("tasks = []", "tasks: "),
        (f"other = 1\n{TASK}", "not known"),
        ("tasks = [{name='x', train='t', text_column='target'}]", "differ"),
        ("tasks = [{name='x', train='t', test_fraction=0.9}]\n", "nothing to learn from"),
        ("tasks = [{name='x', train='t', columns=['text']}]", "columns lacks 1 of its two"),
        (
            "early_stop_evaluations=1\nevaluations_per_epoch=0\ntasks=[{name='x', train='t'}]",
            "is 0",
        ),
        ("tasks = [", "it is no TOML file"),
    ],
)
def test_a_configuration_that_cannot_work_is_refused(content: str, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        parse_text_to_text(
            f"init_checkpoint = 't5'\n{content}".encode(), "tune.toml", TextToTextConfig
        )
