"""Makes loss curves of a training from its metrics files."""

from __future__ import annotations

from typing import Any

from pages.charts import LineChart, Point, Series, line_chart
from pages.reading import Reader
from pipeline_store.layout import TrainingLayout
from trained_models import metric_files
from trained_models.metric_files import Record

STEP, NATS = "step", "nats per token"


def metric_records(training: TrainingLayout, reader: Reader) -> list[Record]:
    """Return the metrics records of a training so far, in order of its steps."""
    return reader.attempt(lambda: metric_files.read(training.metrics)) or []


def losses(records: list[dict[str, Any]], kind: str) -> list[Point]:
    """Return step and loss (nats) of the records of a kind; without those that were not finite."""
    return [
        (float(record["step"]), float(record["loss"]))
        for record in records
        if record["kind"] == kind and record.get("loss") is not None
    ]


def training_curve(title: str, records: list[dict[str, Any]]) -> LineChart | None:
    """Return a chart of one training's losses; None before there is any."""
    return line_chart(
        title,
        STEP,
        NATS,
        [
            Series("training", "a", losses(records, metric_files.LOOP)),
            Series("held out", "b", losses(records, metric_files.HELD_OUT), dots=True),
        ],
    )
