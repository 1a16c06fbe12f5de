"""Trains the smoke model repeatedly, each time with different settings.

Each training is the trainer's own command in a child process, on one day of the demo's corpus,
scored at every checkpoint on the same held-out rows with the same masks. The comparisons share
command-line options.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from local.commands import run_module
from pipeline_config import PipelineConfig, load_preset, with_overrides
from pipeline_config.command_line import command_parser
from pipeline_store.formats import EvaluationReport
from pipeline_store.layout import RunLayout
from trained_models.metric_files import HELD_OUT, read
from verification.benchmarks.commands import print_result

PARTITION = "2026-01-01"
_PRESET = "smoke"
_MEGABYTES = 3
_CHECKPOINTS = 12
# More than the corpus has held-out rows, so that all of them are scored.
_ALL_ROWS = 1000

Overrides = dict[str, Any]


@dataclass(frozen=True)
class Training:
    """A completed training.

    ``curve`` has steps with the held-out loss after them, in nats per masked token.
    ``float32_loss`` is the last loss again, computed in float32, if that was requested.
    """

    arm: str
    seed: int
    steps: int
    curve: list[tuple[int, float]]
    seconds: float
    float32_loss: float | None = None

    @property
    def loss(self) -> float:
        """The held-out loss after the last step."""
        return self.curve[-1][1]


def from_lines(lines: Iterable[str]) -> list[Training]:
    """Return the trainings in the JSON lines of an earlier call."""
    rows = (json.loads(line) for line in lines)
    found = [row for row in rows if row.pop("name") == "training"]
    return [
        Training(**row | {"curve": [(step, loss) for step, loss in row["curve"]]}) for row in found
    ]


class Laboratory:
    """A context manager that makes the corpus when it is first needed, and trains on it."""

    def __init__(self, state_dir: Path, steps: int, done: Iterable[Training] = ()) -> None:
        """Set the paths; prepare nothing yet.

        :param done: completed trainings, which are not repeated.
        """
        # The address of a store is absolute.
        state_dir = state_dir.resolve()
        state_dir.mkdir(parents=True, exist_ok=True)
        self._folder = tempfile.TemporaryDirectory(prefix="recipes-", dir=state_dir)
        self._store = Path(self._folder.name).resolve()
        self._steps = steps
        self._done = {(done.arm, done.seed, done.steps): done for done in done}
        self._manifest: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def train(
        self, arm: str, overrides: Overrides, seed: int, *, score_float32: bool = False
    ) -> Training:
        """Train once, print the result, and return it.

        :param arm: a name for the changed settings.
        :raises subprocess.CalledProcessError: a command fails; its messages are on stderr.
        """
        known = self._done.get((arm, seed, self._steps))
        if known is None:
            print(f"{arm}, seed {seed}: {self._steps} steps …", file=sys.stderr, flush=True)
            known = self._train(arm, overrides, seed, score_float32)
            self._done[arm, seed, self._steps] = known
        print_result(name="training", **asdict(known))
        return known

    def _train(self, arm: str, overrides: Overrides, seed: int, score_float32: bool) -> Training:
        config = self._config(overrides | {"training.random_seed": seed})
        manifest = self._prepared()
        run = RunLayout(str(self._store / "runs" / "one"))
        self._write(run.config, config)
        arguments = ("--run", run.root, "--store", str(self._store), "--manifest", manifest)
        run_module("training.train", *arguments)
        records = read(run.training.metrics)
        curve = [(int(r["step"]), float(r["loss"])) for r in records if r["kind"] == HELD_OUT]
        seconds = sum(float(r.get("seconds", 0.0)) for r in records)
        float32_loss = self._score_float32(run) if score_float32 else None
        shutil.rmtree(run.root)
        return Training(arm, seed, self._steps, curve, round(seconds, 1), float32_loss)

    def _score_float32(self, run: RunLayout) -> float:
        config, report = f"{run.root}/float32.json", f"{run.root}/evaluation.json"
        self._write(config, self._config({}))
        run_module(
            "training.evaluate",
            *("--store", str(self._store), "--config", config, "--current-set", PARTITION),
            *("--set", f"{PARTITION}={self._prepared()}"),
            *("--model", f"candidate={run.training.root}", "--output", report),
        )
        return EvaluationReport.load(report).models[0].sets[0].loss

    def _prepared(self) -> str:
        """Return the manifest of the records; make them if there are none yet."""
        if self._manifest is None:
            corpus = ("--output", str(self._store / "corpus"), "--partitions", PARTITION)
            run_module("local.demo.corpus", *corpus, "--max-mb", str(_MEGABYTES))
            config = str(self._store / "config.json")
            self._write(config, self._config({}))
            job = ("--config", config, "--store", str(self._store), "--partition", PARTITION)
            run_module("beam_jobs.train_vocabulary", *job)
            manifest: str = json.loads(run_module("beam_jobs.prepare_corpus", *job))["manifest"]
            self._manifest = manifest
        return self._manifest

    def _config(self, overrides: Overrides) -> PipelineConfig:
        interval = max(self._steps // _CHECKPOINTS, 1)
        common = {
            "training.train_steps": self._steps,
            "training.checkpoint_interval": interval,
            "training.steps_per_loop": interval,
            "evaluation.rows_per_checkpoint": _ALL_ROWS,
        }
        return with_overrides(load_preset(_PRESET), common | overrides)

    @staticmethod
    def _write(path: str, config: PipelineConfig) -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_bytes(config.to_bytes())


def parser(module: str, description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options of all comparisons."""
    made = command_parser(module, description)
    made.add_argument("--state-dir", type=Path, default=Path(".local"), help="default: .local")
    made.add_argument("--steps", type=int, default=400, help="of each training (default: 400)")
    made.add_argument(
        "--seeds", type=_numbers, default=(1, 2, 3), help="of the trainings (default: 1,2,3)"
    )
    made.add_argument(
        "--done",
        type=Path,
        help="what an interrupted call printed; its trainings are not repeated",
    )
    return made


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(","))


def laboratory(options: argparse.Namespace) -> Laboratory:
    """Return the laboratory that the options describe."""
    done = from_lines(options.done.read_text().splitlines()) if options.done else []
    return Laboratory(options.state_dir, options.steps, done)


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a Markdown table on stderr; the JSON lines are on stdout."""
    lines = [head, ["---"] * len(head), *rows]
    text = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    print(f"\n{text}", file=sys.stderr, flush=True)
