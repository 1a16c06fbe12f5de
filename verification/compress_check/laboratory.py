"""Makes the parents and their children with the product's commands, and measures them."""

from __future__ import annotations

import json
import shutil
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from local.commands import run_module
from local.demo.domain import settings
from local.demo.tasks.baselines import linear, majority
from local.demo.tasks.examples import Task
from local.demo.tasks.modules import Use, harvest
from local.demo.tasks.results import Result, compare
from local.demo.tasks.trials import Recipe, Trials, plan, right_ones
from local.stack.settings import PRESET
from model_registry.import_command import begin_lineage
from model_registry.production import production
from pipeline_config import load_preset, with_overrides
from pipeline_store import uris
from pipeline_store.formats import (
    CompressedModel,
    EncoderSource,
    TaskManifest,
    TaskSplit,
    TrialResult,
)
from pipeline_store.layout import RunLayout, StoreLayout
from trained_models import artifacts
from trained_models.downstream import metrics
from training.finetuning.exporting import served
from training.finetuning.task_data import Task as PreparedTask
from verification.compress_check import texts
from verification.compress_check.results import Line, Results

LINEAGE = "compress"
CHILDREN = (
    *("tflite_float32", "tflite_float16", "tflite_dynamic_range", "trim", "student"),
    "student+trim+tflite_dynamic_range",
)
LAYERS = 3
# The gate does not matter here: children that do not pay stay in the table.
_OPEN = {"max_metric_loss": "1", "layers": str(LAYERS)}


class Laboratory:
    """A folder with the encoder as a lineage, two tasks, and everything made from them."""

    def __init__(self, root: Path, encoder: Path, *, quick: bool) -> None:
        """Copy the encoder to the folder unless it exists there.

        :param encoder: a Hugging Face folder.
        """
        self._store = StoreLayout(str(root.resolve()))
        self._encoder = settings.put_encoder(encoder, self._store)
        self._quick = quick
        self.results = Results(root / "results.jsonl")

    def measure(self, name: str, seeds: tuple[int, ...]) -> None:
        """Measure a task's parents and children, as far as not done yet."""
        task = self._task(name)
        trials = self._trials(name, seeds)
        trials.train()
        if not self.results.has(name, 0, "tfidf"):
            self._simple(task, trials)
        for trial in trials.plan.trials:
            self._children(trials, trial.trial_id, trial.random_seed)

    def _simple(self, task: Task, trials: Trials) -> None:
        """Measure the most frequent label, and compare the parents with a linear TF-IDF model."""
        labels = TaskManifest.load(self._store.resolve(trials.plan.manifests[task.name])).labels
        expected = [labels.index(example.label) for example in task.splits[Use.TEST]]
        results = trials.results("model")
        right = [right_ones(_predictions(trials.run, found), expected) for found in results]
        accuracies = [found.scores[TaskSplit.TEST].metrics["accuracy"] for found in results]
        parents = Result("parents", accuracies, [], np.mean(right, axis=0))
        base, words = majority(task), linear(task)["tfidf"]
        own = {"task": task.name, "seed": 0, "examples": len(expected)}
        self.results.add(own | {"model": "majority", "accuracy": base.mean})
        found = compare(parents, words)
        line = {"model": "tfidf", "accuracy": words.mean, "parent": parents.mean}
        self.results.add(own | line | {"interval": [found.low, found.high]})

    def _children(self, trials: Trials, trial_id: str, seed: int) -> None:
        task = trials.plan.trials[0].task
        missing = [name for name in CHILDREN if not self.results.has(task, seed, name)]
        if missing:
            rows = _compress(self._store, trials.run, trial_id, missing, _OPEN)
            for row in rows:
                if not self.results.has(task, seed, row["child"]):
                    self.results.add(_line(row, seed) | self._more(trials, trial_id, row["child"]))
        if not self.results.has(task, seed, "undistilled"):
            # The same layers of the same parent, trained on labels alone, in a copy of the run.
            copy = self._copy(trials.run)
            alone = _OPEN | {"teacher_weight": "0", "use_unlabeled": "false"}
            row = _compress(self._store, copy, trial_id, ["student"], alone)[-1]
            self.results.add(_line(row | {"child": "undistilled"}, seed))

    def _more(self, trials: Trials, trial_id: str, child: str) -> Line:
        """Return the measurements of a child that are not in the table."""
        if child == "parent":
            return {}
        layout = trials.run.children(trial_id).child(child)
        found = CompressedModel.load(layout.record)
        more: Line = {}
        if found.comparison.covered_difference is not None:
            more["covered"] = found.comparison.covered
            more["covered_difference"] = found.comparison.covered_difference
        if child == "tflite_dynamic_range" and found.accepted:
            more |= self._agreement(trials, trial_id)
        return more

    def _agreement(self, trials: Trials, trial_id: str) -> Line:
        """Return how often 8 bits predict the same as 32, on padded test and unlabeled rows."""
        layout = trials.run.children(trial_id)
        folders = []
        for name in ("tflite_float32", "tflite_dynamic_range"):
            child = CompressedModel.load(layout.child(name).record)
            folders.append(uris.join(layout.child(name).root, child.folder, child.served_as))
        manifest = self._store.resolve(next(iter(trials.plan.manifests.values())))
        task = PreparedTask.load(manifest)
        splits = (TaskSplit.TEST, TaskSplit.PREDICT)
        inputs = [task.examples(split).inputs for split in splits]
        rows = {name: np.concatenate([one[name] for one in inputs]) for name in inputs[0]}
        kind = task.manifest.label_kind
        plain, small = (metrics.predictions(kind, served.load(f).logits(rows)) for f in folders)
        return {"agreement_all": float(np.mean(plain == small)), "agreement_rows": len(plain)}

    def _copy(self, run: RunLayout) -> RunLayout:
        key = run.root.rpartition("/")[2]
        copy = self._store.run(f"{'0' * 4}{key[4:]}")
        if not Path(copy.root).exists():
            ignored = shutil.ignore_patterns("children")
            shutil.copytree(run.root, copy.root, ignore=ignored)
        return copy

    def _task(self, name: str) -> Task:
        task, unlabelled = texts.task_of(name, self._docstrings, quick=self._quick)
        texts.write_task(self._store, task, unlabelled)
        return task

    def _trials(self, name: str, seeds: tuple[int, ...]) -> Trials:
        recipe = Recipe(learning_rate=1e-4, epochs=1.0 if self._quick else 3.0, random_seeds=seeds)
        return plan(self._store, name, LINEAGE, {"model": self._start}, recipe)

    @cached_property
    def _docstrings(self) -> list[Any]:
        return harvest()

    @cached_property
    def _start(self) -> EncoderSource:
        """The encoder as the first version of a lineage."""
        lineage = self._store.lineage(LINEAGE)
        version = production(lineage)
        if version is None:
            texts.write_corpus(self._store, self._docstrings)
            own = settings.request(self._store, self._encoder) | {
                "model.lineage_id": LINEAGE,
                "corpus.partition": texts.PARTITION,
                "corpus.group_field": "",
                "evaluation.general_partition": None,
                "evaluation.max_records_per_set": 60,
            }
            version = begin_lineage(self._store, with_overrides(load_preset(PRESET), own))
        uri = lineage.version(version.version_id)
        return EncoderSource(
            uri=uri,
            version_id=version.version_id,
            files_sha256=artifacts.model_files(uri).sha256,
        )


def _compress(
    store: StoreLayout, run: RunLayout, trial_id: str, names: list[str], own: dict[str, str]
) -> list[Line]:
    words = ["--run", run.root, "--store", store.root, "--trial", trial_id]
    words += [word for name in names for word in ("--child", name)]
    for name, value in own.items():
        words += ["--set", f"compression.{name}={value}"]
    found: list[Line] = json.loads(run_module("training.compress", *words))[trial_id]
    return found


def _line(row: Line, seed: int) -> Line:
    figures = {name: row[name] for name in ("parameters", "megabytes", "p50_ms", "p95_ms")}
    figures |= {name: row[name] for name in ("interval", "agreement", "loss", "examples")}
    named = {"task": row["task"], "seed": seed, "model": row["child"]}
    return named | figures | {"accuracy": row["value"], "difference": row["difference"]}


def _predictions(run: RunLayout, result: TrialResult) -> str:
    path = result.scores[TaskSplit.TEST].predictions.path
    return uris.join(run.trial(result.trial.trial_id).root, path)
