"""A training's losses by step, as a picture."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from trained_models.errors import UserError
from trained_models.metric_files import HELD_OUT, LOOP, ROLLBACK, Record

INCHES = (7.0, 4.0)
DOTS_PER_INCH = 100


def draw(records: list[Record], path: Path) -> None:
    """Write the curve of the training loss, with held-out losses and rollbacks marked on it.

    :param records: as :func:`trained_models.metric_files.read` returns them.
    :param path: its suffix chooses the format.
    :raises UserError: there is nothing to draw, or matplotlib does not know the format.
    """
    # Without pyplot, which would look for a display and keep the figure.
    figure = Figure(figsize=INCHES, dpi=DOTS_PER_INCH, layout="constrained")
    if path.suffix.removeprefix(".") not in figure.canvas.get_supported_filetypes():
        raise UserError(f"{path}: {path.suffix!r} is no picture's suffix; use .png, .svg or .pdf.")
    axes = figure.add_subplot()
    training, held_out = _losses(records, LOOP), _losses(records, HELD_OUT)
    if not training:
        raise UserError("No loop of steps is reported yet, so there is no curve; try again later.")
    axes.plot(*zip(*training, strict=True), linewidth=1.2, label="training")
    if held_out:
        axes.plot(*zip(*held_out, strict=True), "o-", markersize=4, label="held out")
    for number, record in enumerate(r for r in records if r["kind"] == ROLLBACK):
        label = None if number else "rollback"
        axes.axvline(record["step"], color="tab:red", linestyle=":", linewidth=1, label=label)
    axes.set_xlabel("step")
    axes.set_ylabel("masked-LM loss, nats per token")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(path)


def _losses(records: list[Record], kind: str) -> list[tuple[int, float]]:
    return [
        (record["step"], record["loss"])
        for record in records
        if record["kind"] == kind and record["loss"] is not None
    ]
