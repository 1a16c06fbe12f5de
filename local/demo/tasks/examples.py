"""A labeled task in memory, and as the files that the pipeline reads."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import NamedTuple

from local.demo.tasks.modules import Use

SPLITS = (Use.TRAIN, Use.VALIDATION, Use.TEST)
_COLUMNS = ("text", "text_pair")


class Example(NamedTuple):
    """One or two texts and their label."""

    texts: tuple[str, ...]
    label: str


class Task(NamedTuple):
    """The examples of each of :data:`SPLITS`."""

    name: str
    splits: dict[Use, list[Example]]

    @property
    def is_pairs(self) -> bool:
        """Whether an example has two texts."""
        return len(self.splits[Use.TRAIN][0].texts) > 1


def write(task: Task, folder: Path) -> None:
    """Write ``train.tsv``, ``validation.tsv``, ``test.tsv`` and, at last, ``task.toml``.

    Existing files are overwritten. A preparation made from them stays valid as long as their
    content does not change.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for split, examples in task.splits.items():
        with (folder / f"{split}.tsv").open("w", encoding="utf-8", newline="") as file:
            rows = csv.writer(file, "excel-tab", lineterminator="\n")
            rows.writerow([*_COLUMNS[: 1 + task.is_pairs], "label"])
            rows.writerows([*texts, label] for texts, label in examples)
    pair = f'text_pair_column = "{_COLUMNS[1]}"\n' if task.is_pairs else ""
    files = "".join(f'{split} = "{split}.tsv"\n' for split in SPLITS)
    (folder / "task.toml").write_text(f'kind = "classification"\n{files}{pair}')
