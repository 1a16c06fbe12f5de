"""Checkpoints: what is committed, what is trusted, what is refused, what is kept."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from pipeline_store.formats import CheckpointManifest, Holder, TrainingInputs
from tests.training.conftest import OneDay, TwoDays
from tests.training.corpora import TinyStore, tiny_config
from tests.training.damages import DAMAGES, flip, weights_file
from tests.training.jobs import (
    FAILED,
    PREEMPTED,
    USER_ERROR,
    all_files,
    committed_steps,
    result,
    train,
    train_until,
)
from trained_models import artifacts
from trained_models.errors import UserError
from training.architectures.models import build_model, named_variables, weights_sha256
from training.model import checkpoints


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_checkpoint_is_passed_over_and_replaced(
    half_trained: OneDay,
    two_days: TwoDays,
    capsys: pytest.CaptureFixture[str],
    damage: str,
) -> None:
    run = half_trained.run
    DAMAGES[damage](run, 8)
    assert train(half_trained.store, run, half_trained.manifest) == 0
    output = capsys.readouterr().out
    assert "0000000008.json is not used" in output
    assert "Resuming from checkpoint 4" in output

    assert result(run).resumed_from == [4]
    assert result(run).weights_sha256 == result(two_days.first).weights_sha256
    assert committed_steps(run) == [4, 8, 12]
    assert artifacts.result_checkpoint(run.training.root).step == 12


def test_nothing_good_left_starts_from_the_beginning(
    half_trained: OneDay, two_days: TwoDays
) -> None:
    run = half_trained.run
    for step in (4, 8):
        flip(weights_file(run, step, ".data"))
    assert train(half_trained.store, run, half_trained.manifest) == 0
    assert result(run).resumed_from == []
    assert result(run).weights_sha256 == result(two_days.first).weights_sha256


def test_changed_configuration_is_refused_with_what_differs(
    half_trained: OneDay, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny, run, manifest = half_trained.store, half_trained.run, half_trained.manifest
    before = all_files(run.training.root)
    changed = tiny_config(optimizer__learning_rate=0.5, training__checkpoint_interval=6)
    Path(run.config).write_bytes(changed.to_bytes())
    assert train(tiny, run, manifest) == USER_ERROR
    output = capsys.readouterr().out
    assert "optimizer.learning_rate was 0.003 and is 0.5" in output
    # How often checkpoints are written does not change what is trained.
    assert "checkpoint_interval" not in output
    assert all_files(run.training.root) == before


def test_changes_can_be_accepted(half_trained: OneDay, capsys: pytest.CaptureFixture[str]) -> None:
    tiny, run, manifest = half_trained.store, half_trained.run, half_trained.manifest
    changed = tiny_config(optimizer__learning_rate=0.5)
    Path(run.config).write_bytes(changed.to_bytes())
    other = tiny.partition("2026-01-02")
    assert train(tiny, run, manifest, other, "--accept-changes") == 0
    output = capsys.readouterr().out
    assert "WARNING Going on all the same, as --accept-changes says. Checkpoint 8 in" in output
    assert (
        "optimizer.learning_rate was 0.003 and is 0.5; 0 shards of records are gone and" in output
    )
    assert result(run).resumed_from == [8]
    assert result(run).train_steps == 12
    # What was trained from here on is that of the new settings, and needs no permission any more.
    Path(run.training.result).unlink()
    assert train(tiny, run, manifest, other) == 0


def test_changes_whose_tensors_do_not_fit_are_refused_all_the_same(
    half_trained: OneDay, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny, run, manifest = half_trained.store, half_trained.run, half_trained.manifest
    for overrides in ({"model__hidden_size": 64}, {"optimizer__type": "amos"}):
        Path(run.config).write_bytes(tiny_config(**overrides).to_bytes())
        assert train(tiny, run, manifest, "--accept-changes") == USER_ERROR
        assert "are not those of the configured model and optimizer" in capsys.readouterr().out
    assert committed_steps(run) == [4, 8]


def test_changed_data_is_refused(half_trained: OneDay, capsys: pytest.CaptureFixture[str]) -> None:
    tiny, run, manifest = half_trained.store, half_trained.run, half_trained.manifest
    assert train(tiny, run, manifest, tiny.partition("2026-01-02")) == USER_ERROR
    assert "0 shards of records are gone and 2 are new" in capsys.readouterr().out


def test_finished_training_with_changed_configuration_is_refused(
    trained: OneDay, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny, run, manifest = trained.store, trained.run, trained.manifest
    Path(run.config).write_bytes(tiny_config(training__random_seed=5).to_bytes())
    assert train(tiny, run, manifest) == USER_ERROR
    assert "training.random_seed was 1 and is 5" in capsys.readouterr().out


def while_saving(monkeypatch: pytest.MonkeyPatch, save: int, act: Callable[[], None]) -> None:
    """Have something happen during a save of the trainer, the first being number 1."""
    write, saves = checkpoints.write_files, count(1)

    def write_files(*arguments: Any) -> list[Path]:
        if next(saves) == save:
            act()
        return write(*arguments)

    monkeypatch.setattr(checkpoints, "write_files", write_files)


def test_result_describes_the_checkpoint_that_another_process_committed(
    tiny: TinyStore, two_days: TwoDays, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest, run = tiny.partition("2026-01-01"), tiny.run("r")

    def commit_other_weights() -> None:
        other = artifacts.result_checkpoint(two_days.second.training.root)
        for file in other.files:
            target = Path(run.training.root, file.path)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(Path(two_days.second.training.root, file.path).read_bytes())
        mine = CheckpointManifest.load(run.training.checkpoint(8))
        hashes = {"config_sha256": mine.config_sha256, "data_sha256": mine.data_sha256}
        other.model_copy(update=hashes).write(run.training.checkpoint(12))

    while_saving(monkeypatch, 3, commit_other_weights)
    assert train(tiny, run, manifest) == 0
    assert artifacts.result_checkpoint(run.training.root).step == 12
    stored, expected = result(run), result(two_days.second)
    assert stored.weights_sha256 == expected.weights_sha256
    assert (stored.final_loss, stored.tokens) == (expected.final_loss, expected.tokens)
    assert stored.resumed_from == [12]
    # What the result says is what the committed files hold.
    model = build_model(tiny.config)
    checkpoints.load_weights(model, run.training.root)
    assert weights_sha256(model) == stored.weights_sha256


def test_checkpoint_that_replaced_a_damaged_one_is_not_deleted(
    half_trained: OneDay, two_days: TwoDays, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = half_trained.run
    damaged = weights_file(run, 8, ".data")
    flip(damaged)
    other = "other"

    def repair() -> None:
        flip(damaged)
        uri = run.training.checkpoint(8)
        CheckpointManifest.load(uri).model_copy(update={"holder_token": other}).write(uri)

    while_saving(monkeypatch, 1, repair)
    assert train(half_trained.store, run, half_trained.manifest) == 0
    assert CheckpointManifest.load(run.training.checkpoint(8)).holder_token == other
    assert result(run).resumed_from == [8]
    assert result(run).weights_sha256 == result(two_days.first).weights_sha256


def test_only_the_newest_are_kept_with_their_bytes(
    tiny: TinyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny_config(training__checkpoint_interval=2, training__max_to_keep=2)
    manifest, run = tiny.partition("2026-01-01"), tiny.run("r", config)
    stray = Path(run.training.attempt_files("another"), "0000000002-dead", "weights.index")
    stray.parent.mkdir(parents=True)
    stray.write_bytes(b"bytes that were never committed")
    assert train_until(5, monkeypatch, tiny, run, manifest) == PREEMPTED
    assert committed_steps(run) == [8, 10]
    assert stray.exists(), "swept while somebody may still be about to commit it"

    assert train(tiny, run, manifest) == 0
    assert committed_steps(run) == [10, 12]
    named = {
        file.path
        for step in (10, 12)
        for file in CheckpointManifest.load(run.training.checkpoint(step)).files
    }
    kept = {f"attempts/{path}" for path in all_files(Path(run.training.root, "attempts"))}
    assert kept == named


def test_attempt_that_lost_the_run_commits_nothing(
    tiny: TinyStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest, run = tiny.partition("2026-01-01"), tiny.run("r")
    first, second = "first", "second"
    holder = Holder(sequence=1, generation=1, attempt=1, token=first)
    holder.write(run.holder)
    monkeypatch.setenv("REPRETRAIN_HOLDER_URI", run.holder)
    monkeypatch.setenv("REPRETRAIN_TOKEN", first)

    upload = checkpoints.write_files

    def replaced_while_saving(*arguments: object) -> list[Path]:
        holder.model_copy(update={"sequence": 2, "token": second}).write(run.holder)
        return upload(*arguments)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "write_files", replaced_while_saving)
        assert train(tiny, run, manifest) == FAILED
    assert "not this process" in capsys.readouterr().out
    assert committed_steps(run) == []
    assert all_files(run.training.attempt_files(first)), "bytes of its own it may write"

    monkeypatch.setenv("REPRETRAIN_TOKEN", second)
    assert train(tiny, run, manifest) == 0
    assert CheckpointManifest.load(run.training.checkpoint(12)).holder_token == second
    assert not all_files(run.training.attempt_files(first))


def test_weights_are_loaded_by_name_completely(two_days: TwoDays) -> None:
    config = tiny_config(training__random_seed=77)
    model = build_model(config)
    report = checkpoints.load_weights(model, two_days.first.training.root)
    assert weights_sha256(model) == result(two_days.first).weights_sha256
    assert report.loaded == sorted(named_variables(model))
    assert str(report) == "28 variables loaded, 0 new, 0 dropped, 0 of another shape"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            {"model__hidden_size": 64},
            r"embeddings: \[320, 32\] in the checkpoint, \(320, 64\) here",
        ),
        (
            {"model__num_hidden_layers": 2},
            r"new +bert_encoder/transformer/layer_1/intermediate/bias",
        ),
    ],
)
def test_weights_of_another_architecture_are_refused_by_name(
    two_days: TwoDays, overrides: dict[str, int], message: str
) -> None:
    model = build_model(tiny_config(**overrides))
    before = weights_sha256(model)
    with pytest.raises(UserError, match=message):
        checkpoints.load_weights(model, two_days.first.training.root)
    assert weights_sha256(model) == before


def test_left_over_weights_are_refused_by_name(tiny: TinyStore, two_days: TwoDays) -> None:
    config = tiny_config(model__num_hidden_layers=2, training__train_steps=4)
    manifest, run = tiny.partition("2026-01-01"), tiny.run("deep", config)
    assert train(tiny, run, manifest) == 0
    with pytest.raises(UserError, match="dropped    bert_encoder/transformer/layer_1/"):
        checkpoints.load_weights(build_model(tiny_config()), run.training.root)


def test_another_activation_or_vocabulary_is_refused(two_days: TwoDays) -> None:
    uri, vocabulary = two_days.first.training.root, two_days.store.vocabulary_sha256
    checkpoints.check_architecture(uri, tiny_config(), vocabulary)
    with pytest.raises(UserError, match=r"model.hidden_act is 'gelu' there and 'gelu_new' here"):
        checkpoints.check_architecture(uri, tiny_config(model__hidden_act="gelu_new"), vocabulary)
    with pytest.raises(UserError, match="its vocabulary is"):
        checkpoints.check_architecture(uri, tiny_config(), "0" * 64)


def test_tf_models_reads_our_checkpoints(two_days: TwoDays) -> None:
    model = build_model(tiny_config(training__random_seed=77))
    manifest = artifacts.result_checkpoint(two_days.first.training.root)
    # As official.nlp.tasks.masked_lm.MaskedLMTask.initialize does it.
    checkpoint = tf.train.Checkpoint(**model.checkpoint_items)
    status = checkpoint.read(str(Path(two_days.first.training.root, manifest.prefix)))
    status.expect_partial().assert_existing_objects_matched()
    assert weights_sha256(model) == result(two_days.first).weights_sha256


def test_inputs_say_what_the_weights_depend_on(two_days: TwoDays) -> None:
    files = artifacts.model_files(two_days.first.training.root)
    inputs = TrainingInputs.load(str(Path(files.folder, files.inputs)))
    assert inputs.settings["model.hidden_act"] == "gelu"
    assert inputs.vocabulary_sha256 == two_days.store.vocabulary_sha256
    assert len(inputs.records) == 2


def test_optimizer_state_is_restored_too(half_trained: OneDay) -> None:
    run = half_trained.run
    manifest = CheckpointManifest.load(run.training.checkpoint(8))
    reader = tf.train.load_checkpoint(str(Path(run.training.root, manifest.prefix)))
    slots = [key for key in reader.get_variable_to_shape_map() if "OPTIMIZER_SLOT" in key]
    model = build_model(half_trained.store.config)
    assert len(slots) == 2 * (len(model.trainable_variables) - 2)
    assert any(np.abs(reader.get_tensor(key)).max() > 0 for key in slots)
