"""What the trainer's step may cost at most, as a share of plain tf-models' at dropout 0."""

from __future__ import annotations

from dataclasses import dataclass

from preflight.compiled.figures import Figures


@dataclass(frozen=True)
class Limit:
    """Largest allowed ratios to the plain step.

    Both, because they are estimates that may disagree in sign: a change has to look good to both.
    """

    bytes_ratio: float
    cycles_ratio: float


LIMITS = {
    "bert_base_256x128_v5e": Limit(bytes_ratio=0.87, cycles_ratio=0.92),
    "bert_base_64x512_v5e": Limit(bytes_ratio=0.92, cycles_ratio=0.94),
}


def exceeded(figures: Figures) -> list[str]:
    """Return a line for each limit that the figures exceed; figures without limit exceed none."""
    limit = LIMITS.get(figures.name)
    if limit is None or figures.bytes_ratio is None or figures.cycles_ratio is None:
        return []
    pairs = {
        "bytes_ratio": (figures.bytes_ratio, limit.bytes_ratio),
        "cycles_ratio": (figures.cycles_ratio, limit.cycles_ratio),
    }
    return [
        f"{figures.name}: {name} {found} is over the limit of {allowed}."
        for name, (found, allowed) in pairs.items()
        if found > allowed
    ]
