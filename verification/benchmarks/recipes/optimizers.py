"""Compares the optimizers AdamW, LAMB and Amos: equal steps, each at the best of some rates.

    python -m verification.benchmarks.recipes.optimizers [--steps 400] [--seeds 1,2,3]
        [--rates adamw=1e-3,2e-3,4e-3] [--plot PATH]

First it sweeps each optimizer over its learning rates, with a seed that is not used again. Then it
trains with the best rate of each and every seed. One JSON object per line on stdout, a table on
stderr; a loss is in nats per masked token, token-weighted, on held-out documents.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from verification.benchmarks.commands import print_result
from verification.benchmarks.recipes.trainings import (
    Laboratory,
    Overrides,
    Training,
    laboratory,
    parser,
    print_table,
)

# Factors of two around the rates of each optimizer's authors, scaled up for a small model.
RATES = {
    "adamw": (1e-3, 2e-3, 4e-3),
    "lamb": (5e-3, 1e-2, 2e-2),
    "amos": (1e-2, 2e-2, 4e-2),
}
REFERENCE = "adamw"
SWEEP_SEED = 0


@dataclass(frozen=True)
class Result:
    """The result of an optimizer at its best rate.

    ``steps_to_reference`` by seed: None if the reference's final loss is not reached.
    """

    optimizer: str
    rate: float
    trainings: list[Training]
    steps_to_reference: list[float | None]

    @property
    def losses(self) -> list[float]:
        """The final losses by seed."""
        return [training.loss for training in self.trainings]


def main(argv: list[str] | None = None) -> int:
    """Run the comparison; return the exit status."""
    options = _parser().parse_args(argv)
    rates = RATES | dict(options.rates)
    with laboratory(options) as lab:
        chosen = {optimizer: _best_rate(lab, optimizer, rates[optimizer]) for optimizer in RATES}
        trainings = {
            optimizer: [
                lab.train(_arm(optimizer, rate), _settings(optimizer, rate), seed)
                for seed in options.seeds
            ]
            for optimizer, rate in chosen.items()
        }
    results = compare(chosen, trainings)
    _report(results)
    if options.plot:
        from verification.benchmarks.recipes.plot import draw

        named = {f"{r.optimizer}, {r.rate:g}": r.trainings for r in results}
        draw(named, options.plot)
    return 0


def _parser() -> argparse.ArgumentParser:
    made = parser("verification.benchmarks.recipes.optimizers", __doc__)
    made.add_argument(
        "--rates",
        type=_rates,
        action="append",
        default=[],
        metavar="OPTIMIZER=RATE,RATE",
        help="peak learning rates to try; one alone is taken without a sweep",
    )
    made.add_argument("--plot", type=Path, help="picture of the held-out losses by step")
    return made


def _rates(text: str) -> tuple[str, tuple[float, ...]]:
    optimizer, _, rates = text.partition("=")
    if optimizer not in RATES or not rates:
        raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join(RATES)} with =RATE")
    return optimizer, tuple(float(rate) for rate in rates.split(","))


def _arm(optimizer: str, rate: float) -> str:
    return f"{optimizer} {rate:g}"


def _settings(optimizer: str, rate: float) -> Overrides:
    return {"optimizer.type": optimizer, "optimizer.learning_rate": rate}


def _best_rate(lab: Laboratory, optimizer: str, rates: Sequence[float]) -> float:
    if len(rates) == 1:
        return rates[0]
    losses = {
        rate: lab.train(_arm(optimizer, rate), _settings(optimizer, rate), SWEEP_SEED).loss
        for rate in rates
    }
    best = min(losses, key=losses.__getitem__)
    print_result(
        name=f"best_learning_rate_{optimizer}",
        value=best,
        unit="",
        losses={f"{rate:g}": round(loss, 4) for rate, loss in losses.items()},
        # At the edge, a rate beyond it may be even better.
        at_the_edge=best in (min(rates), max(rates)),
    )
    return best


def compare(
    rates: Mapping[str, float], trainings: Mapping[str, Sequence[Training]]
) -> list[Result]:
    """Return the results, each compared with the reference's mean final loss."""
    goal = statistics.mean(training.loss for training in trainings[REFERENCE])
    return [
        Result(
            optimizer,
            rates[optimizer],
            list(runs),
            [steps_to(goal, training.curve) for training in runs],
        )
        for optimizer, runs in trainings.items()
    ]


def steps_to(goal: float, curve: Sequence[tuple[int, float]]) -> float | None:
    """Return the steps until a loss is first reached, interpolated between two checkpoints."""
    step, loss = curve[0]
    if loss <= goal:
        return float(step)
    for (before, high), (after, low) in pairwise(curve):
        if low <= goal:
            return before + (after - before) * (high - goal) / (high - low)
    return None


def _report(results: Sequence[Result]) -> None:
    reference = next(result for result in results if result.optimizer == REFERENCE)
    goal = statistics.mean(reference.losses)
    rows = []
    for result in results:
        mean, reached = statistics.mean(result.losses), result.steps_to_reference
        steps = result.trainings[0].steps
        spread = statistics.stdev(result.losses) if len(result.losses) > 1 else None
        print_result(
            name=f"held_out_loss_{result.optimizer}",
            value=round(mean, 4),
            unit="nats per masked token",
            peer=REFERENCE,
            ratio=round(mean / goal, 4),
            learning_rate=result.rate,
            standard_deviation=None if spread is None else round(spread, 4),
            losses=[round(loss, 4) for loss in result.losses],
            steps=steps,
            steps_to_reference=[None if s is None else round(s) for s in reached],
        )
        rows.append(
            [
                result.optimizer,
                f"{result.rate:g}",
                f"{mean:.4f}" + ("" if spread is None else f" ± {spread:.4f}"),
                f"{mean - goal:+.4f}",
                _steps_text(reached, steps),
            ]
        )
    head = ["optimizer", "learning rate", "held-out loss", f"to {REFERENCE}'s"]
    print_table([*head, f"steps to {REFERENCE}'s final loss"], rows)


def _steps_text(reached: Sequence[float | None], steps: int) -> str:
    found = [step for step in reached if step is not None]
    if not found:
        return "not reached"
    missing = len(reached) - len(found)
    share = statistics.mean(found) / steps
    return f"{statistics.mean(found):.0f} ({share:.0%})" + (f", {missing} not" if missing else "")


if __name__ == "__main__":
    sys.exit(main())
