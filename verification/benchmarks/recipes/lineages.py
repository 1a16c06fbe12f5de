"""Trains a lineage's model again and again: a first partition from nothing, then one after another.

Every step is the project's own command, as the pipeline runs it, but for the gate: each model is
made a version, and the next one continues it. What is there is not made again, so that a call that
was interrupted can be given again.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from local.commands import run_module
from pipeline_config import PipelineConfig, load_preset, with_overrides
from pipeline_store import uris
from pipeline_store.formats import EvaluationReport, ModelVersion, VocabularyInfo
from pipeline_store.layout import RunLayout, StoreLayout
from trained_models import artifacts
from training import evaluate, train
from verification.benchmarks.recipes import drift

Overrides = dict[str, Any]
_PRESET = "smoke"
# Half the row and a smaller vocabulary: half the arithmetic of the preset's steps.
_COMMON: Overrides = {
    "vocabulary.size": 6000,
    "model.vocab_size": 6000,
    "masking.max_seq_length": 64,
    "masking.max_predictions_per_seq": 10,
    # Enough documents to tell models apart.
    "corpus.validation_fraction": 0.2,
    "evaluation.global_batch_size": 64,
    "evaluation.max_records_per_set": 1000,
}


@dataclass(frozen=True)
class Length:
    """How much is trained: steps of the first model and of each update, text of each partition."""

    first_steps: int
    steps: int
    characters: int


class Lineages:
    """A folder with the prepared partitions, and models trained on them."""

    def __init__(self, state_dir: Path, length: Length) -> None:
        """Prepare nothing yet.

        :param state_dir: the folder's parent; folders of other lengths have other names.
        """
        name = f"updates-{length.first_steps}-{length.steps}-{length.characters}"
        # A store's address is absolute.
        self.root = state_dir.resolve() / name
        self._store = StoreLayout(str(self.root))
        self._length = length
        self._lineage = self._store.lineage(self._config({}, length.steps).model.lineage_id)

    def write_corpus(self) -> Path:
        """Write the text of each partition if it is not there; return the folder of them all."""
        corpus = self.root / "corpus"
        if not corpus.exists():
            drift.write(self.root / "writing", self._length.characters)
            (self.root / "writing").rename(corpus)
        return corpus

    @cached_property
    def manifests(self) -> dict[str, str]:
        """The manifest of each partition; those that are missing are prepared."""
        self.write_corpus()
        config = f"{self.root}/config.json"
        _write(config, self._config({}, self._length.steps))
        found: dict[str, str] = {}
        for partition in drift.PARTITIONS:
            known = uris.list_files(self._lineage.manifests(partition))
            manifests = [uri for uri in known if uri.endswith(".json")]
            if not manifests:
                _say(f"preparing {partition} …")
                job = ("--config", config, "--store", self._store.root, "--partition", partition)
                if not found:
                    run_module("beam_jobs.train_vocabulary", *job)
                line = run_module("beam_jobs.prepare_corpus", *job)
                manifests = [json.loads(line)["manifest"]]
            found[partition] = manifests[0]
        return found

    def prepare(self, partition: str, overrides: Overrides) -> str:
        """Prepare a partition of one's own with other settings; return its manifest.

        Nothing is done when that was done before. The vocabulary is that of the first partition.

        :param partition: a folder that was put into :meth:`write_corpus`'s.
        :raises ValueError: it is one of the lineage's, whose records have one manifest.
        """
        if partition in self.manifests:
            raise ValueError(f"{partition} is a partition of the lineage, prepared in one way only")
        config = f"{self.root}/other.json"
        _write(config, self._config(overrides, self._length.steps))
        job = ("--config", config, "--store", self._store.root, "--partition", partition)
        manifest: str = json.loads(run_module("beam_jobs.prepare_corpus", *job))["manifest"]
        return manifest

    def first(self) -> str:
        """Return the version that all lineages begin with, trained on the first partition."""
        return self.train("first", {}, drift.PARTITIONS[0], parent=None)

    def train(
        self,
        name: str,
        overrides: Overrides,
        partition: str,
        *,
        parent: str | None,
        replayed: Sequence[str] = (),
        manifest: str | None = None,
    ) -> str:
        """Train on one partition and return the version made of the result.

        :param name: of the run.
        :param parent: version to continue; None: random weights.
        :param replayed: earlier partitions.
        :param manifest: of the partition's records; None: as :attr:`manifests` has it.
        :raises RuntimeError: the trainer fails; its messages are on stderr.
        """
        version = f"v-{name}"
        if uris.exists(self._lineage.model(version)):
            return self._lineage.version(version)
        steps = self._length.steps if parent else self._length.first_steps
        _say(f"{name}: {steps} steps on {partition} …")
        run = self._store.run(name)
        _write(run.config, self._config(overrides, steps))
        words = ["--run", run.root, "--store", self._store.root]
        words += ["--manifest", manifest or self.manifests[partition]]
        words += ["--init-model", parent] if parent else []
        for earlier in replayed:
            words += ["--replay-manifest", self.manifests[earlier]]
        _run(train.main, words)
        self._publish(run, version, steps)
        shutil.rmtree(run.root)
        return self._lineage.version(version)

    def evaluate(self, versions: Sequence[str], partitions: Sequence[str]) -> EvaluationReport:
        """Return the scores of versions on the held-out documents of partitions.

        Models are named 0, 1, … in the order of the versions.
        """
        config, output = f"{self.root}/evaluate.json", f"{self.root}/evaluation.json"
        Path(output).unlink(missing_ok=True)
        _write(config, self._config({}, self._length.steps))
        words = ["--store", self._store.root, "--config", config, "--output", output]
        words += ["--current-set", partitions[-1]]
        for partition in partitions:
            words += ["--set", f"{partition}={self.manifests[partition]}"]
        for number, version in enumerate(versions):
            words += ["--model", f"{number}={version}"]
        _run(evaluate.main, words)
        return EvaluationReport.load(output)

    def _publish(self, run: RunLayout, version_id: str, steps: int) -> None:
        folder = self._lineage.version(version_id)
        files, prefix = artifacts.copy_checkpoint_files(run.training.root, folder)
        ModelVersion(
            version_id=version_id,
            lineage_id=self._lineage.root.rpartition("/")[2],
            parent=None,
            run_key=run.root.rpartition("/")[2],
            partitions_seen=[],
            files=files,
            checkpoint_prefix=prefix,
            vocabulary_sha256=VocabularyInfo.load(self._lineage.vocabulary_info).sha256,
            train_steps_total=steps,
            metrics={},
            created=datetime.now(UTC),
        ).create(self._lineage.model(version_id))

    def _config(self, overrides: Overrides, steps: int) -> PipelineConfig:
        own = {
            "training.train_steps": steps,
            "training.checkpoint_interval": steps,
            "training.steps_per_loop": steps,
            "optimizer.warmup_steps": max(steps // 10, 1),
        }
        return with_overrides(load_preset(_PRESET), _COMMON | own | overrides)


def _run(command: Callable[[list[str]], int], words: list[str]) -> None:
    """Run a command in this process, which is dear to start; what it says goes to stderr."""
    with redirect_stdout(sys.stderr):
        code = command(words)
    if code:
        raise RuntimeError(f"{command.__module__} {' '.join(words)} ended with code {code}")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _write(path: str, config: PipelineConfig) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_bytes(config.to_bytes())
