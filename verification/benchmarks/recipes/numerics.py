"""Tests if cheaper numbers raise the loss: float32 against bfloat16, equal steps and seeds.

    python -m verification.benchmarks.recipes.numerics [--steps 400] [--seeds 1,2,3]

With equal seeds the initial weights and the order of the records are the same, so the difference
per seed is what counts. One JSON object per line on stdout, a table on stderr; a loss is in nats
per masked token, token-weighted, on held-out documents.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from verification.benchmarks.commands import print_result
from verification.benchmarks.recipes.trainings import (
    Overrides,
    Training,
    laboratory,
    parser,
    print_table,
)

ARMS: dict[str, Overrides] = {
    "float32": {},
    "bfloat16": {"training.mixed_precision_dtype": "bfloat16"},
    "bfloat16, residuals too": {
        "training.mixed_precision_dtype": "bfloat16",
        "training.residual_dtype": "bfloat16",
    },
}
REFERENCE = "float32"


@dataclass(frozen=True)
class Result:
    """The result of some numerics; ``differences`` from float32 by seed, scored in float32."""

    arm: str
    own_losses: list[float]
    losses: list[float]
    differences: list[float]


def main(argv: list[str] | None = None) -> int:
    """Run the comparison; return the exit status."""
    options = parser("verification.benchmarks.recipes.numerics", __doc__).parse_args(argv)
    with laboratory(options) as lab:
        trainings = {
            arm: [lab.train(arm, settings, seed, score_float32=True) for seed in options.seeds]
            for arm, settings in ARMS.items()
        }
    _report(compare(trainings), options.steps)
    return 0


def compare(trainings: Mapping[str, Sequence[Training]]) -> list[Result]:
    """Return the results, compared with float32 seed by seed."""
    losses = {arm: [_float32_loss(run) for run in runs] for arm, runs in trainings.items()}
    return [
        Result(
            arm,
            [run.loss for run in runs],
            losses[arm],
            [mine - other for mine, other in zip(losses[arm], losses[REFERENCE], strict=True)],
        )
        for arm, runs in trainings.items()
    ]


def _float32_loss(training: Training) -> float:
    if training.float32_loss is None:
        raise ValueError(f"{training.arm}, seed {training.seed}, was not scored in float32")
    return training.float32_loss


def _report(results: Sequence[Result], steps: int) -> None:
    reference = statistics.mean(results[0].losses)
    rows = []
    for result in results:
        mean, difference = statistics.mean(result.losses), statistics.mean(result.differences)
        own = statistics.mean(result.own_losses)
        print_result(
            name=f"held_out_loss_{result.arm.replace(', ', '_').replace(' ', '_')}",
            value=round(mean, 4),
            unit="nats per masked token",
            peer=REFERENCE,
            ratio=round(mean / reference, 4),
            losses=[round(loss, 4) for loss in result.losses],
            own_losses=[round(loss, 4) for loss in result.own_losses],
            differences=[round(value, 4) for value in result.differences],
            steps=steps,
        )
        shown = ", ".join(f"{value:+.4f}" for value in result.differences)
        rows.append([result.arm, f"{mean:.4f}", f"{own:.4f}", f"{difference:+.4f} ({shown})"])
    head = ["trained in", "held-out loss", "scored as trained", "to float32, mean (by seed)"]
    print_table(head, rows)


if __name__ == "__main__":
    sys.exit(main())
