"""An exported classifier, loaded by transformers as it is, answers as the trainer scored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline_config.task import TaskKind
from pipeline_store.formats import TaskSplit
from tests.parity.conftest import RunTorch
from tests.training.finetuning.text_tasks import (
    LENGTH,
    folder_of,
    make_store,
    manifest_of,
    manifest_path,
    scored_texts,
    train_run,
)
from trained_models.downstream import metrics
from training import export_classifier
from training.finetuning.task_data import Task

pytestmark = pytest.mark.parity

# As the folder's card says.
ARGUMENTS: dict[TaskKind, dict[str, Any]] = {
    "classification": {"top_k": None},
    "multi_label": {"top_k": None, "function_to_apply": "sigmoid"},
    "regression": {"function_to_apply": "none"},
}


@pytest.mark.parametrize(
    ("kind", "pairs"), [("classification", False), ("multi_label", True), ("regression", False)]
)
def test_transformers_answers_the_same(
    kind: TaskKind, pairs: bool, run_torch: RunTorch, tmp_path: Path
) -> None:
    run = train_run(make_store(tmp_path / "store"), kind, pairs=pairs)
    assert export_classifier.main([*run.arguments, "--format", "hugging_face"]) == 0
    texts, outputs = scored_texts(run)
    inputs = Task.load(str(manifest_path(run))).examples(TaskSplit.TEST).inputs
    names = ("input_ids", "attention_mask", "token_type_ids")
    asked = {
        "rows": {
            theirs: inputs[ours].tolist()
            for theirs, ours in zip(
                names, ("input_word_ids", "input_mask", "input_type_ids"), strict=True
            )
        },
        "texts": [dict(zip(("text", "text_pair"), row, strict=False)) for row in texts],
        "arguments": ARGUMENTS[kind],
        "max_length": LENGTH,
    }
    (tmp_path / "asked.json").write_text(json.dumps(asked))
    program = Path(__file__).with_name("read_classifiers.py")
    printed = run_torch(program, folder_of(run, "hugging_face"), tmp_path / "asked.json")
    found = json.loads(printed.splitlines()[-1])

    assert found["class"] == "BertForSequenceClassification"
    assert found["missing_keys"] == found["unexpected_keys"] == found["mismatched_keys"] == []
    difference = np.abs(np.array(found["logits"]) - outputs).max()
    print(f"{kind}: logits differ by {difference:.1e}")
    assert difference < 1e-4

    rows = [
        row[: mask.sum()].tolist()
        for row, mask in zip(inputs["input_word_ids"], inputs["input_mask"], strict=True)
    ]
    # Special tokens that are written in a text are special there, and pairs are cut otherwise.
    same = [mine == theirs for mine, theirs in zip(rows, found["ids"], strict=True)]
    assert np.mean(same) > (0.3 if pairs else 0.8)
    wanted = metrics.probabilities(kind, outputs)
    labels = manifest_of(run).labels or ["label"]
    for is_same, answer, shares in zip(same, found["answers"], wanted, strict=True):
        answers = answer if isinstance(answer, list) else [answer]
        scores = {one["label"]: one["score"] for one in answers}
        if is_same:
            np.testing.assert_allclose([scores[name] for name in labels], shares, atol=1e-4)
