"""The labelled task that the pictures of fine-tuning are made with."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

from local.demo import tiny
from local.demo.screenshots import finetuning
from local.demo.screenshots.repretraining import PARTITIONS
from pipeline_store.layout import StoreLayout


def test_each_sentence_is_labelled_once_and_no_label_is_rare(tmp_path: Path) -> None:
    store = StoreLayout(str(tmp_path))
    tiny.write_partition(store, PARTITIONS[-1], seed=1, dialect=1)
    finetuning.write_task(store)
    with (Path(store.task(finetuning.TASK).root) / "train.tsv").open(newline="") as file:
        rows = list(csv.DictReader(file, dialect="excel-tab"))
    assert len({row["text"] for row in rows}) == len(rows) == finetuning.EXAMPLES
    labels = Counter(row["label"] for row in rows)
    assert set(labels) == set(finetuning.LABELS)
    assert min(labels.values()) > finetuning.EXAMPLES / 10
