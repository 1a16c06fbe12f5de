"""The task *judge*: whose candidates are rejected for what became of their embeddings."""

from __future__ import annotations

from pathlib import Path

import pytest

from model_registry import registry
from operators.promotion import JudgeOperator
from pipeline_store import uris
from pipeline_store.formats import Heritage, RunOutcome, Verdict
from tests.model_registry.runs import FinishedRun
from tests.plugins.contexts import context_of

SENTENCE_ENCODER = Heritage(sentence_transformers={"modules.json": []})


@pytest.mark.parametrize(
    ("heritage", "expected"),
    [
        (SENTENCE_ENCODER, "rejected: retrieval"),
        (Heritage(pooler_from="published/base"), "promoted"),
        (None, "promoted"),
    ],
)
def test_embeddings_of_sentence_encoders_are_judged(
    tmp_path: Path, heritage: Heritage | None, expected: str
) -> None:
    first = FinishedRun(str(tmp_path), "1")
    registry.publish(first.store, first.run)
    run = FinishedRun(str(tmp_path), "2", parent=first.version_id, heritage=heritage)
    run.embed(candidate=[2.0] * 40, baseline=[1.0] * 40)
    uris.delete(run.run.verdict(first.version_id))

    operator = JudgeOperator(task_id="judge", store_uri=str(tmp_path))
    assert operator.execute(context_of("dag", "2")) == expected

    verdict = Verdict.load(run.run.verdict(first.version_id))
    assert verdict.retrieval is not None
    assert verdict.retrieval.difference == -1.0
    if expected != "promoted":
        assert RunOutcome.load(run.run.outcome).reason.startswith(expected)
