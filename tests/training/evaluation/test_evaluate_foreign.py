"""Weights from elsewhere are scored like a model of this project, and known again."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from pipeline_store.formats import EvaluationReport
from pipeline_store.layout import RunLayout
from tests.training.corpora import TOKENS, TinyStore, tiny_config
from tests.training.importing.test_import_hugging_face import without
from tests.training.jobs import USER_ERROR, train
from tests.training.pretrained import (
    SETTINGS,
    bert_weights,
    write_google,
    write_hugging_face,
    write_vocabulary,
)
from training import evaluate

DAY = "2026-01-01"
MORE = {"masking__max_seq_length": 16, "model__vocab_size": 330}
Capture = pytest.CaptureFixture[str]


@dataclass
class Scored:
    """A run that began with weights from elsewhere, which have a row for each token alone."""

    store: TinyStore
    run: RunLayout
    manifest: str
    source: str

    def evaluate(self, output: Path, *models: str) -> int:
        words = ["--store", self.store.layout.root, "--config", self.run.config]
        words += ["--current-set", DAY, "--set", f"{DAY}={self.manifest}"]
        words += [word for model in models for word in ("--model", model)]
        return evaluate.main([*words, "--output", str(output)])


def source(folder: Path, *, seed: int = 0) -> str:
    """Write a folder whose embedding ends with the vocabulary; return its path."""
    weights = bert_weights(seed)
    for name in ("bert.embeddings.word_embeddings.weight", "cls.predictions.bias"):
        weights[name] = weights[name][: len(TOKENS)]
    sizes = {"vocab_size": len(TOKENS)}
    return write_hugging_face(folder, without(weights, "bert.pooler", "cls.seq"), sizes)


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Scored:
    """Return a trained run and its source; tests must not change them."""
    folder = tmp_path_factory.mktemp("scored")
    uri = source(folder / "hf")
    # The run's own settings ask for no masked-LM head; scoring does all the same.
    config = tiny_config(
        **SETTINGS | MORE, model__init_checkpoint=uri, model__init_encoder_only=True
    )
    store = TinyStore.create(folder / "store", config)
    run, manifest = store.run("run", config), store.partition(DAY)
    assert train(store, run, manifest) == 0
    return Scored(store, run, manifest, uri)


@pytest.fixture(scope="module")
def report(scored: Scored, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.json"
    models = [f"candidate={scored.run.training.root}", f"baseline={scored.source}"]
    assert scored.evaluate(path, *models) == 0
    return path


@pytest.mark.thorough
def test_a_folder_has_the_same_scores_whatever_was_scored_before(
    scored: Scored, report: Path, tmp_path: Path
) -> None:
    _, baseline = EvaluationReport.load(str(report)).models
    assert baseline.model_uri == scored.source
    alone = tmp_path / "alone.json"
    assert scored.evaluate(alone, f"candidate={scored.source}") == 0
    (candidate,) = EvaluationReport.load(str(alone)).models
    assert candidate.sets == baseline.sets
    assert candidate.files_sha256 == baseline.files_sha256


def test_the_masked_lm_head_is_the_sources(scored: Scored, report: Path, tmp_path: Path) -> None:
    weights = source(tmp_path / "other", seed=1)
    path = tmp_path / "other.json"
    assert scored.evaluate(path, f"candidate={weights}") == 0
    (other,) = EvaluationReport.load(str(path)).models
    _, baseline = EvaluationReport.load(str(report)).models
    assert other.sets[0].token_counts == baseline.sets[0].token_counts
    assert other.sets[0].loss_sums != baseline.sets[0].loss_sums


def test_the_report_is_kept_for_the_same_content_and_refused_for_another(
    scored: Scored, report: Path, tmp_path: Path, capsys: Capture
) -> None:
    before, copy = report.read_bytes(), Path(source(tmp_path / "copy"))
    # Files that decide nothing.
    (copy / "README.md").write_text("A copy.")
    models = [f"candidate={scored.run.training.root}", f"baseline={copy}"]
    assert scored.evaluate(report, *models) == 0
    assert "exists and is kept" in capsys.readouterr().out

    config = json.loads((copy / "config.json").read_text())
    changed = {
        "config.json": json.dumps(config | {"hidden_act": "gelu_new"}).encode(),
        "vocab.txt": (copy / "vocab.txt").read_bytes()[::-1],
        "model.safetensors": Path(source(tmp_path / "1", seed=1), "model.safetensors").read_bytes(),
    }
    for name, content in changed.items():
        original = (copy / name).read_bytes()
        (copy / name).write_bytes(content)
        assert scored.evaluate(report, *models) == USER_ERROR, name
        output = capsys.readouterr().out
        assert "made from something else: model baseline is" in output
        (copy / name).write_bytes(original)
    assert report.read_bytes() == before


def test_a_tensorflow_checkpoint_is_scored(scored: Scored, tmp_path: Path) -> None:
    # Its gelu is the other one, unless its configuration says nothing of that.
    weights = bert_weights()
    prefix = write_google(tmp_path / "google", weights, {"hidden_act": "gelu_new"})
    config = tiny_config(**SETTINGS, masking__max_seq_length=16, model__hidden_act="gelu_new")
    run = scored.store.run("tanh", config)
    other = Scored(scored.store, run, scored.manifest, prefix)
    path = tmp_path / "report.json"
    assert other.evaluate(path, f"baseline={prefix}") == 0
    before = path.read_bytes()
    assert other.evaluate(path, f"baseline={prefix}") == 0
    (model,) = EvaluationReport.load(str(path)).models
    assert model.model_uri == prefix
    assert np.isfinite(model.sets[0].loss)
    Path(tmp_path, "google", "bert_config.json").write_text("{}")
    assert other.evaluate(path, f"baseline={prefix}") == USER_ERROR
    assert path.read_bytes() == before


def test_what_cannot_be_scored_is_refused(scored: Scored, tmp_path: Path, capsys: Capture) -> None:
    encoder = without(bert_weights(), "cls.")
    unknown = Path(source(tmp_path / "unknown"))
    write_vocabulary(unknown, [*TOKENS[:-1], "\N{SNOWMAN}"])
    cased = {
        "encoder": (
            write_hugging_face(tmp_path / "encoder", encoder),
            "It is an encoder without a masked-LM head, so it predicts nothing",
        ),
        "wide": (
            write_hugging_face(tmp_path / "wide", bert_weights(), {"num_attention_heads": 8}),
            "model.num_attention_heads is 8 there and 4 here",
        ),
        "unknown": (str(unknown), "cannot be scored: of 1 tokens of the lineage's vocabulary"),
        "nothing": (str(tmp_path), "is not a model: expected a model version folder"),
    }
    for uri, message in cased.values():
        assert scored.evaluate(tmp_path / "r.json", f"candidate={uri}") == USER_ERROR
        assert message in capsys.readouterr().out
    assert not (tmp_path / "r.json").exists()
