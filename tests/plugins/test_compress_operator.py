"""The DAG's task that makes smaller models, on a classifier that was trained for real."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowSkipException

from operators.classifiers import CompressClassifiersOperator
from pipeline_config import parse_finetuning_config, with_overrides
from pipeline_store import identity, uris
from pipeline_store.formats import CompressedModel, OutcomeKind, RunOutcome
from tests.training.finetuning.text_tasks import make_store, train_run

DAG_ID, RUN_ID = "bert_finetuning", "manual__1"


def context() -> Any:
    run = SimpleNamespace(
        dag_id=DAG_ID, run_id=RUN_ID, run_type="manual", conf={}, partition_key=None
    )
    ti = SimpleNamespace(map_index=-1, try_number=1, xcom_push=lambda key, value: None)
    return {"dag_run": run, "ti": ti}


@pytest.mark.thorough
def test_children_of_the_best_classifier_are_made_and_a_refused_one_fails_nothing(
    tmp_path: Path,
) -> None:
    store = make_store(tmp_path)
    one = train_run(store, "classification", key=identity.run_key(DAG_ID, RUN_ID))
    operator = CompressClassifiersOperator(task_id="compress", store_uri=store.root)
    with pytest.raises(AirflowSkipException, match="smaller models are made"):
        operator.execute(context())
    config = parse_finetuning_config(uris.read(one.run.config), one.run.config)
    asked = {"compression.children": ["tflite_float16", "trim"], "compression.max_megabytes": 0.09}
    asked |= {"compression.max_metric_loss": 1.0}
    uris.write(one.run.config, with_overrides(config, asked).to_bytes())
    assert operator.execute(context()) == {one.trial_id: {"tflite_float16": True, "trim": False}}
    outcome = RunOutcome.load(one.run.outcome)
    assert outcome.outcome is OutcomeKind.COMPLETED
    assert "1 of 2 smaller models" in outcome.reason
    refused = CompressedModel.load(one.run.children(one.trial_id).child("trim").record)
    assert any("compression.max_megabytes" in reason for reason in refused.reasons)
    assert refused.files == []
