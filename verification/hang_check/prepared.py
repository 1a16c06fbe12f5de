"""Prepares what all trials share: records, instrumented code, and results of undisturbed jobs."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from local.commands import run_module
from local.stack.paths import REPOSITORY
from pipeline_config import PipelineConfig, load_preset, with_overrides
from pipeline_store import uris
from pipeline_store.formats import EvaluationReport, TrainingResult
from pipeline_store.layout import RunLayout, StoreLayout
from tpu_lifecycle.boot.bundle import PACKAGES
from verification.checks import write_corpus
from verification.hang_check.injected import inject

PARTITION = "2026-01-01"
ZONE = "us-central1-a"
SETTINGS: dict[str, Any] = {
    "vocabulary.size": 2000,
    "model.vocab_size": 2000,
    "training.train_steps": 60,
    "training.steps_per_loop": 2,
    "training.checkpoint_interval": 10,
    "training.global_batch_size": 8,
    "tpu.zones": [ZONE],
    "budget.max_hours": 2.0,
    "budget.max_hangs": 2,
    "hang.loop_floor_seconds": 3.0,
    "hang.first_loop_seconds": 40.0,
    "hang.save_seconds": 6.0,
    "hang.restore_seconds": 20.0,
    "hang.data_seconds": 10.0,
    "hang.evaluation_seconds": 20.0,
    "hang.other_seconds": 180.0,
}
_LIMITS = [name for name in SETTINGS if name.startswith("hang.")]


def config_of(*, times: float = 1.0, hosts: int = 1, **more: Any) -> PipelineConfig:
    """Return the configuration of a trial.

    :param times: factor on all limits.
    """
    limits = {name: SETTINGS[name] * times for name in _LIMITS}
    strategy = "multi_worker_mirrored" if hosts > 1 else "one_device"
    settings = SETTINGS | limits | {"training.distribution_strategy": strategy}
    return with_overrides(load_preset("smoke"), settings | more)


@dataclass(frozen=True)
class Prepared:
    """The folder with everything that is prepared once."""

    folder: Path
    manifest: str

    @property
    def store(self) -> StoreLayout:
        """Return the store of the records."""
        return StoreLayout(str(self.folder / "store"))

    @property
    def code(self) -> Path:
        """Return the code that agents and trainer run."""
        return self.folder / "code"

    @property
    def run(self) -> RunLayout:
        """Return the undisturbed run."""
        return self.store.run("0" * 12)

    @property
    def weights_sha256(self) -> str:
        """Return the hash of the undisturbed run's weights."""
        return TrainingResult.load(self.run.training.result).weights_sha256

    def scores(self, report: str = "") -> list[Any]:
        """Return the scores of an evaluation of its model; default: the undisturbed one."""
        found = EvaluationReport.load(report or self.run.evaluation(None))
        return [one.model_dump() for one in found.models[0].sets]

    def train(self, run: RunLayout) -> list[str]:
        """Return the arguments of a training."""
        return ["--run", run.root, "--store", self.store.root, "--manifest", self.manifest]

    def evaluate(self, output: str) -> list[str]:
        """Return the arguments of an evaluation of the undisturbed model."""
        words = ["--store", self.store.root, "--config", self.run.config, "--output", output]
        words += ["--current-set", PARTITION, "--set", f"{PARTITION}={self.manifest}"]
        return [*words, "--model", f"candidate={self.run.training.root}"]


def prepare(folder: Path) -> Prepared:
    """Make records of this repository's documentation, and train and evaluate once, undisturbed.

    An existing folder is reused.

    :raises subprocess.CalledProcessError: a step failed.
    """
    done = folder / "prepared.json"
    if done.exists():
        return Prepared(folder, json.loads(done.read_text()))
    shutil.rmtree(folder, ignore_errors=True)
    for package in PACKAGES:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(REPOSITORY / package, folder / "code" / package, ignore=ignored)
    inject(folder / "code")
    before = Prepared(folder, "")
    write_corpus(Path(before.store.root) / "corpus" / PARTITION)
    uris.write(before.run.config, config_of().to_bytes())
    common = ["--config", before.run.config, "--store", before.store.root]
    common += ["--partition", PARTITION]
    run_module("beam_jobs.train_vocabulary", *common)
    manifest = json.loads(run_module("beam_jobs.prepare_corpus", *common))["manifest"]
    prepared = Prepared(folder, manifest)
    run_module("training.train", *prepared.train(prepared.run))
    run_module("training.evaluate", *prepared.evaluate(prepared.run.evaluation(None)))
    done.write_text(json.dumps(manifest))
    return prepared
