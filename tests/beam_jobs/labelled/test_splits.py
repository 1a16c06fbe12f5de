"""Which examples learn and which judge, where only training files are given."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_jobs.labelled.decisions import decide
from beam_jobs.labelled.facts import DeadLetters, TaskFile, collect_facts
from beam_jobs.labelled.task_examples import SPLITS
from pipeline_config import TaskConfig
from pipeline_store.formats import TaskSplit
from tests.beam_jobs.labelled.tasks import TEST, TRAIN, VALIDATION, rows, sentence, tsv

TASK = TaskConfig(validation_fraction=0.3, test_fraction=0.2)
BASE = rows(40, first=1000)


def divided(lines: list[list[str]], task: TaskConfig = TASK) -> list[TaskSplit]:
    """Return the split of each line."""
    file = TaskFile(0, TRAIN, "train.tsv", "tsv", "", 0)
    with DeadLetters(Path("/dev/null")) as letters:
        facts = collect_facts(io.BytesIO(tsv(lines).encode()), file, task, letters)
    assert len(facts) == len(lines)
    return [SPLITS[code] for code in decide([facts], task).assigned[0].tolist()]


@settings(deadline=None)
@given(st.lists(st.integers(0, 60), max_size=30), st.lists(st.integers(0, 99), max_size=9))
def test_no_text_is_in_two_splits_and_new_ones_move_none(
    numbers: list[int], more: list[int]
) -> None:
    # The same text now in one and now in other letters.
    lines = [*BASE, *([[sentence(n).upper(), sentence(n)][n % 2], "pos"] for n in numbers)]
    before = divided(lines)
    lines += [[sentence(n), "neg"] for n in more]
    after = divided(lines)
    assert after[: len(before)] == before
    by_text: dict[str, set[TaskSplit]] = {}
    for (text, _), split in zip(lines, after, strict=True):
        by_text.setdefault(text.lower(), set()).add(split)
    assert all(len(splits) == 1 for splits in by_text.values())


def test_shares_are_as_asked_for() -> None:
    splits = divided(rows(2000), TaskConfig(validation_fraction=0.2, test_fraction=0.05))
    counts = {split: splits.count(split) for split in SPLITS}
    # Four standard deviations of a draw for each text.
    assert abs(counts[VALIDATION] - 400) < 4 * np.sqrt(2000 * 0.2 * 0.8)
    assert abs(counts[TEST] - 100) < 4 * np.sqrt(2000 * 0.05 * 0.95)
