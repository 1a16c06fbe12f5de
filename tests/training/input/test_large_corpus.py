"""Corpora that do not fit into memory: the order stays exact, and memory does not grow."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.training import large_corpus
from tests.training.jobs import ROOT
from tests.training.large_corpus import BATCH
from training.input.order import Order

MEBIBYTE = 1 << 20


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Return a folder that is emptied at once, not after three more sessions as pytest's own."""
    yield tmp_path
    shutil.rmtree(tmp_path)


def assert_two_epochs_are_exact(records: int) -> None:
    """Look at every row of two epochs, and at those that begin the third one."""
    order = Order(large_corpus.phase(records), 1, records)
    steps = tf.data.Dataset.range(order.phase.end_step).map(lambda step: tuple(order.rows(step)))
    seen = np.zeros((3, records), np.uint8)
    for numbers, epochs in steps.as_numpy_iterator():
        assert (np.diff(epochs) >= 0).all()
        np.add.at(seen, (epochs, numbers), 1)
    assert (seen[:2] == 1).all()
    assert seen[2].sum() == order.phase.end_step * BATCH - 2 * records
    assert seen[2].max() == 1


def test_every_record_is_read_once_an_epoch(folder: Path) -> None:
    large_corpus.write(folder, shards=3, records=9001)
    assert_two_epochs_are_exact(3 * 9001)
    # The boundaries of both epochs are in the steps 6 and 13.
    assert large_corpus.read(large_corpus.sources(folder), [0, 5, 6, 7, 13, 14]) == 6 * BATCH


@pytest.mark.slow
def test_ten_million_records_take_no_more_memory_than_a_few(folder: Path) -> None:
    shards, records = 20, 500_009
    size = large_corpus.write(folder, shards=shards, records=records)
    assert_two_epochs_are_exact(shards * records)
    output = subprocess.run(
        [sys.executable, "-m", "tests.training.large_corpus", str(folder)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    found = json.loads(output.splitlines()[-1])
    growth = found["peak"] - found["peak_before"]
    print(
        f"{found['records']:,} records in {size // MEBIBYTE:,} MiB of files: peak "
        f"{found['peak'] // MEBIBYTE} MiB, {growth // MEBIBYTE} MiB more than for one shard; "
        f"{found['rows_compared']:,} rows compared"
    )
    assert found["records"] == shards * records > 10_000_000
    # The offsets alone, 8 bytes each, would take more.
    assert growth < 8 * found["records"] / 2
