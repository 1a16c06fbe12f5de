"""Writes the measurements of a parent and its children: JSON lines, and a page with a picture."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2

from pipeline_store import uris
from pipeline_store.formats import CompressedModel, ModelFigures
from pipeline_store.layout import ChildrenLayout

PARENT = "parent"
_WIDTH, _HEIGHT, _ROOM = 520.0, 220.0, 0.08


@dataclass(frozen=True)
class Point:
    """A model in the picture: pixels from the left and the top, and the ends of its interval."""

    name: str
    x: float
    y: float
    low: float
    high: float
    accepted: bool


def rows(children: Sequence[CompressedModel]) -> list[dict[str, Any]]:
    """Return the lines of the table: the parent's, and one for each child, smallest last."""
    ordered = sorted(children, key=lambda child: -child.figures.megabytes)
    first = ordered[0]
    own = {"difference": 0.0, "interval": [0.0, 0.0], "agreement": 1.0}
    parent = _figures(PARENT, first.task, first.parent_figures) | own
    return [parent | {"accepted": True, "reasons": []}, *(_row(child) for child in ordered)]


def _row(child: CompressedModel) -> dict[str, Any]:
    found = child.comparison
    return _figures(child.name, child.task, child.figures) | {
        "difference": round(found.difference, 6),
        "interval": [round(found.interval.low, 6), round(found.interval.high, 6)],
        "agreement": round(found.agreement, 6),
        "accepted": child.accepted,
        "reasons": child.reasons,
    }


def _figures(name: str, task: str, figures: ModelFigures) -> dict[str, Any]:
    return {
        "child": name,
        "task": task,
        "parameters": figures.parameters,
        "megabytes": round(figures.megabytes, 3),
        "p50_ms": round(figures.p50_ms, 3),
        "p95_ms": round(figures.p95_ms, 3),
        "metric": figures.metric,
        "value": round(figures.value, 6),
        "loss": round(figures.loss, 6),
        "examples": figures.examples,
    }


def write(layout: ChildrenLayout, children: Sequence[CompressedModel]) -> None:
    """Write both files; the same children give the same files.

    :param children: one at least.
    """
    table = rows(children)
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in table)
    uris.write(layout.table, lines.encode())
    uris.write(layout.page, render(children).encode())


def render(children: Sequence[CompressedModel]) -> str:
    """Return the page as self-contained HTML.

    :param children: one at least, of one parent.
    """
    table = rows(children)
    return _template().render(
        parent=children[0].parent,
        task=children[0].task,
        rows=table,
        points=list(_points(table)),
        width=_WIDTH,
        height=_HEIGHT,
    )


def _points(table: Sequence[dict[str, Any]]) -> Iterator[Point]:
    """Yield the places of the models: megabytes from left to right, the metric upwards."""
    parent = table[0]["value"]
    ends = [parent + end for row in table for end in row["interval"]]
    lowest, highest = min(ends), max(ends)
    largest = max(row["megabytes"] for row in table)
    span = (highest - lowest) or 1.0

    def up(value: float) -> float:
        return _HEIGHT * (1 - _ROOM - (1 - 2 * _ROOM) * (value - lowest) / span)

    for row in table:
        low, high = (up(parent + end) for end in row["interval"])
        x = _WIDTH * (_ROOM + (1 - 2 * _ROOM) * row["megabytes"] / largest)
        yield Point(row["child"], x, up(row["value"]), low, high, row["accepted"])


@functools.cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("children.html")
