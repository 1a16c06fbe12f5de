"""What the trainer's step may cost at most, as a share of tf-models' at dropout 0."""

from __future__ import annotations

from dataclasses import dataclass

from preflight.compiled.figures import Comparison, Figures
from preflight.compiled.programs import Source


@dataclass(frozen=True)
class Limit:
    """Largest allowed ratios to a peer's step.

    Both, because they are estimates that may disagree in sign: a change has to look good to both.
    """

    bytes_ratio: float
    cycles_ratio: float


# 2% above what is reached. At 64x512 tf-models' own activation was not compiled yet.
LIMITS = {
    "bert_base_256x128_v5e_vs_tf_models_default": Limit(0.929, 0.995),
    "bert_base_256x128_v5e_vs_tf_models_same_activation": Limit(0.794, 0.894),
    "bert_base_64x512_v5e_vs_tf_models_same_activation": Limit(0.863, 0.930),
}


def compare(ours: Figures, peer: Figures, source: Source) -> Comparison:
    """Return our step against a peer's, with the limits of the two if there are any."""
    name = f"{ours.name}_vs_{source}"
    limit = LIMITS.get(name)
    return Comparison(
        name=name,
        bytes_ratio=round(ours.bytes_accessed_gb / peer.bytes_accessed_gb, 4),
        cycles_ratio=round(ours.estimated_cycles / peer.estimated_cycles, 4),
        bytes_limit=None if limit is None else limit.bytes_ratio,
        cycles_limit=None if limit is None else limit.cycles_ratio,
    )


def exceeded(comparison: Comparison) -> list[str]:
    """Return a line for each limit that is exceeded; a comparison without limits exceeds none."""
    pairs = {
        "bytes_ratio": (comparison.bytes_ratio, comparison.bytes_limit),
        "cycles_ratio": (comparison.cycles_ratio, comparison.cycles_limit),
    }
    return [
        f"{comparison.name}: {name} {found} is over the limit of {allowed}."
        for name, (found, allowed) in pairs.items()
        if allowed is not None and found > allowed
    ]
