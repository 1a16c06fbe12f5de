"""Pretrains and fine-tunes with the project's own commands, and in PyTorch; stores the results."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, astuple
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from local.commands import run_module, run_watched
from local.demo.tasks.modules import Use, harvest
from local.demo.tasks.pretraining import Pretrained, pretrain
from pipeline_store.layout import StoreLayout, TrainingLayout
from trained_models import metric_files
from verification.text_to_text_check import recipe, texts
from verification.text_to_text_check.results import OURS, PRETRAINED, PYTORCH, RANDOM, Line, Results
from verification.text_to_text_check.texts import Pair, TextTask

_PROGRAM = Path(__file__).with_name("in_pytorch.py")
_FORMAT = "hugging_face"
_QUICK_CHARACTERS = 150_000


class Laboratory:
    """The folder of the check's models and results; makes what is missing."""

    def __init__(self, state_dir: Path, *, quick: bool) -> None:
        """Make nothing yet.

        :param quick: whether to use few texts and steps.
        """
        # A store's path must be absolute.
        self._state_dir = state_dir.resolve()
        self._quick = quick
        self._amount = recipe.QUICK if quick else recipe.WHOLE

    @cached_property
    def _docstrings(self) -> list[Any]:
        say("reading the docstrings of the installed packages")
        return harvest(max_characters=_QUICK_CHARACTERS) if self._quick else harvest()

    @cached_property
    def tasks(self) -> dict[str, TextTask]:
        """The tasks by name."""
        sizes = texts.QUICK_SIZES if self._quick else texts.SIZES
        return {task.name: task for task in texts.tasks(self._docstrings, sizes)}

    @cached_property
    def _root(self) -> Path:
        """The folder for these texts and this recipe; results of others are not reused."""
        settings = [recipe.PRETRAINING, recipe.SOURCE_TOKENS, recipe.TARGET_TOKENS]
        numbers = [recipe.BATCH, recipe.LEARNING_RATE, *astuple(self._amount)]
        made = [task.splits for task in self.tasks.values()]
        content = json.dumps([settings, numbers, made, self._docstrings], sort_keys=True)
        return self._state_dir / hashlib.sha256(content.encode()).hexdigest()[:12]

    @cached_property
    def results(self) -> Results:
        """The results for these texts and this recipe."""
        return Results(self._root / "results.jsonl")

    def measure(self, name: str, start: str, seed: int) -> None:
        """Fine-tune with our trainer and score, unless that was done.

        :param start: :data:`PRETRAINED` or :data:`RANDOM`; random weights depend on the seed.
        :raises subprocess.CalledProcessError: a command fails; its messages are on stderr.
        """
        about = {"task": name, "side": OURS, "start": start, "seed": seed}
        if self.results.has(**about):
            return
        config, run = self._described(name, start, seed), self._run_folder(about)
        say(f"{name}, {start} start, seed {seed}: {self._amount.steps} steps")
        run_watched("training.finetune_text_to_text", "--config", str(config), "--run", str(run))
        file = run / "predictions" / f"{name}-test.jsonl"
        outputs = [json.loads(line)["output"] for line in file.read_text().splitlines()]
        self._add(about, outputs, _seconds(run / "training"))

    def measure_pytorch(self, name: str, seed: int, python: Path) -> None:
        """Fine-tune the pretrained start in PyTorch and score, unless that was done.

        :raises subprocess.CalledProcessError: it fails; its messages are on stderr.
        """
        about = {"task": name, "side": PYTORCH, "start": PRETRAINED, "seed": seed}
        if self.results.has(**about):
            return
        config, folder = self._described(name, PRETRAINED, seed), self._run_folder(about)
        folder.mkdir(parents=True, exist_ok=True)
        # In a child process, so that this one stays free of TensorFlow.
        run_module("verification.text_to_text_check.rows", str(config), str(folder))
        say(f"{name}, PyTorch, seed {seed}: {self._amount.steps} steps")
        files = [folder / file for file in ("rows.npz", "recipe.json", "ids.npy")]
        done = subprocess.run(
            [str(python), str(_PROGRAM), str(self._start(PRETRAINED, seed)), *map(str, files)],
            env=os.environ | {"HF_HUB_OFFLINE": "1"},
            check=True,
            stdout=subprocess.PIPE,
        )
        outputs = self._decoded(np.load(folder / "ids.npy"))
        self._add(about, outputs, json.loads(done.stdout.decode().splitlines()[-1])["seconds"])

    def baselines(self) -> Iterator[Line]:
        """Yield the results of simple methods."""
        for task in self.tasks.values():
            sizes = {str(split): len(pairs) for split, pairs in task.splits.items()}
            value = round(task.baseline, 4)
            about = {"task": task.name, "side": task.simple[0], "metric": task.metric}
            yield about | {"value": value, "examples": sizes}

    def measure_pretraining(self) -> None:
        """Pretrain, unless that was done.

        :raises subprocess.CalledProcessError: a command fails; its messages are on stderr.
        """
        about = {"task": "pretraining", "side": OURS}
        seconds = _seconds(Path(str(self._pretrained.encoder.uri)))
        if not self.results.has(**about):
            self.results.add(about | {"seconds": seconds, "load": _load()} | asdict(self._amount))

    @cached_property
    def _pretrained(self) -> Pretrained:
        return pretrain(
            StoreLayout(str(self._root / "store")),
            self._docstrings,
            say,
            steps=self._amount.pretraining_steps,
            settings=recipe.PRETRAINING,
        )

    @cached_property
    def _exported(self) -> Path:
        """The pretrained model as a Hugging Face folder, made by the project's own export."""
        line = run_module(
            "training.export_model",
            *("--model", str(self._pretrained.encoder.uri)),
            *("--store", str(self._root / "store"), "--config", self._pretrained.config),
            *("--output", str(self._root / "exports"), "--format", _FORMAT),
        )
        return Path(json.loads(line)[_FORMAT]["folder"])

    def _start(self, start: str, seed: int) -> Path:
        if start == PRETRAINED:
            return self._exported
        folder = self._root / "starts" / f"{RANDOM}-{seed}"
        if not folder.exists():
            folder.parent.mkdir(exist_ok=True)
            aside = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
            words = (str(self._exported), str(aside), str(seed))
            run_module("verification.text_to_text_check.random_start", *words)
            aside.rename(folder)
        return folder

    def _described(self, name: str, start: str, seed: int) -> Path:
        task, examples = self.tasks[name], self._root / "examples" / name
        texts.write(task, examples)
        content = recipe.description(
            task, examples, start=self._start(start, seed), seed=seed, amount=self._amount
        )
        path = self._root / f"{name}-{start}-{seed}.toml"
        path.write_text(content, encoding="utf-8")
        return path

    def _run_folder(self, about: Line) -> Path:
        return self._root / "runs" / "-".join(map(str, about.values()))

    def _decoded(self, ids: Any) -> list[str]:
        # Imported here, as it is a part of the trainer.
        from trained_models.text_to_text.sizes import describe
        from training.text_to_text.rows import Tokenizer, read_sentencepiece

        folder = str(self._exported)
        return Tokenizer(read_sentencepiece(folder), describe(folder)).decode(ids)

    def _add(self, about: Line, outputs: Sequence[str], seconds: float) -> None:
        task = self.tasks[about["task"]]
        test: list[Pair] = task.splits[Use.TEST]
        each = texts.scores(task.metric, outputs, [pair.target for pair in test])
        value = round(float(np.mean(each)), 4)
        rounded = [round(score, 4) for score in each]
        more: Line = {"metric": task.metric, "value": value, "seconds": seconds}
        more |= {"load": _load()} | asdict(self._amount) | {"scores": rounded}
        self.results.add(about | more)
        # Remove only its checkpoints: its outputs stay.
        shutil.rmtree(self._run_folder(about) / "training", ignore_errors=True)


def say(line: str) -> None:
    """Print a line of progress to stderr, separate from the results."""
    print(line, file=sys.stderr, flush=True)


def _load() -> float:
    return round(os.getloadavg()[0], 1)


def _seconds(training: Path) -> float:
    """Return the seconds of a training's steps, without startup and evaluation."""
    records = metric_files.read(TrainingLayout(str(training)).metrics)
    return round(sum(float(record.get("seconds", 0.0)) for record in records), 1)
