"""A run of bert_finetuning that fine-tunes a T5, task by task, in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from airflow.sdk.exceptions import AirflowFailException

from operators.classifiers import ExportClassifiersOperator
from operators.finetuning import (
    PlanFinetuningOperator,
    PrepareTaskOperator,
    ReportFinetuningOperator,
)
from pipeline_store import uris
from pipeline_store.formats import (
    FinetuningPlan,
    ModelExports,
    OutcomeKind,
    RunEstimate,
    RunOutcome,
    TaskManifest,
    TaskSplit,
    TextCheck,
    TrialResult,
)
from pipeline_store.layout import StoreLayout
from tests.plugins.driver import connect
from tests.plugins.test_finetuning import Request
from tests.tpu_lifecycle.world import World
from tests.training.text_to_text.models import write_model
from tests.training.text_to_text.vocabularies import WORDS
from trained_models.text_to_text.sizes import describe
from trained_models.text_to_text.weights import weights
from training import export_text_to_text, finetune

MIXTURE = "words"
DESCRIPTION = """
[[tasks]]
name = "color"
target = "label"
train = "color.csv"

[[tasks]]
name = "swap"
prefix = "swap: "
train = "swap.jsonl"
weight = 2.0
"""
ASKED: dict[str, Any] = {
    "finetuning__tasks": [MIXTURE],
    "finetuning__global_batch_size": 16,
    "finetuning__eval_batch_size": 16,
    "finetuning__num_train_epochs": 1.0,
    "finetuning__random_seeds": [1, 2],
    "finetuning__export_formats": ["hugging_face", "saved_model"],
    "text_to_text__init_checkpoint": "imports/t5",
    "text_to_text__max_source_length": 24,
    "text_to_text__max_target_length": 16,
}


def write_mixture(store: StoreLayout, description: str = DESCRIPTION) -> None:
    random = np.random.default_rng(4)
    rows = [f"{random.choice(WORDS[:5])} {' '.join(random.choice(WORDS, 3))}" for _ in range(60)]
    rows = list(dict.fromkeys(rows))
    task = store.task(MIXTURE)
    table = ["text,target", *(f"{row},{row.split()[0]}" for row in rows)]
    lines = [{"text": row, "target": " ".join(reversed(row.split()))} for row in rows]
    uris.write(task.text_to_text, description.encode())
    uris.write(uris.join(task.root, "color.csv"), ("\n".join(table) + "\n").encode())
    content = "".join(json.dumps(line) + "\n" for line in lines)
    uris.write(uris.join(task.root, "swap.jsonl"), content.encode())


@pytest.fixture
def request_(tmp_path: Path, world: World, monkeypatch: pytest.MonkeyPatch) -> Request:
    """A request to an installation that has a T5, a mixture and a cloud."""
    connect(world, monkeypatch)
    store = StoreLayout(str(tmp_path / "store"))
    (tmp_path / "store/imports").mkdir(parents=True)
    write_model(tmp_path / "store/imports/t5", "1.1")
    write_mixture(store)
    return Request(store)


def prepared(request: Request) -> TaskManifest:
    """Prepare the mixture as the DAG does, in a process of its own."""
    operator = PrepareTaskOperator(
        task_id="prepare", store_uri=request.store.root, task_name=MIXTURE
    )
    return TaskManifest.load(operator.execute(request.context)["manifest"])


@pytest.mark.thorough
def test_a_t5_is_checked_prepared_planned_trained_and_reported(request_: Request) -> None:
    store, run = request_.store, request_.run
    assert request_.validate(**ASKED) == [MIXTURE]
    manifest = prepared(request_)
    # What is trained later is what was checked, whatever becomes of the files.
    uris.delete(uris.join(store.task(MIXTURE).root, "swap.jsonl"))
    labels = manifest.splits[TaskSplit.TRAIN].labels
    assert {name.partition(".")[0] for name in labels} == {"color"}
    assert manifest.splits[TaskSplit.TRAIN].records > sum(labels.values())

    plan_task = PlanFinetuningOperator(task_id="plan", store_uri=store.root)
    [rental] = plan_task.execute(request_.context)
    trials = ["words.model.0.001.1", "words.model.0.001.2"]
    plan = FinetuningPlan.load(run.finetuning_plan)
    assert [trial.trial_id for trial in plan.trials] == trials
    assert plan.models["model"].uri == uris.join(store.root, "imports/t5")
    assert finetune.main([*rental["arguments"], "--dry-run"]) == 0
    assert not uris.list_files(run.trials)
    assert finetune.main(rental["arguments"]) == 0
    results = [TrialResult.load(run.trial(name).result) for name in trials]
    assert results[0].weights_sha256 != results[1].weights_sha256
    assert finetune.main(rental["arguments"]) == 0

    report = ReportFinetuningOperator(task_id="report", store_uri=store.root)
    best = report.execute(request_.context)[MIXTURE]
    page = uris.read(run.training_page).decode()
    for metric in ("token_accuracy", "color.accuracy", "color.invalid_share", "swap.rouge_l"):
        assert metric in page
    assert "most frequent answer" in page
    test = next(one for one in results if one.trial.trial_id == best).scores[TaskSplit.TEST]
    assert set(test.intervals) == set(test.metrics) - {"token_accuracy"}
    place = uris.join(run.trial(best).root, test.predictions.path)
    written = [json.loads(line) for line in uris.read(place).decode().splitlines()]
    assert {line["task"] for line in written} == {"color", "swap"}
    assert len(written) == test.examples == manifest.splits[TaskSplit.TEST].records

    export = ExportClassifiersOperator(task_id="export", store_uri=store.root)
    assert export.execute(request_.context).keys() == {best}
    assert RunOutcome.load(run.outcome).outcome is OutcomeKind.COMPLETED
    layout = run.trial_exports(best)
    exports = ModelExports.load(layout.record)
    checks = {name: exported.check for name, exported in exports.formats.items()}
    sizes = describe(uris.join(layout.root, exports.formats["hugging_face"].folder))
    # Its own three texts, and sixteen of those that it was scored on, of each task and split.
    assert checks == {
        "hugging_face": TextCheck(weights=len(weights(sizes)), texts=0),
        "saved_model": TextCheck(weights=0, texts=checks["saved_model"].texts),
    }
    assert checks["saved_model"].texts > 16

    folder = uris.join(run.exports.root, "t5")
    words = ["--run", run.trial(best).root, "--format", "hugging_face", "--to", folder]
    assert export_text_to_text.main(words) == 0


def test_what_it_takes_is_estimated_from_the_models_size(request_: Request) -> None:
    request_.validate(**ASKED, tpu__accelerator_type="v5litepod-1")
    estimate = RunEstimate.load(request_.run.estimate)
    assert any("2 = 1 task(s) x models (model)" in line for line in estimate.lines)
    # Nothing tells how many examples there are before they are read.
    assert any("words: not known before it is prepared" in line for line in estimate.lines)


def without_vocabulary(store: StoreLayout) -> None:
    uris.delete(uris.join(store.root, "imports/t5/spiece.model"))


def without_files(store: StoreLayout) -> None:
    uris.delete(uris.join(store.task(MIXTURE).root, "color.csv"))


def with_empty_targets(store: StoreLayout) -> None:
    uris.write(uris.join(store.task(MIXTURE).root, "color.csv"), b"text,target\nred,\nblue,\n")


def without_description(store: StoreLayout) -> None:
    uris.delete(store.task(MIXTURE).text_to_text)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (without_vocabulary, r"text_to_text\.init_checkpoint: .*has no spiece\.model"),
        (without_files, r"task 'words': task color: train: no file matches"),
        (with_empty_targets, r"color\.csv: none of its first examples can be used; line 2"),
        (without_description, r"tasks/words/text_to_text\.toml does not exist"),
    ],
)
def test_what_is_not_there_is_refused_before_a_tpu_is_rented(
    request_: Request, spoil: Callable[[StoreLayout], None], said: str
) -> None:
    spoil(request_.store)
    with pytest.raises(AirflowFailException, match=said):
        request_.validate(**ASKED)
    assert not uris.exists(request_.run.record)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"finetuning__mode": "predict"}, r"finetuning\.mode: predict is for classifiers"),
        ({"encoder__compare_with": ["start"]}, r"versions of a lineage are encoders"),
        ({"finetuning__frozen_encoder": True}, r"finetuning\.frozen_encoder: True means nothing"),
        ({"text_to_text__init_checkpoint": "/etc"}, "lies below none of the folders"),
    ],
)
def test_what_only_classifiers_have_is_refused(
    request_: Request, settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(AirflowFailException, match=said):
        request_.validate(**ASKED | settings)


def test_a_leak_is_refused_by_prepare(request_: Request) -> None:
    folder = request_.store.task(MIXTURE).root
    known = uris.read(uris.join(folder, "color.csv")).splitlines(keepends=True)
    uris.write(uris.join(folder, "test.csv"), b"".join(known[:5]))
    spoiled = DESCRIPTION.replace('"color.csv"', '"color.csv"\ntest = "test.csv"')
    write_mixture(request_.store, spoiled)
    request_.validate(**ASKED)
    with pytest.raises(AirflowFailException, match="are also in another split"):
        prepared(request_)
