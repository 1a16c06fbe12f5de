"""Makes the model from which a sweep starts, and continues it, with the pipeline's commands.

The start is the published encoder as a lineage's first version, with a masked-LM head that was
trained alone, on both texts. An encoder has no such head; if each cell trained its own head, the
cells would mostly measure that training.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path

import numpy as np

from local.commands import run_module
from local.demo.domain import settings, text
from local.demo.tasks import docstrings, examples
from local.demo.tasks.modules import harvest
from model_registry.import_command import begin_lineage
from model_registry.production import production
from pipeline_config import PipelineConfig
from pipeline_store import uris
from pipeline_store.formats import (
    DocumentSetScore,
    PartitionManifest,
    ProbeReport,
    TaskManifest,
    TaskSplit,
)
from pipeline_store.layout import StoreLayout
from trained_models import artifacts
from trained_models.downstream.trials import FinishedTrial
from training import probe
from verification.benchmarks.commands import say
from verification.benchmarks.recipes.trainings import Overrides
from verification.benchmarks.recipes.workshop import Workshop, apart, run_here
from verification.benchmarks.update_sweep.grid import HEAD_RATE, Cell, Scale
from verification.benchmarks.update_sweep.results import (
    ACCURACY,
    DOMAIN_LOSS,
    OLD_LOSS,
    RECALL,
    Measured,
    Measures,
    Row,
    Settings,
)

_TEXTS = {"domain": text.DOMAIN, "old": text.GENERAL}


class Laboratory:
    """A folder with the texts, the task and the start, which are made if they are missing."""

    def __init__(self, root: Path, encoder: Path, scale: Scale) -> None:
        """Copy the encoder to the folder if it is not there.

        :param encoder: a Hugging Face folder.
        :raises subprocess.CalledProcessError: the encoder cannot be imported.
        """
        store = StoreLayout(str(root.resolve()))
        asked = settings.request(store, settings.put_encoder(encoder, store))
        self._shop = Workshop(root, asked | _own(scale))
        self._scale = scale

    @cached_property
    def settings(self) -> Settings:
        """The settings of all cells; results with other settings cannot be compared with theirs.

        ``rows`` is the number of rows to train on.
        """
        manifests = {
            f"{name}, {masks}": PartitionManifest.load(self._manifest(name, dynamic=dynamic))
            for name in _TEXTS
            for masks, dynamic in (("dynamic", True), ("static", False))
        }
        task = TaskManifest.load(self._task)
        return {
            "scale": asdict(self._scale),
            "rows": {name: one.training_rows for name, one in manifests.items()},
            "records": {name: one.content_sha256 for name, one in manifests.items()},
            "task": task.content_sha256,
            "start": artifacts.model_files(self._start).sha256,
        }

    def start(self) -> Row:
        """Measure the model from which all cells start."""
        return Row(None, self._measure(self._start, self._scale.seeds))

    def run(self, cell: Cell) -> Row:
        """Train and measure; delete the trained model.

        :raises RuntimeError: a command fails; its messages are on stderr.
        """
        began, arm = time.monotonic(), cell.arm
        own = arm.settings | {"training.random_seed": cell.seed}
        version = self._shop.train(
            cell.name,
            self._shop.config(own, arm.steps),
            [self._manifest("domain", dynamic=arm.dynamic)],
            parent=self._start,
            replayed=[self._manifest("old", dynamic=arm.dynamic)] if arm.replay else [],
        )
        measures = self._measure(version, [cell.seed])
        shutil.rmtree(version)
        return Row(cell, measures, time.monotonic() - began)

    def _config(self, overrides: Overrides) -> PipelineConfig:
        return self._shop.config(overrides, self._scale.steps)

    @cached_property
    def _manifests(self) -> dict[tuple[str, bool], str]:
        self._write_texts()
        return {
            (name, dynamic): self._shop.prepare(
                partition, self._config({"masking.dynamic": dynamic})
            )
            for name, partition in _TEXTS.items()
            for dynamic in (True, False)
        }

    def _manifest(self, name: str, *, dynamic: bool) -> str:
        return self._manifests[name, dynamic]

    def _write_texts(self) -> None:
        """Write both texts and the task's examples, if they are missing."""
        corpus = self._shop.root / "corpus"
        if corpus.exists():
            return
        say("reading the docstrings of the installed packages …")
        found = harvest(max_characters=text.HARVESTED)
        examples.write(text.labelled_task(found), Path(self._shop.store.task(docstrings.NAME).root))
        writing = self._shop.root / "writing"
        shutil.rmtree(writing, ignore_errors=True)
        for partition in _TEXTS.values():
            text.write_partition(found, partition, writing, self._scale.characters)
        writing.rename(corpus)

    @cached_property
    def _task(self) -> str:
        """The manifest of the labeled task."""
        config = f"{self._shop.root}/task.json"
        # The task uses the lineage's tokens, which come from the preparation of the texts.
        assert self._manifests  # noqa: S101
        uris.write(config, self._config({}).to_bytes())
        words = ("--config", config, "--store", self._shop.store.root, "--task", docstrings.NAME)
        manifest: str = json.loads(run_module("beam_jobs.prepare_task", *words))["manifest"]
        return manifest

    @cached_property
    def _start(self) -> str:
        manifests = [self._manifest(name, dynamic=True) for name in _TEXTS]
        imported = production(self._shop.lineage)
        if imported is None:
            config = self._config({"corpus.partition": text.GENERAL})
            imported = begin_lineage(self._shop.store, config)
        config = self._config({})
        frozen = {
            "training.frozen_layers": config.model.num_hidden_layers,
            "optimizer.update_learning_rate": HEAD_RATE,
        }
        alone = self._shop.config(frozen, self._scale.head_steps)
        parent = self._shop.lineage.version(imported.version_id)
        apart("start", lambda: self._shop.train("start", alone, manifests, parent=parent))
        return self._shop.lineage.version("v-start")

    def _measure(self, version: str, seeds: Sequence[int]) -> Measures:
        """Score a version; the task's score is the mean over classifiers with these seeds."""
        sets = {name: self._manifest(name, dynamic=True) for name in _TEXTS}
        [model] = self._shop.evaluate(self._config({}), [version], sets, "domain").models
        scores = {one.set_name: one for one in model.sets}
        retrieval = scores["domain"].retrieval
        assert retrieval is not None  # noqa: S101 - of evaluations of today
        misses = np.mean([self._task_misses(version, seed) for seed in seeds], axis=0)
        return {
            DOMAIN_LOSS: _loss(scores["domain"]),
            OLD_LOSS: _loss(scores["old"]),
            RECALL: _misses([float(rank > 1) for rank in retrieval.ranks]),
            ACCURACY: _misses(misses.round(4).tolist()),
        }

    def _task_misses(self, version: str, seed: int) -> list[float]:
        """Return 1 or 0 per test example: whether a classifier on the encoder misjudges it."""
        run = self._shop.store.run("probe")
        shutil.rmtree(run.root, ignore_errors=True)
        uris.write(run.config, self._config({"promotion.probe_random_seeds": [seed]}).to_bytes())
        words = ["--run", run.root, "--store", self._shop.store.root]
        run_here(probe.main, [*words, "--candidate", version, "--manifest", self._task])
        [summary] = ProbeReport.load(run.probe(None)).tasks
        trial = FinishedTrial.load(run.probe_trial(None, summary.best_trial))
        labels, outputs = trial.predictions(TaskSplit.TEST)
        return [float(wrong) for wrong in outputs.argmax(axis=1) != labels]


def _own(scale: Scale) -> Overrides:
    """Return the settings that differ from `make demo-domain`."""
    return {
        "corpus.input_pattern": "corpus/{partition}/*",
        "corpus.validation_fraction": scale.held_out,
        "training.global_batch_size": scale.rows,
        # The sweep asks how many passes are too many.
        "training.max_passes": 0,
        # The start already has its head.
        "training.head_steps": 0,
        "evaluation.general_partition": None,
        "evaluation.max_records_per_set": scale.scored_rows,
        "promotion.probe_tasks": [docstrings.NAME],
    }


def _loss(score: DocumentSetScore) -> Measured:
    return Measured([round(loss, 4) for loss in score.loss_sums], score.token_counts)


def _misses(misses: list[float]) -> Measured:
    return Measured(misses, [1.0] * len(misses))
