"""Trainings with the real trainer, on data that is prepared once, with a reference result."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline_store import uris
from pipeline_store.formats import Heartbeat, TrainingResult
from pipeline_store.layout import RunLayout
from tpu_lifecycle.records.reservation import newest_generation
from verification.chaos.world import World

PARTITION = "2026-01-01"
SETTINGS: dict[str, Any] = {
    "vocabulary.size": 2000,
    "model.vocab_size": 2000,
    "training.train_steps": 40,
    "training.steps_per_loop": 2,
    "training.checkpoint_interval": 10,
    "training.global_batch_size": 8,
    "promotion.min_documents": 2,
    "tpu.heartbeat_timeout_seconds": 30.0,
    "tpu.boot_timeout_seconds": 120,
    "budget.max_hours": 1.0,
}


@dataclass
class RealTraining:
    """A training of BERT with TensorFlow; see :class:`verification.chaos.one.Training`."""

    store: str
    manifest: str
    weights_sha256: str
    settings: dict[str, Any] = field(default_factory=lambda: SETTINGS)
    _seen: list[int] = field(default_factory=list)

    @classmethod
    def load(cls, folder: Path) -> RealTraining:
        """Return the training that :func:`verification.chaos.campaign.prepare` prepared."""
        return cls(**json.loads((folder / "prepared.json").read_text()))

    def jobs(self, world: World) -> dict[str, tuple[str, list[str]]]:
        """Return the work tasks' entry points and arguments."""
        data = ["--store", self.store]
        evaluate = ["--config", world.run.config, "--current-set", PARTITION]
        evaluate += ["--set", f"{PARTITION}={self.manifest}"]
        evaluate += ["--model", f"candidate={world.run.training.root}"]
        evaluate += ["--output", world.run.evaluation(None)]
        train = ["--run", world.run.root, "--manifest", self.manifest]
        return {
            "train": ("training.train", [*data, *train]),
            "evaluate": ("training.evaluate", [*data, *evaluate]),
        }

    def step(self, world: World) -> int:
        """Return the step of the newest heartbeat, and record it."""
        beat = _newest_heartbeat(world.run)
        if beat is not None and beat.progress is not None:
            self._seen.append(beat.progress.step)
        return self._seen[-1] if self._seen else 0

    def steps_lost(self, world: World) -> list[int]:
        """Return for each resumption how many steps beyond it the heartbeats had shown."""
        result = TrainingResult.load_or_none(world.run.training.result)
        starts = sorted({0, *(result.resumed_from if result else ())})
        lost = []
        for before, after in zip(self._seen, self._seen[1:], strict=False):
            if after < before:
                lost.append(before - max(start for start in starts if start <= after))
        return lost


def _newest_heartbeat(run: RunLayout) -> Heartbeat | None:
    generation = newest_generation(run)
    reservation = run.reservation(generation)
    number = 1
    while uris.exists(reservation.attempt(number + 1).record):
        number += 1
    return Heartbeat.load_or_none(reservation.attempt(number).heartbeat(0))
