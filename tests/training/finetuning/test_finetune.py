"""The command: which trials it does, what it leaves alone, what it refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from pipeline_config import FinetuningConfig, parse_finetuning_config
from pipeline_store.formats import (
    EncoderSource,
    FinetuningPlan,
    TaskManifest,
    TaskSplit,
    TrialResult,
)
from pipeline_store.layout import RunLayout
from tests.training.corpora import TinyStore
from tests.training.finetuning.runs import TASK, finetune, results, write_run
from tests.training.finetuning.tasks import LABELS, StopAfter, write_task
from tests.training.jobs import BAD_DATA, PREEMPTED, USER_ERROR, all_files
from training import finetune as finetune_command

Pretrained = tuple[TinyStore, str]
PREDICT: dict[str, Any] = {"mode": "predict", "source_run": "0123456789ab"}
QUICK: dict[str, Any] = {"num_train_epochs": 1.0}


def task(store: TinyStore, name: str) -> str:
    return write_task(store, f"{TASK}-{name}")


def test_a_plan_is_done_once_and_then_left_alone(
    pretrained: Pretrained, capsys: pytest.CaptureFixture[str]
) -> None:
    store, model = pretrained
    run = write_run(store, "once", model=model, manifest_uri=task(store, "once"), **QUICK)

    before = all_files(run.root)
    assert finetune(store, run, "--dry-run") == 0
    assert all_files(run.root) == before
    assert "48 of 48 examples, 6 steps of 8, scored every 6" in capsys.readouterr().out

    second = f"{TASK}.model.0.003.2"
    assert finetune(store, run, "--group", "1/2") == 0
    assert [result.trial.trial_id for result in results(run)] == [second]
    assert finetune(store, run, "--trial", second) == 0
    assert "1 of 1 trials are done already" in capsys.readouterr().out
    assert finetune(store, run) == 0
    done = all_files(run.root)
    assert finetune(store, run) == 0
    assert all_files(run.root) == done

    first, other = results(run)
    assert (first.trial.random_seed, other.trial.random_seed) == (1, 2)
    assert first.weights_sha256 != other.weights_sha256
    assert first.scores.keys() == {TaskSplit.VALIDATION, TaskSplit.TEST}
    start = json.loads(Path(run.trial(second).training.initial_weights).read_text())
    assert (start["uri"], start["new"]) == (model, [])


def rewrite(run: RunLayout, **recipe: Any) -> None:
    """Edit a run's configuration."""
    config = parse_finetuning_config(Path(run.config).read_bytes(), run.config)
    settings = config.finetuning.model_copy(update=recipe)
    Path(run.config).write_bytes(FinetuningConfig(finetuning=settings).to_bytes())


def test_what_is_done_counts_for_the_same_trial_only(
    pretrained: Pretrained, capsys: pytest.CaptureFixture[str]
) -> None:
    store, model = pretrained
    uri = task(store, "edited")
    run = write_run(store, "edited", model=model, manifest_uri=uri, seeds=(1,), **QUICK)
    assert finetune(store, run) == 0
    (done,) = results(run)
    place = run.trial(done.trial.trial_id)

    def refusal() -> str:
        capsys.readouterr()
        assert finetune(store, run) == USER_ERROR
        return capsys.readouterr().out

    # What its weights do not depend on may change.
    rewrite(run, eval_batch_size=5, export_formats=["saved_model"])
    assert finetune(store, run) == 0
    rewrite(run, weight_decay_rate=0.5)
    difference = "finetuning.weight_decay_rate was 0.01 and is 0.5"
    assert f"result.json is there already, but of another trial: {difference}" in refusal()
    # Trained with the one and not scored yet, it is not scored as the other.
    Path(place.result).unlink()
    said = refusal()
    assert "This training is finished, so it cannot go on with other settings or records" in said
    assert difference in said
    assert not Path(place.result).exists()
    rewrite(run, weight_decay_rate=0.01)
    before = all_files(place.training.root)
    assert finetune(store, run) == 0
    assert all_files(place.training.root) == before
    (again,) = results(run)
    assert again.weights_sha256 == done.weights_sha256

    # Another encoder, and the task prepared anew.
    plan = FinetuningPlan.load(run.finetuning_plan)
    other = EncoderSource(uri=model, version_id=None, files_sha256="0" * 64)
    plan.model_copy(update={"models": {"model": other}}).write(run.finetuning_plan)
    assert "the encoder was " in refusal()
    anew = write_task(store, f"{TASK}-anew", warnings=["something"])
    plan.model_copy(update={"manifests": {TASK: anew}}).write(run.finetuning_plan)
    assert "the task's manifest was " in refusal()


# Looks are one before each trial, and one for each loop of two steps.
@pytest.mark.parametrize(
    ("seeds", "stops"),
    [((1,), (3,)), pytest.param((1, 2), (3, 1, 8, 4), marks=pytest.mark.thorough)],
    ids=str,
)
def test_stopped_it_goes_on_where_it_was(
    pretrained: Pretrained,
    monkeypatch: pytest.MonkeyPatch,
    seeds: tuple[int, ...],
    stops: tuple[int, ...],
) -> None:
    store, model = pretrained
    name = f"stopped-{len(stops)}"
    uri = task(store, name)
    settings: dict[str, Any] = {"model": model, "manifest_uri": uri, "seeds": seeds}
    straight = write_run(store, f"{name}-straight", **settings)
    assert finetune(store, straight) == 0
    run = write_run(store, name, **settings)
    for looks in stops:
        with monkeypatch.context() as patch:
            patch.setattr(finetune_command, "StopRequest", lambda n=looks: StopAfter(n))
            assert finetune(store, run) == PREEMPTED
    assert finetune(store, run) == 0
    own = {"seconds", "examples_per_second", "resumed_from", "scores"}
    for ours, theirs in zip(results(run), results(straight), strict=True):
        assert ours.model_dump(exclude=own) == theirs.model_dump(exclude=own)
        for split, score in ours.scores.items():
            assert score.metrics == theirs.scores[split].metrics
            assert score.loss == theirs.scores[split].loss
    assert sum(len(result.resumed_from) for result in results(run)) >= len(seeds)


@pytest.mark.thorough
def test_models_of_another_run_are_measured_again(
    pretrained: Pretrained, capsys: pytest.CaptureFixture[str]
) -> None:
    store, model = pretrained
    uri = task(store, "measured")
    source = write_run(store, "0123456789ab", model=model, manifest_uri=uri, **QUICK, mode="train")
    assert finetune(store, source) == 0
    assert [result.scores.keys() for result in results(source)] == [{TaskSplit.VALIDATION}] * 2
    again: dict[str, Any] = {"mode": "eval", "source_run": "0123456789ab"}
    run = write_run(store, "again", model=model, manifest_uri=uri, **again)
    assert finetune(store, run) == 0
    assert finetune(store, run) == 0
    assert "2 of 2 trials are done already" in capsys.readouterr().out
    for ours, theirs in zip(results(run), results(source), strict=True):
        assert ours.weights_sha256 == theirs.weights_sha256
        assert ours.scores.keys() == {TaskSplit.VALIDATION, TaskSplit.TEST}
        split = TaskSplit.VALIDATION
        assert ours.scores[split].metrics == theirs.scores[split].metrics

    changed = write_task(store, "other-labels", labels=[*LABELS[:2], "fungus"])
    run = write_run(store, "other-labels", model=model, manifest_uri=changed, **again)
    assert finetune(store, run) == USER_ERROR
    drawn = write_task(store, "drawn-otherwise", task={"test_fraction": 0.3})
    run = write_run(store, "drawn-otherwise", model=model, manifest_uri=drawn, **again)
    capsys.readouterr()
    assert finetune(store, run) == USER_ERROR
    assert "test_fraction is 0.3, and was 0.1 then" in capsys.readouterr().out


def other_vocabulary(store: TinyStore, model: str) -> dict[str, Any]:
    uri = write_task(store, "other-words", vocabulary_sha256="0" * 64)
    return {"model": model, "manifest_uri": uri}


def too_long(store: TinyStore, model: str) -> dict[str, Any]:
    uri = write_task(store, "too-long", max_seq_length=64)
    return {"model": model, "manifest_uri": uri}


def replaced_model(store: TinyStore, model: str) -> dict[str, Any]:
    source = EncoderSource(uri=model, version_id=None, files_sha256="0" * 64)
    return {"model": source, "manifest_uri": task(store, "replaced")}


def no_model_of_ours(store: TinyStore, model: str) -> dict[str, Any]:
    source = EncoderSource(uri=None, version_id=None)
    return {"model": source, "manifest_uri": task(store, "random")}


def another_program(store: TinyStore, model: str) -> dict[str, Any]:
    return {"model": model, "manifest_uri": task(store, "predict"), **PREDICT}


def too_few(store: TinyStore, model: str) -> dict[str, Any]:
    return {"model": model, "manifest_uri": task(store, "few"), "train_fraction": 0.02}


REFUSED = {
    other_vocabulary: "its vocabulary is",
    too_long: "positions for 32 tokens, and task .* is prepared with 64",
    replaced_model: "is not the model that was planned with",
    no_model_of_ours: "names no model of this project",
    another_program: "predict is another program's",
    too_few: "0.02 of the 48 training examples .* are 0",
}


@pytest.mark.parametrize("make", REFUSED)
def test_what_cannot_work_is_refused_before_training(
    pretrained: Pretrained, make: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    store, model = pretrained
    run = write_run(store, make.__name__, **make(store, model))
    before = all_files(run.root)
    assert finetune(store, run) == USER_ERROR
    assert re.search(REFUSED[make], capsys.readouterr().out)
    assert finetune(store, run, "--dry-run") == USER_ERROR
    assert re.search(REFUSED[make], capsys.readouterr().out)
    assert all_files(run.root) == before


def test_damaged_records_are_bad_data(pretrained: Pretrained) -> None:
    store, model = pretrained
    uri = task(store, "damaged")
    run = write_run(store, "damaged", model=model, manifest_uri=uri)
    data = TaskManifest.load(uri).splits[TaskSplit.TRAIN].data
    path = Path(uri).parent / data.path
    path.write_bytes(path.read_bytes()[:-1] + b"\0")
    assert finetune(store, run) == BAD_DATA


@pytest.mark.parametrize("options", [["--group", "2/2"], ["--group", "one"], ["--group", "-1/2"]])
def test_shares_count_from_zero(pretrained: Pretrained, options: list[str]) -> None:
    store, _ = pretrained
    with pytest.raises(SystemExit):
        finetune(store, store.layout.run("none"), *options)


def test_a_trial_of_another_share_is_refused(pretrained: Pretrained) -> None:
    store, model = pretrained
    run = write_run(store, "share", model=model, manifest_uri=task(store, "share"))
    options = ["--group", "0/2", "--trial", f"{TASK}.model.0.003.2"]
    assert finetune(store, run, *options) == USER_ERROR
    assert results(run) == []


def test_a_trained_model_that_changes_is_not_used(pretrained: Pretrained) -> None:
    from trained_models.errors import BadDataError
    from training.finetuning.trained import load_trial_model

    store, model = pretrained
    run = write_run(store, "changed", model=model, manifest_uri=task(store, "changed"), **QUICK)
    assert finetune(store, run, "--group", "0/2") == 0
    (result,) = results(run)
    uri = run.trial(result.trial.trial_id).result
    TrialResult.load(uri).model_copy(update={"weights_sha256": "0" * 64}).write(uri)
    with pytest.raises(BadDataError, match="Restore the folder from a backup"):
        load_trial_model(uri, store.layout)


def test_a_probe_whose_encoder_changes_is_not_used(pretrained: Pretrained) -> None:
    from trained_models.errors import UserError
    from training.finetuning.trained import load_trial_model

    store, model = pretrained
    settings: dict[str, Any] = {"frozen_encoder": True, "seeds": (1,), **QUICK}
    run = write_run(store, "probe", model=model, manifest_uri=task(store, "probe"), **settings)
    assert finetune(store, run) == 0
    (result,) = results(run)
    uri = run.trial(result.trial.trial_id).result
    assert load_trial_model(uri, store.layout).encoder is not None
    planned = result.encoder.model_copy(update={"files_sha256": "0" * 64})
    result.model_copy(update={"encoder": planned}).write(uri)
    with pytest.raises(UserError, match="is not the model that was planned with"):
        load_trial_model(uri, store.layout)
