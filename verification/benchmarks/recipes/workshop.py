"""Trains each model from the previous one with the project's commands, like the pipeline; no gate.

Each model becomes a version, so that the next one can continue it. Existing results are not made
again, so an interrupted call can be repeated.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path

from local.commands import run_module
from pipeline_config import PipelineConfig, load_preset, with_overrides
from pipeline_store import uris
from pipeline_store.formats import EvaluationReport, ModelVersion, VocabularyInfo
from pipeline_store.layout import RunLayout, StoreLayout
from trained_models import artifacts
from training import evaluate, train
from verification.benchmarks.commands import say
from verification.benchmarks.recipes.trainings import Overrides

_PRESET = "smoke"


class Workshop:
    """A store with one lineage, and the settings that all its models share."""

    def __init__(self, root: Path, common: Overrides) -> None:
        """Set the paths; make nothing yet.

        :param root: the store's folder.
        :param common: overrides of the preset ``smoke``.
        """
        # The address of a store is absolute.
        self.root = root.resolve()
        self.store = StoreLayout(str(self.root))
        self._common = common
        model = with_overrides(load_preset(_PRESET), common).model
        self.lineage = self.store.lineage(model.lineage_id)

    def config(self, overrides: Overrides, steps: int) -> PipelineConfig:
        """Return the settings of a training; it has one checkpoint, at its end.

        :param overrides: overrides of the common settings.
        """
        own = {
            "training.train_steps": steps,
            "training.checkpoint_interval": steps,
            "training.steps_per_loop": steps,
            "optimizer.warmup_steps": max(steps // 10, 1),
        }
        return with_overrides(load_preset(_PRESET), self._common | own | overrides)

    def prepare(self, partition: str, config: PipelineConfig) -> str:
        """Prepare a partition unless that was done with these settings; return its manifest.

        The lineage's vocabulary is made from it if there is none.

        :raises subprocess.CalledProcessError: a command fails; its messages are on stderr.
        """
        file = f"{self.root}/config.json"
        uris.write(file, config.to_bytes())
        job = ("--config", file, "--store", self.store.root, "--partition", partition)
        if not uris.exists(self.lineage.vocabulary_info):
            run_module("beam_jobs.train_vocabulary", *job)
        manifest: str = json.loads(run_module("beam_jobs.prepare_corpus", *job))["manifest"]
        return manifest

    def version(self, name: str) -> str | None:
        """Return the version made from a training; None: the training is not done."""
        version = f"v-{name}"
        if not uris.exists(self.lineage.model(version)):
            return None
        return self.lineage.version(version)

    def train(
        self,
        name: str,
        config: PipelineConfig,
        manifests: Sequence[str],
        *,
        parent: str | None,
        replayed: Sequence[str] = (),
    ) -> str:
        """Train; return the version made from the result.

        :param name: name of the run.
        :param manifests: manifests of the records to train on.
        :param parent: version to continue; None: random weights.
        :param replayed: manifests of earlier partitions.
        :raises RuntimeError: the trainer fails; its messages are on stderr.
        """
        if known := self.version(name):
            return known
        say(f"{name}: {config.training.steps} steps …")
        run = self.store.run(name)
        uris.write(run.config, config.to_bytes())
        words = ["--run", run.root, "--store", self.store.root]
        words += [word for manifest in manifests for word in ("--manifest", manifest)]
        words += ["--init-model", parent] if parent else []
        words += [word for manifest in replayed for word in ("--replay-manifest", manifest)]
        run_here(train.main, words)
        version = self._publish(run, f"v-{name}", config.training.steps)
        shutil.rmtree(run.root)
        return version

    def evaluate(
        self, config: PipelineConfig, versions: Sequence[str], sets: Mapping[str, str], current: str
    ) -> EvaluationReport:
        """Return the scores of versions on held-out documents.

        Models are named 0, 1, … in the order of the versions.

        :param sets: manifests by set name.
        :param current: the set on which the gate measures retrieval.
        """
        file, output = f"{self.root}/evaluate.json", f"{self.root}/evaluation.json"
        Path(output).unlink(missing_ok=True)
        uris.write(file, config.to_bytes())
        words = ["--store", self.store.root, "--config", file, "--output", output]
        words += ["--current-set", current]
        for name, manifest in sets.items():
            words += ["--set", f"{name}={manifest}"]
        for number, version in enumerate(versions):
            words += ["--model", f"{number}={version}"]
        run_here(evaluate.main, words)
        return EvaluationReport.load(output)

    def _publish(self, run: RunLayout, version_id: str, steps: int) -> str:
        folder = self.lineage.version(version_id)
        files, prefix = artifacts.copy_checkpoint_files(run.training.root, folder)
        ModelVersion(
            version_id=version_id,
            lineage_id=self.lineage.root.rpartition("/")[2],
            parent=None,
            run_key=run.root.rpartition("/")[2],
            partitions_seen=[],
            files=files,
            checkpoint_prefix=prefix,
            vocabulary_sha256=VocabularyInfo.load(self.lineage.vocabulary_info).sha256,
            train_steps_total=steps,
            metrics={},
            created=datetime.now(UTC),
        ).create(self.lineage.model(version_id))
        return folder


def apart(name: str, work: Callable[[], object]) -> None:
    """Run work in a child process that is forked from this one, and wait for it.

    TensorFlow keeps half a gigabyte of each training until its process ends. This process must not
    have used TensorFlow yet, because its threads are not forked.

    :param name: name of the work, for messages.
    :raises RuntimeError: the work fails or is killed; its messages are on stderr.
    """
    process = get_context("fork").Process(target=work)
    process.start()
    process.join()
    if process.exitcode:
        raise RuntimeError(f"{name}: its process ended with code {process.exitcode}.")


def run_here(command: Callable[[list[str]], int], words: list[str]) -> None:
    """Run a command in this process, because a new one starts slowly; its output goes to stderr.

    :raises RuntimeError: the command fails.
    """
    with redirect_stdout(sys.stderr):
        code = command(words)
    if code:
        raise RuntimeError(f"{command.__module__} {' '.join(words)} ended with code {code}")
