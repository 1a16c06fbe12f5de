"""A picture of held-out losses by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from benchmarks.recipes.trainings import Training

_INCHES = (7.0, 4.0)
_DOTS_PER_INCH = 100
# Colours that people with colour-blindness can tell apart (Okabe and Ito).
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00")


def draw(trainings: Mapping[str, Sequence[Training]], path: Path) -> None:
    """Write a line for every training, those of one kind in one colour, to a file.

    :param path: its suffix says the format.
    """
    figure = Figure(figsize=_INCHES, dpi=_DOTS_PER_INCH, layout="constrained")
    axes = figure.add_subplot()
    for colour, (name, runs) in zip(_COLOURS, trainings.items(), strict=False):
        for number, training in enumerate(runs):
            steps, losses = zip(*training.curve, strict=True)
            label = None if number else name
            axes.plot(steps, losses, color=colour, linewidth=1.2, alpha=0.8, label=label)
    axes.set_xlabel("step")
    axes.set_ylabel("held-out loss, nats per masked token")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(path)
