"""The trainer as a command: from manifests to a result, and what it says on the way."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from pipeline_store import uris
from pipeline_store.formats import CheckpointManifest, Progress, VocabularyInfo
from pipeline_store.layout import StoreLayout
from tests.pipeline_store.gcs_server import GcsState
from tests.pipeline_store.stores import moved
from tests.training.conftest import OneDay, TwoDays
from tests.training.corpora import TinyStore, tiny_config
from tests.training.jobs import (
    BAD_DATA,
    FAILED,
    PREEMPTED,
    USER_ERROR,
    all_files,
    committed_steps,
    result,
    train,
    train_arguments,
    train_until,
)
from trained_models import artifacts
from training import train as train_command


def test_model_learns(tiny: TinyStore) -> None:
    config = tiny_config(
        training__train_steps=400,
        training__checkpoint_interval=50,
        training__steps_per_loop=50,
        training__global_batch_size=32,
        training__max_to_keep=10,
        optimizer__learning_rate=1e-2,
    )
    manifest, run = tiny.partition("2026-01-01", documents=40), tiny.run("r", config)
    assert train(tiny, run, manifest) == 0
    done = result(run)
    first = CheckpointManifest.load(run.training.checkpoint(50))
    assert done.train_steps == 400
    # Knowing which 40 words there are is worth 3.7 nats; knowing their order is worth all of it.
    assert first.loss > 2.0
    assert done.final_loss < 0.1
    assert done.tokens > first.tokens > 0
    assert done.seconds > first.seconds > 0


@pytest.mark.thorough
def test_steps_that_a_plan_has_decided_are_those_of_a_resumed_training_too(
    tiny: TinyStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    auto = tiny_config(
        training__train_steps="auto", optimizer__warmup_steps=10, training__checkpoint_interval=20
    )
    as_it_acts = tiny_config(
        training__train_steps=40, optimizer__warmup_steps=4, training__checkpoint_interval=4
    )
    manifest = tiny.partition("2026-01-01")
    run, straight = tiny.run("auto", auto), tiny.run("number", as_it_acts)
    decided = [manifest, "--train-steps", "40"]
    assert train(tiny, run, manifest) == USER_ERROR
    assert "auto, which a run's plan decides" in capsys.readouterr().out
    assert train_until(3, monkeypatch, tiny, run, *decided) == PREEMPTED
    # Another number is another training.
    assert train(tiny, run, manifest, "--train-steps", "60") == USER_ERROR
    assert "training.train_steps" in capsys.readouterr().out
    assert train(tiny, run, *decided) == 0
    assert train(tiny, straight, manifest) == 0
    assert result(run).train_steps == 40
    assert result(run).weights_sha256 == result(straight).weights_sha256


def test_second_day_starts_from_the_first(
    two_days: TwoDays, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = result(two_days.first), result(two_days.second)
    assert first.weights_sha256 != second.weights_sha256
    assert second.final_loss < first.final_loss
    assert first.resumed_from == second.resumed_from == []


DROPOUT = {"model__hidden_dropout_prob": 0.1, "model__attention_probs_dropout_prob": 0.1}
PAIRS = {"masking__packing": "segment_pair"}
DYNAMIC = {"masking__dynamic": True}
RECIPES: dict[str, dict[str, object]] = {
    "plain": {},
    "dropout": DROPOUT,
    "lamb-bfloat16": {
        "optimizer__type": "lamb",
        "training__mixed_precision_dtype": "bfloat16",
    },
    "dynamic": DYNAMIC | {"training__global_batch_size": 36},
    "pairs": PAIRS | DYNAMIC | {"masking__unit": "span"},
    "amos-pairs": PAIRS | {"optimizer__type": "amos"},
    "many": PAIRS | DYNAMIC | DROPOUT | {"optimizer__type": "amos"},
}
ONCE, OFTEN = (3,), (1, 2, 2)


@pytest.mark.parametrize(
    ("recipe", "parts"),
    [
        ("many", ONCE),
        *[
            pytest.param(recipe, OFTEN, marks=pytest.mark.thorough)
            for recipe in RECIPES
            if recipe != "many"
        ],
    ],
)
def test_interrupted_training_ends_bit_identical(
    tiny: TinyStore, monkeypatch: pytest.MonkeyPatch, recipe: str, parts: tuple[int, ...]
) -> None:
    overrides = RECIPES[recipe]
    config = tiny_config(**overrides)
    tiny = tiny.using(config)
    manifests = [tiny.partition("2026-01-01"), tiny.partition("2026-01-02")]
    straight, interrupted = tiny.run("straight", config), tiny.run("interrupted", config)
    assert train(tiny, straight, *manifests) == 0
    # Stops at step 6, or at 2, 6 and 10, none of them a checkpoint of the schedule.
    for loops in parts:
        assert train_until(loops, monkeypatch, tiny, interrupted, *manifests) == PREEMPTED
    assert train(tiny, interrupted, *manifests) == 0

    assert result(interrupted).weights_sha256 == result(straight).weights_sha256
    assert result(interrupted).tokens == result(straight).tokens
    assert result(interrupted).final_loss == result(straight).final_loss
    assert result(interrupted).resumed_from == ([6] if parts == ONCE else [2, 6, 10])


def test_length_of_loops_does_not_matter(tiny: TinyStore, two_days: TwoDays) -> None:
    config = tiny_config(training__steps_per_loop=3, training__checkpoint_interval=9)
    manifest, run = tiny.partition("2026-01-01"), tiny.run("r", config)
    assert train(tiny, run, manifest) == 0
    assert committed_steps(run) == [9, 12]
    assert result(run).weights_sha256 == result(two_days.first).weights_sha256


def test_finished_run_is_left_alone(two_days: TwoDays, capsys: pytest.CaptureFixture[str]) -> None:
    before = all_files(two_days.store.layout.root)
    manifest = two_days.manifests["2026-01-01"]
    assert train(two_days.store, two_days.first, manifest) == 0
    assert "This run is trained already, and its checkpoint verifies" in capsys.readouterr().out
    assert all_files(two_days.store.layout.root) == before


def test_finished_run_whose_checkpoint_is_damaged_is_not_taken_for_good(
    trained: OneDay, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny, run, manifest = trained.store, trained.run, trained.manifest
    weights = result(run).weights_sha256
    checkpoint = CheckpointManifest.load(run.training.checkpoint(12))
    Path(run.training.root, checkpoint.files[1].path).write_bytes(b"")
    assert train(tiny, run, manifest) == BAD_DATA
    output = capsys.readouterr().out
    assert "has 0 bytes; its manifest says" in output
    # What the message advises helps.
    assert f"delete {run.training.result} and give the same command again" in output
    Path(run.training.result).unlink()
    assert train(tiny, run, manifest) == 0
    assert result(run).weights_sha256 == weights


def test_result_is_written_after_a_kill_between_checkpoint_and_result(
    trained: OneDay,
) -> None:
    run = trained.run
    done = result(run)
    Path(run.training.result).unlink()
    assert train(trained.store, run, trained.manifest) == 0
    assert result(run) == done.model_copy(update={"resumed_from": [12]})


def test_progress_and_events_and_log(
    tiny: TinyStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    progress_file = tmp_path / "progress.json"
    monkeypatch.setenv("REPRETRAIN_PROGRESS_FILE", str(progress_file))
    manifest, run = tiny.partition("2026-01-01"), tiny.run("r")
    assert train(tiny, run, manifest) == 0

    progress = Progress.model_validate_json(progress_file.read_text())
    assert (progress.step, progress.train_steps) == (12, 12)
    # That of step 8 is committed in a thread, before that of step 12 is begun.
    assert progress.checkpoint_step in {4, 8}
    assert progress.loss == pytest.approx(result(run).final_loss, abs=1e-4)
    assert progress.eta_seconds == 0
    assert progress.tokens_per_second is not None

    events = EventAccumulator(run.training.events).Reload()
    assert set(events.Tags()["tensors"]) == {
        "loss",
        "learning_rate",
        "gradient_norm",
        "tokens_per_second",
        "steps_per_second",
        "input_wait_fraction",
        "model_tflops_per_second",
    }
    assert [event.step for event in events.Tensors("loss")] == [2, 4, 6, 8, 10, 12]
    output = capsys.readouterr().out
    assert "step 12/12  loss" in output
    assert "ETA 0:00:00" in output
    assert "checkpoint 12 committed" in output


def test_dry_run_shows_sizes_and_writes_nothing(
    tiny: TinyStore, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest, run = tiny.partition("2026-01-01"), tiny.run("r")
    before = all_files(tiny.layout.root)
    assert train(tiny, run, manifest, "--dry-run") == 0
    output = capsys.readouterr().out
    assert "22,432 parameters in 28 variables" in output
    assert "8 rows of 16 tokens each, from 48 new records of 2 shards" in output
    assert "input_word_ids         int32    (8, 16)" in output
    assert "masked_lm_positions    int32    (8, 4)" in output
    assert all_files(tiny.layout.root) == before


def test_loss_that_is_not_a_number_stops_without_a_checkpoint(
    tiny: TinyStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest, run = tiny.partition("2026-01-01"), tiny.run("r")
    # A rate that no configuration allows: the weights overflow at once.
    monkeypatch.setattr(
        "training.optimization.schedules.LinearWarmupDecay.__call__", lambda self, step: 1e38
    )
    assert train(tiny, run, manifest) == FAILED
    assert "is not finite in the steps up to" in capsys.readouterr().out
    assert committed_steps(run) == []


def test_tpu_without_a_tpu_is_a_configuration_error(
    tiny: TinyStore, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tiny_config(training__distribution_strategy="tpu")
    manifest, run = tiny.partition("2026-01-01"), tiny.run("r", config)
    assert train(tiny, run, manifest) == USER_ERROR
    assert "TensorFlow finds no TPU on this machine" in capsys.readouterr().out


def test_missing_manifest_names_it(tiny: TinyStore, capsys: pytest.CaptureFixture[str]) -> None:
    run = tiny.run("r")
    assert train(tiny, run, "lineages/default/partitions/none.json") == USER_ERROR
    assert "partitions/none.json" in capsys.readouterr().out


def test_too_large_vocabulary_is_refused_before_training(
    tiny: TinyStore, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest, run = tiny.partition("2026-01-01"), tiny.run("r")
    info_uri = tiny.layout.lineage("default").vocabulary_info
    VocabularyInfo.load(info_uri).model_copy(update={"size": 999}).write(info_uri)
    assert train(tiny, run, manifest) == USER_ERROR
    output = capsys.readouterr().out
    assert "999 tokens" in output
    assert "320" in output


def test_init_model_that_does_not_fit_is_refused(
    tiny: TinyStore, two_days: TwoDays, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tiny_config(model__hidden_size=64)
    manifest, run = tiny.partition("2026-01-01"), tiny.run("r", config)
    arguments = [manifest, "--init-model", two_days.first.training.root]
    assert train(tiny, run, *arguments) == USER_ERROR
    assert "model.hidden_size is 32 there and 64 here" in capsys.readouterr().out
    assert committed_steps(run) == []


def test_initial_checkpoint_of_the_configuration_is_used(
    tiny: TinyStore, two_days: TwoDays, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tiny_config(model__init_checkpoint=two_days.first.training.root)
    manifest, run = tiny.partition("2026-01-02"), tiny.run("r", config)
    assert train(tiny, run, manifest) == 0
    assert result(run).weights_sha256 == result(two_days.second).weights_sha256
    assert "28 variables loaded, 0 new, 0 dropped" in capsys.readouterr().out


@pytest.mark.parametrize(
    "spelling",
    [
        "{}//runs//r/",
        "runs/r",
        pytest.param("file://{}/runs/r", marks=pytest.mark.thorough),
    ],
)
def test_run_folder_may_be_spelled_in_any_way(tiny: TinyStore, spelling: str) -> None:
    manifest, run = tiny.partition("2026-01-01"), tiny.run("r")
    words = train_arguments(tiny, run, manifest)
    words[1] = spelling.format(tiny.layout.root)
    assert train_command.main(words) == 0
    assert artifacts.result_checkpoint(run.training.root).step == 12


def test_everything_works_in_a_bucket(
    tiny: TinyStore,
    two_days: TwoDays,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cloud_storage: GcsState,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    local, cloud = tiny.layout.root, StoreLayout("gs://bucket/store")
    manifest, run = tiny.partition("2026-01-01"), tiny.run("r")
    for path, content in all_files(local).items():
        uris.write(uris.join(cloud.root, path), moved(content, local, cloud.root))
    words = train_arguments(tiny, run, manifest)
    words = [word.replace(local, cloud.root) for word in words]

    assert train_command.main(words) == 0
    stored = json.loads(uris.read(cloud.run("r").training.result))
    assert stored["weights_sha256"] == result(two_days.first).weights_sha256
    assert train_command.main(words) == 0
    assert uris.list_files(cloud.run("r").training.events)
