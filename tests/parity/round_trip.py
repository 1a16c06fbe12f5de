"""The way of a published model, by the commands: import, update, gate, export, transformers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from model_registry import gate, registry
from model_registry.__main__ import main as model_registry
from pipeline_config import PipelineConfig, load_preset, with_overrides
from pipeline_store.formats import EvaluationReport, ModelExports, ModelVersion, Verdict
from pipeline_store.layout import RunLayout, StoreLayout
from tests.beam_jobs.workspace import as_text, documents
from tests.parity.conftest import RunTorch
from training import evaluate, export_model, import_model, train
from training.architectures.models import build_model
from training.model.checkpoints import load_weights

DAY = "2026-01-01"
LENGTH = 128
STEPS = 4
SETTINGS: dict[str, Any] = {
    "corpus.validation_fraction": 0.3,
    "masking.max_seq_length": LENGTH,
    "model.lineage_id": "published",
    "training.train_steps": STEPS,
    "training.steps_per_loop": 2,
    "training.checkpoint_interval": STEPS,
    "training.global_batch_size": 8,
    "optimizer.learning_rate": 1e-3,
    "optimizer.warmup_steps": 1,
    "evaluation.global_batch_size": 8,
    "evaluation.max_records_per_set": 60,
    "promotion.min_documents": 5,
    "promotion.export_formats": ["hugging_face"],
}
_MASKED = ["Bakeli [MASK] mo.", "[MASK] wen."]


@dataclass(frozen=True)
class RoundTrip:
    """What became of a published model.

    :ivar imported: the lineage's first version.
    :ivar verdict: on the update.
    :ivar found: what transformers says of the exported folder.
    :ivar difference: of its logits from the trained model's, the largest.
    :ivar largest: of the trained model's logits, by magnitude.
    :ivar moved: how far the update has moved the logits from the first version's, at most.
    """

    imported: ModelVersion
    verdict: Verdict
    found: dict[str, Any]
    difference: float
    largest: float
    moved: float


class Lineage:
    """A store with text of a day, in which a lineage begins with a model and is updated once."""

    def __init__(self, folder: Path, source: str, settings: dict[str, Any] | None = None) -> None:
        self._folder = folder
        self.store = StoreLayout(str(folder / "store"))
        self._layout = self.store.lineage(SETTINGS["model.lineage_id"])
        corpus = Path(self.store.root, "corpus", DAY)
        corpus.mkdir(parents=True)
        (corpus / "a.txt").write_bytes(as_text(documents(60)))
        preset = str(folder / "published.toml")
        words = [source, "--write-preset", preset, "--extends", "smoke"]
        assert import_model.main(words) == 0
        self._preset = preset
        self._settings = SETTINGS | (settings or {})

    @property
    def config(self) -> PipelineConfig:
        return with_overrides(load_preset(self._preset), self._settings)

    def begin(self) -> ModelVersion:
        """Make the model the first version, with its scores."""
        words = ["--preset", self._preset, "--partition", DAY, "--store", self.store.root]
        for name, value in self._settings.items():
            text = value if isinstance(value, str) else json.dumps(value)
            words += ["--set", f"{name}={text}"]
        assert model_registry(["import", *words]) == 0
        version = registry.production(self._layout)
        assert version is not None
        return version

    def update(self, version: ModelVersion) -> RunLayout:
        """Train a candidate from it and score both."""
        run, parent = self.store.run("update"), self._layout.version(version.version_id)
        [manifest] = map(str, Path(self._layout.manifests(DAY)).glob("*.json"))
        Path(run.config).parent.mkdir(parents=True)
        Path(run.config).write_bytes(self.config.to_bytes())
        words = ["--run", run.root, "--store", self.store.root, "--manifest", manifest]
        assert train.main([*words, "--init-model", parent]) == 0
        words = ["--store", self.store.root, "--config", run.config, "--current-set", DAY]
        words += ["--set", f"{DAY}={manifest}", "--output", run.evaluation(version.version_id)]
        words += ["--model", f"candidate={run.training.root}", "--model", f"baseline={parent}"]
        assert evaluate.main(words) == 0
        return run

    def judge(self, run: RunLayout, version: ModelVersion) -> Verdict:
        report = EvaluationReport.load(run.evaluation(version.version_id))
        promotion = self.config.promotion
        return gate.judge(report, promotion, baseline_version=version.version_id)

    def export(self, run: RunLayout) -> Path:
        """Return a Hugging Face folder of the candidate."""
        words = ["--model", run.training.root, "--store", self.store.root, "--config", run.config]
        assert export_model.main([*words, "--output", run.exports.root]) == 0
        exported = ModelExports.load(run.exports.record).formats["hugging_face"]
        return Path(run.exports.root, exported.folder)

    def logits(self, model_uri: str, rows: dict[str, np.ndarray]) -> np.ndarray:
        """Return what a model of the store predicts at every place of rows, [R, S, V]."""
        model = build_model(self.config)
        load_weights(model, model_uri)
        inputs = {
            "input_word_ids": rows["input_ids"],
            "input_mask": rows["attention_mask"],
            "input_type_ids": rows["token_type_ids"],
            "masked_lm_positions": np.tile(
                np.arange(LENGTH, dtype=np.int32), (len(rows["input_ids"]), 1)
            ),
        }
        logits: np.ndarray = model(inputs, training=False)["mlm_logits"].numpy()
        return logits

    def parent(self, version: ModelVersion) -> str:
        return self._layout.version(version.version_id)


def round_trip(lineage: Lineage, folder: Path, run_torch: RunTorch, vocab_size: int) -> RoundTrip:
    """Go all the way, and compare what transformers computes with the trained model.

    :param folder: for what is handed over.
    """
    version = lineage.begin()
    run = lineage.update(version)
    verdict = lineage.judge(run, version)
    exported = lineage.export(run)
    rows = _rows(vocab_size)
    asked = {
        "texts": _MASKED,
        "masked": _MASKED,
        "pairs": False,
        "rows": {name: values.tolist() for name, values in rows.items()},
    }
    (folder / "asked.json").write_text(json.dumps(asked))
    program, result = Path(__file__).with_name("read_exports.py"), folder / "result.npz"
    printed = run_torch(program, exported, folder / "asked.json", result)
    ours = lineage.logits(run.training.root, rows)
    before = lineage.logits(lineage.parent(version), rows)
    return RoundTrip(
        imported=version,
        verdict=verdict,
        found=json.loads(printed.splitlines()[-1]),
        difference=float(np.abs(np.load(result)["logits"] - ours).max()),
        largest=float(np.abs(ours).max()),
        moved=float(np.abs(ours - before).max()),
    )


def _rows(vocab_size: int) -> dict[str, np.ndarray]:
    """Return three rows with padding and two segments."""
    random, places = np.random.default_rng(1), np.arange(LENGTH)
    mask = (places < [[LENGTH], [LENGTH // 2], [LENGTH - 9]]).astype(np.int32)
    return {
        "input_ids": random.integers(5, vocab_size, mask.shape).astype(np.int32) * mask,
        "attention_mask": mask,
        "token_type_ids": (places > LENGTH // 3).astype(np.int32) * mask,
    }
