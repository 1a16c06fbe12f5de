"""Measures what a lineage forgets: updates with or without replay or moments, at two rates.

    python -m verification.benchmarks.recipes.updates [--steps 100] [--siblings 8] [--plot PATH]

A small model is trained from random weights on the first of seven partitions whose language drifts,
then on one after another, each time from the previous model, by the trainer's own commands. Each
arm does this with other settings and equal steps. All models are scored on the held-out documents
of all partitions, with the same masks.

Siblings are the second model trained again with other seeds; the gate must not mistake their
differences for progress. One JSON object per line on stdout, tables on stderr; a loss is in nats
per masked token, token-weighted.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pipeline_config.command_line import command_parser
from pipeline_store.formats import EvaluationReport
from verification.benchmarks.commands import print_result
from verification.benchmarks.recipes.drift import PARTITIONS
from verification.benchmarks.recipes.lineages import Length, Lineages
from verification.benchmarks.recipes.siblings import Siblings, compare
from verification.benchmarks.recipes.trainings import Overrides, print_table

FULL_RATE = 2e-3
"""The preset's rate, for a model trained from random weights."""
LOW_RATE = FULL_RATE / 5
"""In the same proportion as BERT's 1e-4 and 2e-5."""
FIRST_STEPS_FACTOR = 4


@dataclass(frozen=True)
class Arm:
    """One way to update a model."""

    replay: float
    rate: float
    carry: bool

    def __str__(self) -> str:
        moments = "moments" if self.carry else "zeros"
        return f"replay {self.replay:g}, rate {self.rate:g}, {moments}"

    @property
    def settings(self) -> Overrides:
        """Return the settings of each update."""
        return {
            "training.replay_fraction": self.replay,
            "optimizer.update_learning_rate": self.rate,
            "optimizer.carry_slots": self.carry,
        }


# The most informative arms first, in case the call is interrupted.
ARMS = (
    Arm(0.0, FULL_RATE, carry=False),
    Arm(0.2, FULL_RATE, carry=False),
    Arm(0.0, LOW_RATE, carry=False),
    Arm(0.2, LOW_RATE, carry=False),
    Arm(0.2, FULL_RATE, carry=True),
    Arm(0.2, LOW_RATE, carry=True),
    Arm(0.5, FULL_RATE, carry=False),
    Arm(0.5, LOW_RATE, carry=False),
    Arm(0.0, LOW_RATE, carry=True),
)


@dataclass(frozen=True)
class Lineage:
    """The result of a completed arm.

    ``losses[k][p]``: loss of the model after partition ``k`` on partition ``p``, both from 0.
    """

    arm: str
    losses: list[list[float]]

    @property
    def mean(self) -> float:
        """The last model's mean loss over all partitions."""
        return statistics.mean(self.losses[-1])

    @property
    def earlier(self) -> float:
        """The last model's mean loss over all partitions except the newest."""
        return statistics.mean(self.losses[-1][:-1])

    @property
    def newest(self) -> float:
        """The last model's loss on the newest partition."""
        return self.losses[-1][-1]

    @property
    def own(self) -> float:
        """The mean of each updated model's loss on the partition of its update."""
        return statistics.mean(row[number] for number, row in self._updates())

    @property
    def gains(self) -> list[float]:
        """How much each update lowered the loss on its own partition, which is what a gate sees."""
        return [self.losses[number - 1][number] - row[number] for number, row in self._updates()]

    @property
    def forgotten(self) -> float:
        """How much the loss on earlier partitions rose after they were trained on."""
        count = len(self.losses)
        return statistics.mean(
            self.losses[-1][number] - self.losses[number][number] for number in range(count - 1)
        )

    def _updates(self) -> list[tuple[int, list[float]]]:
        return list(enumerate(self.losses))[1:]


def main(argv: list[str] | None = None) -> int:
    """Run the comparison; return the exit status."""
    options = _parser().parse_args(argv)
    length = Length(FIRST_STEPS_FACTOR * options.steps, options.steps, options.characters)
    lab = Lineages(options.state_dir, length)
    found = _siblings(lab, options.siblings) if options.siblings else []
    lineages = [_train(lab, arm) for arm in ARMS[: options.arms]]
    if lineages:
        _report(lineages)
    if found:
        _report_siblings(found)
    if lineages and options.plot:
        from verification.benchmarks.recipes.plot import draw_updates

        draw_updates({lineage.arm: lineage.losses for lineage in lineages}, options.plot)
    return 0


def _parser() -> argparse.ArgumentParser:
    made = command_parser("verification.benchmarks.recipes.updates", __doc__)
    made.add_argument(
        "--state-dir",
        type=Path,
        default=Path(".local"),
        help="what is made stays in a folder there, and is not made again (default: .local)",
    )
    made.add_argument("--steps", type=int, default=100, help="of each update (default: 100)")
    made.add_argument(
        "--characters", type=int, default=700_000, help="of each partition (default: 700000)"
    )
    made.add_argument(
        "--siblings", type=int, default=8, help="models that differ by seed; 0: none (default: 8)"
    )
    made.add_argument("--plot", type=Path, help="picture of the losses by update")
    made.add_argument(
        "--arms", type=int, default=len(ARMS), help=f"only so many of the {len(ARMS)} lineages"
    )
    return made


def _train(lab: Lineages, arm: Arm) -> Lineage:
    versions = [lab.first()]
    for number, partition in enumerate(PARTITIONS[1:], start=1):
        earlier = PARTITIONS[:number] if arm.replay else ()
        name = f"{ARMS.index(arm)}-{number}"
        versions.append(
            lab.train(name, arm.settings, partition, parent=versions[-1], replayed=earlier)
        )
    lineage = Lineage(str(arm), losses_of(lab.evaluate(versions, PARTITIONS)))
    print_result(name="lineage", **asdict(lineage))
    return lineage


def losses_of(report: EvaluationReport) -> list[list[float]]:
    """Return the loss of each model on each set, in the report's order."""
    return [[round(score.loss, 4) for score in model.sets] for model in report.models]


def _siblings(lab: Lineages, count: int) -> list[Siblings]:
    parent = lab.first()
    arm = Arm(0.0, LOW_RATE, carry=False)
    versions = [
        lab.train(
            f"sibling-{seed}",
            arm.settings | {"training.random_seed": seed},
            PARTITIONS[1],
            parent=parent,
        )
        for seed in range(1, count + 1)
    ]
    found = compare(lab.evaluate(versions, PARTITIONS))
    for siblings in found:
        print_result(name="siblings", **asdict(siblings))
    return found


def _report(lineages: Sequence[Lineage]) -> None:
    head = ["update", "all partitions", "earlier six", "newest", "own, mean", "forgotten"]
    print_table(head, [_row(lineage) for lineage in lineages])


def _row(lineage: Lineage) -> list[str]:
    values = (lineage.mean, lineage.earlier, lineage.newest, lineage.own)
    return [lineage.arm, *(f"{value:.3f}" for value in values), f"{lineage.forgotten:+.3f}"]


def _report_siblings(found: Sequence[Siblings]) -> None:
    rows: list[list[Any]] = [
        [
            siblings.set_name,
            str(siblings.documents),
            f"{siblings.standard_deviation:.4f}",
            f"{siblings.largest_difference:.4f}",
            *(f"{share:.0%}" for share in siblings.promoted.values()),
        ]
        for siblings in found
    ]
    margins = [f"promoted at {margin}" for margin in found[0].promoted]
    head = ["partition", "documents", "standard deviation", "largest difference", *margins]
    print_table(head, rows)


if __name__ == "__main__":
    sys.exit(main())
