"""The grid of the sweep: the arms, each with several seeds, and the amount of training in each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from verification.benchmarks.recipes.trainings import Overrides

HEAD_RATE = 1e-3
"""Of the new head alone, which has nothing to forget; as in `make demo-domain`."""


@dataclass(frozen=True)
class Scale:
    """The amount of training, and of measuring.

    ``characters`` is the size of each of the two texts, of which the share ``held_out`` is not
    trained on; ``rows`` is the size of a batch; at most ``scored_rows`` of a text are scored.
    """

    steps: int = 240
    head_steps: int = 600
    rows: int = 16
    characters: int = 250_000
    held_out: float = 0.7
    scored_rows: int = 800
    seeds: tuple[int, ...] = (1, 2, 3)
    rates: tuple[float, ...] = (2e-5, 5e-5, 1e-4)

    @classmethod
    def of(cls, kept: dict[str, Any]) -> Scale:
        """Return the scale that was stored as JSON, which has no tuples."""
        return cls(**kept | {name: tuple(kept[name]) for name in ("seeds", "rates")})


FULL = Scale()
QUICK = Scale(
    steps=4, head_steps=4, characters=60_000, scored_rows=60, seeds=(1,), rates=(2e-5, 1e-4)
)


@dataclass(frozen=True)
class Arm:
    """One way to continue the model.

    :ivar rate: the peak learning rate.
    :ivar replay: share of each batch that is old text.
    :ivar dynamic: whether each pass has new masks.
    :ivar warmup: share of the steps that are warm-up.
    """

    rate: float
    replay: float
    dynamic: bool
    steps: int
    warmup: float = 0.1

    @property
    def name(self) -> str:
        """Return what it is called in files and on the command line."""
        masks = "dynamic" if self.dynamic else "static"
        words = (f"rate-{self.rate:g}", f"replay-{self.replay:g}", masks, f"steps-{self.steps}")
        return "_".join((*words, f"warmup-{self.warmup:g}"))

    @property
    def settings(self) -> Overrides:
        """Return the configuration settings of the arm, except its steps."""
        return {
            "optimizer.update_learning_rate": self.rate,
            "optimizer.warmup_steps": round(self.warmup * self.steps),
            "training.replay_fraction": self.replay,
            "masking.dynamic": self.dynamic,
        }

    def passes(self, rows: int, batch: int) -> float:
        """Return the number of passes over the domain's text.

        :param rows: number of rows of the text.
        :param batch: rows of a batch, including replayed ones.
        """
        return self.steps * (batch - round(batch * self.replay)) / rows


class Cell(NamedTuple):
    """One training."""

    arm: Arm
    seed: int

    @property
    def name(self) -> str:
        """Return what it is called in files and on the command line."""
        return f"{self.arm.name}_seed-{self.seed}"


def main_arms(scale: Scale) -> list[Arm]:
    """Return the arms from which the rate, replay and kind of masks are chosen."""
    return [
        Arm(rate, replay, dynamic, scale.steps)
        for rate in scale.rates
        for replay in (0.0, 0.2)
        for dynamic in (True, False)
    ]


def further_arms(scale: Scale) -> list[Arm]:
    """Return arms that differ in one setting from an arm in the middle of the main grid.

    They have another warm-up, another number of passes, or a rate outside the grid.
    """
    center = Arm(scale.rates[len(scale.rates) // 2], 0.2, dynamic=True, steps=scale.steps)
    static = replace(center, dynamic=False)
    return [
        *(replace(center, warmup=share) for share in (0.0, 0.3)),
        *(replace(arm, steps=scale.steps // 2) for arm in (center, static)),
        *(replace(arm, steps=scale.steps // 4) for arm in (center, static)),
        replace(center, steps=2 * scale.steps),
        replace(center, rate=min(scale.rates) / 2),
        replace(center, rate=max(scale.rates) * 3),
    ]


def cells(scale: Scale) -> Iterator[Cell]:
    """Yield the trainings: the main arms with one seed after another, then the further arms."""
    for arms in (main_arms(scale), further_arms(scale)):
        for seed in scale.seeds:
            yield from (Cell(arm, seed) for arm in arms)
