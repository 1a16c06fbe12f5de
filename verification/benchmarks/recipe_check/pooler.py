"""Checks that exports keep a published model's pooler, which masked-LM training does not change."""

from __future__ import annotations

import shutil
import sys
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from beam_jobs.cli import JobArguments
from beam_jobs.prepare_corpus import prepare_partition
from beam_jobs.train_vocabulary import ensure_vocabulary
from local.demo import tiny
from pipeline_config import PipelineConfig, load_preset, with_overrides
from pipeline_store import uris
from pipeline_store.layout import StoreLayout
from trained_models.architectures.architecture import weights
from trained_models.importing.sources import WEIGHTS
from training import train
from training.exporting.writing import HUGGING_FACE, FormatWriter
from verification.benchmarks.recipe_check.finding import Figures, Finding

NAME = "pooler"
PARTITION = "2026-01-01"
STEPS = 5
_POOLER = "bert.pooler."


def check(state_dir: Path) -> Finding:
    """Train from a model with a pooler, on masked tokens only, and export the result in two ways.

    Before, a pooler was written only if a next-sentence head was trained. Today it is also written
    if a pooler was imported. The weights are random; the commands are those of the product.

    :param state_dir: parent folder of the store, which is written again.
    """
    # The import takes seconds.
    from training.exporting.exporter import Exporter

    @dataclass(frozen=True)
    class Earlier(Exporter):
        """The exporter with its earlier rule."""

        @property
        def has_pooler(self) -> bool:
            """Return whether a next-sentence head was trained."""
            return self.has_next_sentence_head

    root = state_dir / NAME
    shutil.rmtree(root, ignore_errors=True)
    store, config = StoreLayout(str(root.resolve())), _config()
    manifest = _prepare(store, config)
    source = _publish(root / "published", store, config)
    model = _train(store, config, manifest, source)
    before, after = (
        export(exporter.load(model, store, config), root / f"export-{exporter.__name__}", source)
        for exporter in (Earlier, Exporter)
    )
    return Finding(NAME, before=before, after=after, holds=is_kept(before, after))


def is_kept(before: Figures, after: Figures) -> bool:
    """Return whether only today's export has the pooler, as it was published."""
    return (
        before["pooler_tensors"] == 0
        and after["pooler_tensors"] == 2
        # The layers below have changed, so the export is not just a copy of the source.
        and after["pooler_difference"] == 0 < after["others_difference"]
    )


def _config() -> PipelineConfig:
    steps = ("train_steps", "checkpoint_interval", "steps_per_loop")
    own: dict[str, Any] = {f"training.{name}": STEPS for name in steps}
    return with_overrides(load_preset("smoke"), tiny.SETTINGS | own | {"optimizer.warmup_steps": 0})


def _prepare(store: StoreLayout, config: PipelineConfig) -> str:
    tiny.write_partition(store, PARTITION, seed=1, documents=100)
    arguments = JobArguments(config, store, PARTITION, config.corpus.input_pattern)
    ensure_vocabulary(arguments)
    return prepare_partition(arguments).manifest_uri


def _publish(folder: Path, store: StoreLayout, config: PipelineConfig) -> Path:
    """Write a Hugging Face folder of random weights with a pooler, and the lineage's vocabulary."""
    from training.exporting import hugging_face

    folder.mkdir(parents=True)
    random = np.random.default_rng(1)
    values = {
        weight.variable: random.normal(
            float(weight.variable.endswith("/gamma")), 0.02, weight.shape
        ).astype(np.float32)
        for weight in weights(config.model, next_sentence=False)
    }
    hugging_face.write_configuration(folder, config.model)
    hugging_face.write_weights(folder, config.model, values, pooler=True, next_sentence=False)
    vocabulary = uris.read(store.lineage(config.model.lineage_id).vocabulary)
    (folder / "vocab.txt").write_bytes(vocabulary)
    return folder


def _train(store: StoreLayout, config: PipelineConfig, manifest: str, source: Path) -> str:
    """Train from the source; return the training's folder.

    :raises RuntimeError: the trainer fails; its messages are on stderr.
    """
    run = store.run(NAME)
    uris.write(run.config, config.to_bytes())
    words = ["--run", run.root, "--store", store.root, "--manifest", manifest]
    with redirect_stdout(sys.stderr):
        code = train.main([*words, "--init-model", str(source)])
    if code:
        raise RuntimeError(f"training from {source} ended with code {code}")
    return run.training.root


def export(exporter: FormatWriter, folder: Path, source: Path) -> Figures:
    """Write a Hugging Face folder; return how far its tensors are from those of the source."""
    exporter.write(HUGGING_FACE, folder)
    found, published = (load_file(one / WEIGHTS) for one in (folder, source))
    differences = {name: float(np.abs(found[name] - published[name]).max()) for name in found}
    pooler = [value for name, value in differences.items() if name.startswith(_POOLER)]
    others = [value for name, value in differences.items() if not name.startswith(_POOLER)]
    return {
        "pooler_tensors": len(pooler),
        "pooler_difference": max(pooler, default=None),
        "others_difference": round(max(others), 4),
    }
