"""A run that would memorize its text is refused as soon as that is certain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from model_registry import attempts, outcomes
from pipeline_config import load_preset, with_overrides
from pipeline_store import uris
from pipeline_store.formats import (
    OutcomeKind,
    PartitionManifest,
    RunEstimate,
    RunRecord,
    ShardManifest,
)
from preflight.estimates.estimates import estimate
from preflight.estimates.sizes import text_characters
from preflight.run.checks import passes_problems
from tests.golden.more_files import full
from tests.model_registry.runs import FinishedRun

SMOKE = load_preset("smoke")
AUTO = {"training__train_steps": "auto"}


@pytest.fixture
def run(tmp_path: Path) -> FinishedRun:
    """A run whose partition of 5,000 training rows was prepared from one file."""
    run = FinishedRun(str(tmp_path), "1")
    uri = f"{run.store.root}/corpus/day-1/text.txt"
    uris.write(uri, b"x" * 3000)
    [shard] = PartitionManifest.load(run.manifest_uri).shards
    full(ShardManifest, input_uri=uri, input_bytes=3000).write(shard)
    return run


def refused(run: FinishedRun, **settings: Any) -> list[str]:
    named = {"training__max_passes": None} | settings
    config = with_overrides(SMOKE, {name.replace("__", "."): v for name, v in named.items()})
    return list(passes_problems(config, "day-1", run.store))


def estimated(run: FinishedRun, partition: str = "day-1", **settings: Any) -> RunEstimate:
    named = {"training__max_passes": None, "corpus__partition": partition} | settings
    config = with_overrides(SMOKE, {name.replace("__", "."): v for name, v in named.items()})
    return estimate(config, run.store)


def test_a_prepared_partition_that_would_be_memorized_is_refused(run: FinishedRun) -> None:
    [line] = refused(run, training__train_steps=10_000)
    assert line.startswith("training.train_steps: 10,000 steps go over 5,000 rows 51.2 times")
    assert refused(run, training__train_steps=10_000, training__max_passes=52) == []
    assert refused(run, training__train_steps=10_000, training__max_passes=0) == []
    assert refused(run, **AUTO) == []
    assert refused(run, training__train_steps=6000) == []


def test_a_prepared_partition_that_is_too_small_for_auto_is_refused(run: FinishedRun) -> None:
    [line] = refused(run, **AUTO, training__global_batch_size=20_000)
    assert line.startswith("training.train_steps: auto is 10 steps, 40 passes over 5,000 rows, but")
    # With a fifth of each batch replayed it would be enough.
    assert refused(run, **AUTO, training__global_batch_size=11_000) == []


def test_what_is_not_certain_is_left_to_the_plan(run: FinishedRun) -> None:
    # With a fifth of each batch replayed it would be 38 passes.
    assert refused(run, training__train_steps=7500) == []
    # Other partitions may be trained on with it; others were never prepared.
    assert refused(run, training__train_steps=10_000, training__partitions="unseen") == []
    assert refused(run, training__train_steps=10_000, masking__max_seq_length=64) == []
    # What an earlier run has not learned may join it.
    other = FinishedRun(run.store.root, "2")
    failed = outcomes.record(other.run, OutcomeKind.FAILED, "lost", written_by="release")
    attempts.record(other.lineage, other.run, RunRecord.load(other.run.record), failed)
    assert refused(run, training__train_steps=10_000) == []
    assert len(refused(run, training__train_steps=10_000, training__partitions="own")) == 1
    uris.delete(other.lineage.attempt(other.key))
    # There is more text now.
    uris.write(f"{run.store.root}/corpus/day-1/more.txt", b"y")
    assert refused(run, training__train_steps=10_000) == []
    lines = estimated(run, training__train_steps=10_000).lines
    assert any(
        "WARNING: as it was prepared last, the run will be refused: " in one for one in lines
    )


def test_the_steps_of_auto_are_told_by_rows_by_files_or_by_limits(run: FinishedRun) -> None:
    counted = estimated(run, **AUTO)
    # 40 passes over 5,000 rows, 32 a step.
    assert counted.train_steps == 6250
    assert "training.train_steps: auto, about 6,250 steps: 40 passes over 5,000 rows" in (
        counted.lines
    )
    assert any("which the steps go over 40 times" in line for line in counted.lines)

    uris.write(f"{run.store.root}/corpus/day-2/a.txt", b"x" * 1_000_000)
    uris.write(f"{run.store.root}/corpus/day-2/b.txt.gz", b"x" * 250_000)
    guessed = estimated(run, "day-2", **AUTO)
    rows = round(2_000_000 * 0.9 / 4.7 / 128)
    assert guessed.train_steps == pytest.approx(40 * rows / 32, rel=0.01)
    assert "rows: guessed by the size of the files, and counted when they are prepared" in (
        guessed.lines
    )

    unknown = estimated(run, "day-3", **AUTO, training__max_train_steps=700)
    assert unknown.train_steps == 700
    assert "training.train_steps: auto, at most 700 steps: training.max_train_steps=700" in (
        unknown.lines
    )


def test_too_few_rows_for_auto_are_warned_of(run: FinishedRun) -> None:
    lines = estimated(run, **AUTO, training__global_batch_size=20_000).lines
    assert any("WARNING: training.train_steps: auto is fewer than the 20 steps" in x for x in lines)
    uris.write(f"{run.store.root}/corpus/day-2/a.txt", b"x" * 1000)
    [warning] = [x for x in estimated(run, "day-2", **AUTO).lines if "auto is fewer than" in x]
    assert "the run would be refused; what follows is for 20 steps" in warning


def test_rows_that_are_never_come_to_are_warned_of(run: FinishedRun) -> None:
    lines = estimated(run, training__train_steps=100).lines
    assert any("100 steps go over 64.0% of 5,000 rows" in x for x in lines)


def test_of_many_files_some_are_looked_at(run: FinishedRun) -> None:
    for number in range(250):
        uris.write(f"{run.store.root}/corpus/day-4/{number}.txt", b"x" * 100)
    config = with_overrides(SMOKE, {"corpus.partition": "day-4"})
    assert text_characters(config, "day-4", run.store) == 25_000
