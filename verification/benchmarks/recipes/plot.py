"""Draws pictures of held-out losses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from verification.benchmarks.recipes.trainings import Training

_INCHES = (7.0, 4.0)
_DOTS_PER_INCH = 100
# Colors that color-blind people can tell apart (Okabe and Ito).
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00")


def draw(trainings: Mapping[str, Sequence[Training]], path: Path) -> None:
    """Draw a line for every training, one color per kind, and write the picture to a file.

    :param path: its suffix determines the format.
    """
    figure = Figure(figsize=_INCHES, dpi=_DOTS_PER_INCH, layout="constrained")
    axes = figure.add_subplot()
    for color, (name, runs) in zip(_COLOURS, trainings.items(), strict=False):
        for number, training in enumerate(runs):
            steps, losses = zip(*training.curve, strict=True)
            label = None if number else name
            axes.plot(steps, losses, color=color, linewidth=1.2, alpha=0.8, label=label)
    axes.set_xlabel("step")
    axes.set_ylabel("held-out loss, nats per masked token")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(path)


def draw_updates(losses: Mapping[str, Sequence[Sequence[float]]], path: Path) -> None:
    """Write a picture of lineages: the losses of each model on the partitions seen so far.

    On the left is the mean held-out loss over partitions 1 to k after update k; on the right is the
    loss of each lineage's last model on every partition.

    :param losses: losses by arm name; ``[k][p]``: after partition k, on partition p.
    """
    figure = Figure(figsize=(11.0, 4.6), dpi=_DOTS_PER_INCH, layout="constrained")
    course, end = figure.subplots(1, 2, sharey=False)
    names = {arm: arm.rpartition(", ") for arm in losses}
    first = dict.fromkeys(name[0] for name in names.values())
    colors = dict(zip(first, (*_COLOURS, "#56B4E9", "#000000"), strict=False))
    for arm, rows in losses.items():
        kind, _, moments = names[arm]
        style = {"color": colors[kind], "linewidth": 1.4, "label": arm}
        style["linestyle"] = "--" if moments == "moments" else "-"
        counts = range(1, len(rows) + 1)
        seen = [sum(row[:count]) / count for count, row in zip(counts, rows, strict=True)]
        course.plot(counts, seen, marker=".", **style)
        end.plot(counts, rows[-1], marker=".", **style)
    course.set_xlabel("partitions trained on")
    course.set_ylabel("mean loss on these")
    end.set_xlabel("partition")
    end.set_ylabel("loss of the last model on it")
    figure.suptitle("Held-out loss, nats per masked token", fontsize="medium")
    for axes in (course, end):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.3)
    figure.legend(
        *course.get_legend_handles_labels(),
        frameon=False,
        loc="outside lower center",
        ncols=3,
        fontsize="small",
    )
    figure.savefig(path)
