"""Two labeled tasks from installed text, with texts whose labels are withheld from students."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from local.demo.tasks import docstrings, examples, neighbours
from local.demo.tasks.examples import SPLITS, Task
from local.demo.tasks.modules import Docstring, Use
from pipeline_store.layout import StoreLayout

BUILDERS = {neighbours.NAME: neighbours.build, docstrings.NAME: docstrings.build}
PARTITION = "first"
_UNLABELLED_SHARE = 0.5
_CORPUS_CHARACTERS = 200_000


def task_of(
    name: str, found: list[Docstring], *, quick: bool
) -> tuple[Task, list[tuple[str, ...]]]:
    """Return a task and the texts that stay unlabeled: half of its training examples.

    :param quick: whether to use only a fifth of everything.
    """
    whole = BUILDERS[name](found)
    splits = {split: whole.splits[split][: _size(whole, split, quick=quick)] for split in SPLITS}
    kept = round(len(splits[Use.TRAIN]) * (1 - _UNLABELLED_SHARE))
    unlabelled = [example.texts for example in splits[Use.TRAIN][kept:]]
    return Task(name, splits | {Use.TRAIN: splits[Use.TRAIN][:kept]}), unlabelled


def _size(task: Task, split: Use, *, quick: bool) -> int:
    return len(task.splits[split]) // (5 if quick else 1)


def write_task(store: StoreLayout, task: Task, unlabelled: list[tuple[str, ...]]) -> None:
    """Write a task's files, including the unlabeled texts."""
    folder = Path(store.task(task.name).root)
    examples.write(task, folder)
    with (folder / "unlabelled.tsv").open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, "excel-tab", lineterminator="\n")
        rows.writerow(["text", "text_pair"][: 1 + task.is_pairs])
        rows.writerows(unlabelled)
    with (folder / "task.toml").open("a") as file:
        file.write('predict = "unlabelled.tsv"\n')


def write_corpus(store: StoreLayout, found: list[Docstring]) -> None:
    """Write the partition for importing the encoder: text that is in no task."""
    folder = Path(store.root, "corpus", PARTITION)
    folder.mkdir(parents=True, exist_ok=True)
    written = 0
    with (folder / "text.jsonl").open("w", encoding="utf-8") as file:
        for one in found:
            if one.use is not Use.PRETRAINING or written > _CORPUS_CHARACTERS:
                continue
            line = json.dumps({"text": "\n\n".join(one.paragraphs)})
            written += len(line)
            file.write(f"{line}\n")
