"""The whole command on a language of its own: every part is real, only the text is small."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from beam_jobs.labelled.description import check_task
from local.demo import finetuning
from local.demo.tasks import neighbours, trials
from local.demo.tasks.modules import Use
from pipeline_store.layout import StoreLayout
from tests.local.demo.docstrings import documented

SIZES = {Use.TRAIN: 60, Use.VALIDATION: 20, Use.TEST: 40}


def last_line(capfd: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capfd.readouterr().out.splitlines()[-1])
    return found


@pytest.mark.slow
def test_the_command_trains_once_and_says_who_is_better(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(finetuning, "harvest", lambda: documented(600))
    monkeypatch.setattr(neighbours, "SIZES", SIZES)
    arguments = ["neighbours", f"--state-dir={tmp_path}", "--seeds=1,2", "--pretraining-steps=10"]
    assert finetuning.main(arguments) == 0
    found = last_line(capfd)
    assert found["task"] == "neighbours"
    assert found["examples"] == {str(split): size for split, size in SIZES.items()}
    assert found["metrics"]["majority"]["accuracy"] == [0.5]
    for model in ("model", "start"):
        assert len(found["metrics"][model]["accuracy"]) == 2
    for other in ("majority", "tfidf", "tfidf_cosine", "start"):
        difference, low, high = found["differences"][other]
        mean = [np.mean(found["metrics"][name]["accuracy"]) for name in ("model", other)]
        assert difference == pytest.approx(mean[0] - mean[1])
        assert low <= difference <= high
        assert found[f"beats_{other}"] is (low > 0.0)

    store = tmp_path / "finetuning"
    written = {path: path.stat().st_mtime_ns for path in store.rglob("result.json")}
    # Of the pre-training, and of each trial two: trained, and scored.
    assert len(written) == 1 + 4 * 2
    assert finetuning.main(arguments) == 0
    again = last_line(capfd)
    assert {path: path.stat().st_mtime_ns for path in store.rglob("result.json")} == written
    assert again["metrics"] == found["metrics"]


def test_a_task_can_be_built_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(finetuning, "harvest", lambda: documented(300))
    store = StoreLayout(str(tmp_path / "elsewhere"))
    assert finetuning.main(["docstrings", "--build-only", f"--store={store.root}"]) == 0
    assert list(check_task(store, "docstrings")) == []
    assert store.task("docstrings").root in capfd.readouterr().out
    assert not Path(store.runs).exists()


def test_predictions_of_other_examples_are_refused(tmp_path: Path) -> None:
    uri = str(tmp_path / "predictions.npz")
    outputs = np.array([[0.1, 0.9], [0.8, 0.2], [0.3, 0.7]], np.float32)
    np.savez(uri, labels=np.array([1, 1, 0]), outputs=outputs)
    assert trials.right_ones(uri, [1, 1, 0]).tolist() == [True, False, False]
    with pytest.raises(ValueError, match="other examples"):
        trials.right_ones(uri, [1, 0, 1])
