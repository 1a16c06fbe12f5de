"""The tasks that a T5 is given, how starts and sides are compared, and what is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from local.demo.tasks.examples import SPLITS
from local.demo.tasks.modules import Docstring, Use
from pipeline_config.text_to_text import TextToTextConfig, parse_text_to_text
from tests.local.demo.docstrings import documented
from training.finetuning.lengths import steps_of
from training.text_to_text.task_text import read_task
from verification.text_to_text_check import texts
from verification.text_to_text_check.recipe import BATCH, QUICK, description
from verification.text_to_text_check.results import (
    OURS,
    PRETRAINED,
    PYTORCH,
    RANDOM,
    Results,
    comparison,
    criteria,
)
from verification.text_to_text_check.texts import FIRST_LINE, PACKAGE, RESTORE, SIZES, TextTask


def with_first_lines(count: int) -> list[Docstring]:
    """Return docstrings each of which has a first line of its own."""
    return [
        one._replace(first_line=f"Return the best of {number} values.", body=one.paragraphs)
        for number, one in enumerate(documented(count))
    ]


def made(found: list[Docstring]) -> dict[str, TextTask]:
    return {task.name: task for task in texts.tasks(found, SIZES)}


def test_a_first_line_is_in_one_split_and_its_text_lacks_it() -> None:
    found = with_first_lines(200)
    known = next(one for one in found if one.use is Use.PRETRAINING)
    tested = next(one for one in found if one.use is Use.TEST)
    # Pre-trained on, code, and a body too short to tell anything.
    found.append(tested._replace(first_line=known.first_line, body=("one two " * 9,)))
    found.append(tested._replace(first_line="sum(a, axis=None)", body=("one two " * 9,)))
    found.append(tested._replace(first_line="Return what is left of them all.", body=("one two",)))
    task = made(found)[FIRST_LINE]
    targets = [pair.target for split in SPLITS for pair in task.splits[split]]
    assert len(targets) == len(set(targets))
    wanted = {one.first_line for one in with_first_lines(200) if one.use in SPLITS}
    assert set(targets) == wanted
    for pair in task.splits[Use.TEST]:
        assert pair.target not in pair.text
        assert len(pair.text.split()) <= 40
    name, leads = task.simple
    assert name == "lead sentence"
    # Words in common: "the" and "values", if any.
    assert 0.0 < task.baseline < 0.5
    assert all(
        pair.text.startswith(lead) for pair, lead in zip(task.splits[Use.TEST], leads, strict=True)
    )


def test_copying_restores_half_of_the_sentences() -> None:
    task = made(documented(200))[RESTORE]
    changed = [pair.text != pair.target for pair in task.splits[Use.TEST]]
    assert abs(sum(changed) - len(changed) / 2) <= 0.5
    assert task.baseline == pytest.approx(1 - np.mean(changed))
    for pair in task.splits[Use.TRAIN]:
        assert sorted(pair.text.split()) == sorted(pair.target.split())
        assert len(pair.target.split()) <= 16


@pytest.mark.parametrize("name", [PACKAGE, FIRST_LINE, RESTORE])
def test_the_product_takes_what_is_written(tmp_path: Path, name: str) -> None:
    task = made(with_first_lines(300))[name]
    texts.write(task, tmp_path / "examples")
    content = description(
        task, tmp_path / "examples", start=tmp_path / "start", seed=7, amount=QUICK
    )
    config = parse_text_to_text(content.encode(), "tune.toml", TextToTextConfig)
    count = len(task.splits[Use.TRAIN])
    assert steps_of(count, BATCH, config.num_train_epochs) == QUICK.steps
    assert config.random_seed == 7
    read = read_task(config.tasks[0], str(tmp_path))
    assert {split: len(pairs) for split, pairs in read.splits.items()} == {
        "train": count,
        "test": len(task.splits[Use.TEST]),
    }


def line(task: str, side: str, start: str, seed: int, each: list[float]) -> dict[str, Any]:
    about = {"task": task, "side": side, "start": start, "seed": seed}
    return about | {"value": float(np.mean(each)), "seconds": 100.0 + seed, "scores": each}


GOOD, BAD = [1.0] * 160 + [0.0] * 40, [1.0] * 80 + [0.0] * 120


def lines_of(task: str, pretrained: list[float]) -> list[dict[str, Any]]:
    starts = {PRETRAINED: pretrained, RANDOM: BAD}
    return [
        line(task, OURS, start, seed, np.roll(each, seed).tolist())
        for start, each in starts.items()
        for seed in (1, 2, 3)
    ]


def test_pretraining_has_to_improve_two_of_three_tasks() -> None:
    names = ("a", "b", "c")
    lines = [one for name in names for one in lines_of(name, BAD if name == "c" else GOOD)]
    found = {one["name"]: one for one in criteria(lines, names)}
    counted = found["t5_tiny_tasks_improved_by_pretraining"]
    assert (counted["value"], counted["limit"], counted["holds"]) == (2, 2, True)
    assert found["t5_tiny_a_pretrained_minus_random"]["low"] > 0.2
    assert found["t5_tiny_c_pretrained_minus_random"]["low"] < 0.0
    assert found["t5_tiny_longest_training_seconds"]["value"] == 103.0
    fewer = [one | {"scores": BAD} if one["task"] == "b" else one for one in lines]
    counted = {one["name"]: one for one in criteria(fewer, names)}[counted["name"]]
    assert (counted["value"], counted["holds"]) == (1, False)


def test_what_was_not_measured_is_not_judged() -> None:
    assert list(criteria([], ["a"])) == []
    alone = [one for one in lines_of("a", GOOD) if one["start"] == PRETRAINED]
    assert comparison(alone, "a") is None
    # Two tasks of three say nothing about two of three.
    names = [one["name"] for one in criteria(lines_of("a", GOOD), ["a", "b", "c"])]
    assert "t5_tiny_tasks_improved_by_pretraining" not in names


@pytest.mark.parametrize(("shift", "holds"), [(0.0, True), (0.3, False)])
def test_pytorch_may_differ_by_as_much_as_seeds_do(shift: float, holds: bool) -> None:
    lines = []
    for seed, mean in enumerate((0.48, 0.5, 0.52, 0.49, 0.51)):
        lines.append(line("a", OURS, PRETRAINED, seed, [mean] * 10))
        lines.append(line("a", PYTORCH, PRETRAINED, seed, [mean + shift + 0.001] * 10))
    [found] = [one for one in criteria(lines, ["a"]) if one["name"].endswith("_as_pytorch_p")]
    assert found["holds"] is holds
    assert found["seeds"] == [5, 5]


def test_what_was_measured_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = Results(tmp_path / "folder" / "results.jsonl")
    assert results.lines() == []
    results.add(line("a", OURS, RANDOM, 1, GOOD))
    assert Results(results.path).lines()[0]["scores"] == GOOD
    assert "scores" not in capsys.readouterr().out
    assert results.has(task="a", side=OURS, start=RANDOM, seed=1)
    assert not results.has(task="a", side=OURS, start=PRETRAINED, seed=1)
