"""Updates of other architectures than BERT, run for real, each of which loses a TPU on its way."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from local.stack.paths import REPOSITORY
from pipeline_store import identity, uris
from pipeline_store.formats import JobSpec, Ledger, RunPlan, TrainingResult, TrialResult
from pipeline_store.layout import RunLayout, VersionLayout
from tests.stack.driver import RUN_SECONDS, Pipeline
from tests.stack.story import FIRST, SECOND

pytestmark = [pytest.mark.stack, pytest.mark.thorough]

FINETUNING = "bert_finetuning"
ROBERTA: dict[str, Any] = {
    "model__architecture": "roberta",
    "vocabulary__kind": "bpe",
    "vocabulary__do_lower_case": False,
    "promotion__export_formats": ["hugging_face"],
}
T5: dict[str, Any] = {
    "model__architecture": "t5",
    "model__hidden_act": "relu",
    "vocabulary__kind": "t5",
    "vocabulary__do_lower_case": False,
    "masking__unit": "sentinel",
    "masking__max_predictions_per_seq": 13,
    # With fewer steps, or smaller ones, its first model is no better than the targets' frequencies.
    "training__train_steps": 400,
    "optimizer__learning_rate": 1e-2,
    "promotion__export_formats": ["hugging_face"],
}
PAIRS = """
[[tasks]]
name = "first"
prefix = "first: "
train = "pairs.csv"
"""


def result_without_a_break(pipeline: Pipeline, run: RunLayout) -> TrainingResult:
    """Do a run's training once more by its own command, in a process that nothing interrupts."""
    specs = [uri for uri in uris.list_files(run.root) if uri.endswith("/jobs/010-train.json")]
    spec = JobSpec.load(specs[0])
    whole = pipeline.store.run(f"{run.root[-12:-1]}0" if run.root[-1] != "0" else "f" * 12)
    uris.write(whole.config, uris.read(run.config))
    arguments = [whole.root if word == run.root else word for word in spec.arguments]
    assert whole.root in arguments
    command = [sys.executable, "-m", spec.entry_point, *arguments]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY), "CUDA_VISIBLE_DEVICES": ""}
    subprocess.run(command, cwd=REPOSITORY, env=environment, check=True)
    return TrainingResult.load(whole.training.result)


def update_with_a_lost_tpu(pipeline: Pipeline, lineage: str, settings: dict[str, Any]) -> RunLayout:
    """Make a first model from nothing, then an update of it; return the update's run."""
    first = pipeline.trigger(FIRST, lineage, **settings)
    state, tasks = pipeline.finish(first)
    assert state == "success", tasks
    second = pipeline.trigger(SECOND, lineage, **settings | {"training__train_steps": 200})
    run = pipeline.run(second)
    pipeline.admin.preempt_when_file("*", uris.join(run.training.checkpoints, "*.json"))
    state, tasks = pipeline.finish(second)
    assert state == "success", tasks
    pipeline.assert_nothing_left()
    assert len(Ledger.load(run.reservation(1).ledger).entries) == 2
    assert RunPlan.load(run.plan).parent_version is not None

    result = TrainingResult.load(run.training.result)
    assert len(result.resumed_from) == 1
    whole = result_without_a_break(pipeline, run)
    assert whole.resumed_from == []
    assert whole.weights_sha256 == result.weights_sha256
    return run


@pytest.mark.slow
def test_a_roberta_goes_on_bit_by_bit(pipeline: Pipeline) -> None:
    update_with_a_lost_tpu(pipeline, "roberta", ROBERTA)


@pytest.mark.slow
def test_a_t5_is_pretrained_and_fine_tuned_bit_by_bit(pipeline: Pipeline) -> None:
    run = update_with_a_lost_tpu(pipeline, "t5", T5)
    lineage = pipeline.store.lineage("t5")
    parent = RunPlan.load(run.plan).parent_version
    assert parent is not None
    # The first model's export, whatever the gate said of the second.
    folder = VersionLayout(lineage.version(parent)).format("hugging_face")
    task = pipeline.store.task("pairs")
    rows = ["text,target"]
    rows += [f"{word} number {n},{word}" for n in range(40) for word in ("ako", "emu", "ila")]
    uris.write(uris.join(task.root, "pairs.csv"), ("\n".join(rows) + "\n").encode())
    uris.write(task.text_to_text, PAIRS.encode())
    pipeline.api.wait_for_dag(FINETUNING)
    pipeline.api.unpause(FINETUNING)
    try:
        cut, whole = (tuned(pipeline, folder, is_cut=is_cut) for is_cut in (True, False))
    finally:
        pipeline.api.pause(FINETUNING)
    assert cut.resumed_from != []
    assert whole.resumed_from == []
    assert cut.weights_sha256 == whole.weights_sha256
    assert measured(cut) == measured(whole)


def measured(trial: TrialResult) -> dict[str, Any]:
    """Return the scores and what was written; each attempt has it in a folder of its own."""
    return {
        split: scores.model_dump(exclude={"predictions": {"path"}})
        for split, scores in trial.scores.items()
    }


def tuned(pipeline: Pipeline, folder: str, *, is_cut: bool) -> TrialResult:
    """Fine-tune a T5 by a run of the DAG; return its one trial's result."""
    conf = {
        "text_to_text.init_checkpoint": folder,
        "text_to_text.max_source_length": 24,
        "text_to_text.max_target_length": 8,
        "finetuning.tasks": ["pairs"],
        "finetuning.learning_rates": [3e-3],
        "finetuning.random_seeds": [1],
        "finetuning.num_train_epochs": 40.0,
        "finetuning.global_batch_size": 16,
        "finetuning.eval_batch_size": 16,
        "finetuning.steps_per_loop": 5,
        "finetuning.parallel_tpus": 1,
        "encoder.compare_with": [],
    }
    run_id = pipeline.api.trigger(FINETUNING, conf)
    run = pipeline.store.run(identity.run_key(FINETUNING, run_id))
    trial = run.trial("pairs.model.0.003.1")
    if is_cut:
        checkpoints = uris.join(trial.training.checkpoints, "*.json")
        pipeline.admin.preempt_when_file("*", checkpoints)
    ended = pipeline.api.wait_for_run(FINETUNING, run_id, seconds=RUN_SECONDS)
    states = {task.task_id: task.state for task in pipeline.api.task_instances(FINETUNING, run_id)}
    assert ended.state == "success", states
    pipeline.assert_nothing_left()
    assert pipeline.vm_processes("training.finetune") == []
    return TrialResult.load(trial.result)
