"""Trainings on short rows first and long rows last, partly on records of earlier partitions."""

from __future__ import annotations

import pytest
import tensorflow as tf

from tests.training.conftest import replicas
from tests.training.corpora import TinyStore, tiny_config
from tests.training.jobs import (
    PREEMPTED,
    USER_ERROR,
    all_files,
    committed_steps,
    result,
    train,
    train_until,
)
from trained_models.phases import phases
from training.input.data import training_dataset

# Steps 1 to 9 read 8 rows of 16 tokens, steps 10 to 12 read 4 rows of 32; checkpoints are at 4, 8
# and 12, and loops of 2 steps.
CONFIG = tiny_config(
    masking__dynamic=True,
    masking__extra_max_seq_length=32,
    masking__extra_max_predictions_per_seq=6,
    training__extra_steps_fraction=0.25,
    training__extra_global_batch_size=4,
    training__replay_fraction=0.3,
)


@pytest.fixture
def store(tiny: TinyStore) -> TinyStore:
    return tiny.using(CONFIG)


@pytest.fixture
def arguments(store: TinyStore) -> list[str]:
    """Return the trainer's arguments for a new partition and one to replay."""
    old, new = store.partition("2026-01-01", documents=7), store.partition("2026-01-02")
    return [new, "--replay-manifest", old]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("parts", "stops"),
    [
        ((6,), [10]),
        # Between two loops, at the end of the short rows, and among the long ones.
        ((3, 2, 1), [6, 9, 10]),
    ],
)
def test_interrupted_training_ends_bit_identical(
    store: TinyStore,
    arguments: list[str],
    monkeypatch: pytest.MonkeyPatch,
    parts: tuple[int, ...],
    stops: list[int],
) -> None:
    straight, interrupted = store.run("straight"), store.run("interrupted")
    assert train(store, straight, *arguments) == 0
    for loops in parts:
        assert train_until(loops, monkeypatch, store, interrupted, *arguments) == PREEMPTED
    assert train(store, interrupted, *arguments) == 0
    assert result(interrupted).resumed_from == stops
    assert result(interrupted).weights_sha256 == result(straight).weights_sha256
    assert result(interrupted).final_loss == result(straight).final_loss

    new, _, old = arguments
    data = store.training_data(new, replay=[old])
    datasets = [training_dataset(data, p, p.first_step, 0, replicas(1)) for p in phases(CONFIG)]
    masks = [batch["input_mask"] for dataset in datasets for (batch,) in dataset]
    assert [mask.shape.as_list() for mask in masks] == 9 * [[8, 16]] + 3 * [[4, 32]]
    assert result(straight).tokens == sum(int(tf.reduce_sum(mask)) for mask in masks)


def test_dry_run_shows_both_lengths_and_both_pools(
    store: TinyStore, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    run = store.run("r")
    before = all_files(store.layout.root)
    assert train(store, run, *arguments, "--dry-run") == 0
    output = capsys.readouterr().out
    pools = "from 48 new records of 2 shards and 28 replayed records of 2 shards."
    assert f"Steps 1 to 9: 8 rows of 16 tokens each, {pools}" in output
    assert f"Steps 10 to 12: 4 rows of 32 tokens each, {pools}" in output
    assert "input_word_ids         int32    (8, 16)" in output
    assert "input_word_ids         int32    (4, 32)" in output
    assert all_files(store.layout.root) == before


def test_changed_partitions_to_replay_are_refused_with_what_differs(
    store: TinyStore,
    arguments: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run, other = store.run("r"), store.partition("2026-01-03")
    assert train_until(1, monkeypatch, store, run, *arguments) == PREEMPTED
    assert committed_steps(run) == [2]
    new, option, old = arguments
    for manifests, message in [
        ((new,), "2 shards of replay records are gone and 0 are new"),
        ((new, option, other), "2 shards of extra replay records are gone and 2 are new"),
        ((old, option, new), "2 shards of records are gone and 2 are new"),
        ((new, option, old, option, other), "0 shards of replay records are gone and 2 are new"),
    ]:
        assert train(store, run, *manifests) == USER_ERROR
        assert message in capsys.readouterr().out


def test_replay_and_its_share_need_each_other(
    store: TinyStore, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    none = store.run("none", tiny_config(masking__dynamic=True, training__replay_fraction=0.0))
    assert train(store, none, *arguments) == USER_ERROR
    assert "training.replay_fraction is 0, so no row of them would be read" in (
        capsys.readouterr().out
    )
    # The first run of a lineage has nothing to replay yet.
    assert train(store, store.run("first"), arguments[0], "--dry-run") == 0
    assert "All rows are new, though training.replay_fraction is 0.3: there is no" in (
        capsys.readouterr().out
    )
    both = [arguments[0], "--replay-manifest", arguments[0]]
    assert train(store, store.run("both"), *both, "--dry-run") == 0
    assert "every shard of --replay-manifest is among those of --manifest" in (
        capsys.readouterr().out
    )
