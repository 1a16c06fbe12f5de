"""What a candidate is compared with where its lineage's masked-LM head was new."""

from __future__ import annotations

from pathlib import Path

from model_registry import registry
from operators import job_arguments
from pipeline_store.formats import TrainingResult
from tests.model_registry.runs import FinishedRun


def baseline(run: FinishedRun) -> str:
    [found] = [
        word.removeprefix("baseline=")
        for word in job_arguments.evaluate(run.run, run.store)
        if word.startswith("baseline=")
    ]
    return found


def test_the_version_under_a_head_that_was_trained_alone(tmp_path: Path) -> None:
    first = FinishedRun(str(tmp_path), "1")
    registry.publish(first.store, first.run)
    run = FinishedRun(str(tmp_path), "2", parent=first.version_id)
    assert baseline(run) == run.lineage.version(first.version_id)

    head = run.run.head(first.version_id)
    TrainingResult.load(run.run.training.result).create(head.result)
    assert baseline(run) == head.root
    assert head.root.endswith(f"/{first.version_id}")
