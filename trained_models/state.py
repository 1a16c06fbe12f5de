"""The progress of a training, apart from its tensors."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Self

from pipeline_store.formats import (
    BestCheckpoint,
    CheckpointManifest,
    HeldOutScore,
    Rollback,
    ValidationScore,
)

Score = HeldOutScore | ValidationScore


@dataclass(frozen=True)
class TrainingState:
    """The progress of a training: the part of a checkpoint besides the tensors.

    Fields are those of the same name in the checkpoint's manifest.
    """

    step: int = 0
    loss: float = float("nan")
    next_sentence_loss: float | None = None
    next_sentence_accuracy: float | None = None
    tokens: int = 0
    seconds: float = 0.0
    resumed_from: tuple[int, ...] = ()
    rollbacks: tuple[Rollback, ...] = ()
    running_loss: float | None = None
    held_out: Score | None = None
    best: BestCheckpoint | None = None

    @classmethod
    def of(cls, manifest: CheckpointManifest) -> Self:
        """Return the state that a checkpoint was saved in."""
        values = {field.name: getattr(manifest, field.name) for field in fields(cls)}
        for name in ("resumed_from", "rollbacks"):
            values[name] = tuple(values[name])
        return cls(**values)

    @property
    def skipped(self) -> int:
        """Return the number of steps whose records were skipped by rollbacks."""
        return sum(rollback.from_step - rollback.to_step for rollback in self.rollbacks)

    def scored(self, score: Score) -> Self:
        """Return the state with the score of its step, and the step with the best score so far.

        Of two with the same metric, the one with the lower loss is better; one that equals the best
        is not.
        """
        best = self.best
        if best is None or _is_better(score, best):
            best = BestCheckpoint(
                step=self.step, loss=score.loss, compared=score.compared, evaluations_since=0
            )
        else:
            best = best.model_copy(update={"evaluations_since": best.evaluations_since + 1})
        return replace(self, held_out=score, best=best)


def _is_better(score: Score, best: BestCheckpoint) -> bool:
    if score.compared is None or best.compared is None or score.compared == best.compared:
        return score.loss < best.loss
    return score.compared > best.compared
