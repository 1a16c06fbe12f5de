"""Pretrains a small model, by default BERT, on installed docstrings that are in no task."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from local.commands import run_module, run_watched
from local.demo.tasks.modules import Docstring, Use, unit_interval
from pipeline_config import PipelineConfig, load_preset, with_overrides
from pipeline_store.formats import EncoderSource
from pipeline_store.layout import RunLayout, StoreLayout
from trained_models import artifacts

_PARTITION = "installed"
_MIN_CHARACTERS = 100
_SETTINGS: dict[str, Any] = {
    # About two sentences in a row, and whether they are consecutive, as a task may ask.
    "masking.packing": "segment_pair",
    "masking.max_seq_length": 64,
    "masking.max_predictions_per_seq": 10,
    "masking.short_seq_prob": 0.2,
    # Similar text is already left out.
    "corpus.duplicates": "keep",
    "corpus.validation_fraction": 0.01,
    "training.steps_per_loop": 100,
    "training.checkpoint_interval": 500,
}
STEPS = 12_000
_WARMUP_SHARE = 0.03
_FILE_SHARE = 0.125


class Pretrained(NamedTuple):
    """The training folder of a finished run, its settings, and the lineage of its vocabulary."""

    encoder: EncoderSource
    config: str
    lineage_id: str


def store_of(state_dir: Path) -> StoreLayout:
    """Return the store of these models and tasks, separate from that of the local stack."""
    return StoreLayout(str(state_dir.resolve() / "finetuning"))


def pretrain(
    store: StoreLayout,
    docstrings: Iterable[Docstring],
    say: Callable[[str], None],
    *,
    steps: int = STEPS,
    settings: Mapping[str, Any] = MappingProxyType({}),
) -> Pretrained:
    """Return the model pretrained on these docstrings, trained now or before.

    Its vocabulary is learned from the same text. An interrupted training resumes.

    :param settings: overrides of the small BERT's settings.
    :raises subprocess.CalledProcessError: a command fails; its messages are on stderr.
    """
    files = _files(docstrings)
    # Another installation or recipe makes a separate model.
    own = _SETTINGS | dict(settings)
    content = json.dumps([files, own, steps], sort_keys=True)
    key = hashlib.sha256(content.encode()).hexdigest()[:12]
    lineage_id = f"docstrings-{key}"
    config = _config(lineage_id, steps, own)
    run = store.run(key)
    if not Path(run.training.result).exists():
        say(f"pre-training: {steps} steps on {_characters(files) / 1e6:.1f} million characters")
        _write(Path(store.root, "corpora", lineage_id, _PARTITION), files)
        _train(store, run, config)
    uri = run.training.root
    sha256 = artifacts.model_files(uri).sha256
    encoder = EncoderSource(uri=uri, version_id=None, files_sha256=sha256)
    return Pretrained(encoder, run.config, lineage_id)


def _files(docstrings: Iterable[Docstring]) -> dict[str, list[str]]:
    """Return the documents by file, one paragraph per line.

    BERT's random second segments come from the same file. Half of the documents are in a file per
    package, so that these segments are sometimes about the same subject and sometimes about others.
    """
    files: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for docstring in docstrings:
        text = "\n".join(docstring.paragraphs)
        if docstring.use is Use.PRETRAINING and len(text) >= _MIN_CHARACTERS:
            place = unit_interval(text)
            name = f"mixed-{int(place / _FILE_SHARE)}" if place >= 0.5 else docstring.package
            files[name].append((place, text))
    return {name: [text for _, text in sorted(found)] for name, found in sorted(files.items())}


def _characters(files: dict[str, list[str]]) -> int:
    return sum(len(text) for texts in files.values() for text in texts)


def _write(folder: Path, files: dict[str, list[str]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, texts in files.items():
        (folder / f"{name}.txt").write_text("\n\n".join(texts) + "\n", encoding="utf-8")


def _train(store: StoreLayout, run: RunLayout, config: PipelineConfig) -> None:
    Path(run.root).mkdir(parents=True, exist_ok=True)
    Path(run.config).write_bytes(config.to_bytes())
    job = ("--config", run.config, "--store", store.root, "--partition", _PARTITION)
    run_module("beam_jobs.train_vocabulary", *job)
    manifest = json.loads(run_module("beam_jobs.prepare_corpus", *job))["manifest"]
    run_watched("training.train", "--run", run.root, "--store", store.root, "--manifest", manifest)


def _config(lineage_id: str, steps: int, settings: dict[str, Any]) -> PipelineConfig:
    places = {
        "corpus.input_pattern": f"corpora/{lineage_id}/{{partition}}/*",
        "model.lineage_id": lineage_id,
        "training.train_steps": steps,
        "optimizer.warmup_steps": int(_WARMUP_SHARE * steps),
    }
    return with_overrides(load_preset("smoke"), settings | places)
