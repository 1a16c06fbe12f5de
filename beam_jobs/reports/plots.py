"""Bar charts as inline SVG that takes its colors and its font from the page."""

from __future__ import annotations

import html
import io
import re
from collections.abc import Sequence
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from beam_jobs.reports.content import Bar

# Matplotlib needs real colors; these two are placeholders for those of the page's style.
_INK, _BAR = "#010203", "#040506"
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.size": 10,
    "axes.edgecolor": _INK,
    "axes.labelcolor": _INK,
    "text.color": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
}
_INCHES = (4.4, 2.5)
_LABELS_FIT = 7


def bar_chart(name: str, bars: Sequence[Bar], *, x: str, y: str) -> str:
    """Return a histogram as an ``<svg>`` element.

    :param name: unique on the page and stable, because the element's ids are made from it.
    :param x: title of the axis of the bars' labels.
    :param y: title of the axis of the counts.
    """
    # The canvas is used without pyplot, which would look for a display and keep the figure.
    with matplotlib.rc_context(_STYLE | {"svg.hashsalt": name}):
        figure = Figure(figsize=_INCHES)
        figure.subplots_adjust(left=0.15, right=0.99, top=0.97, bottom=0.21)
        axes = figure.add_subplot()
        places = range(len(bars))
        axes.bar(places, [bar.count for bar in bars], width=0.9, color=_BAR)
        step = next(step for step in (1, 2, 4, 8, 16, 32) if len(bars) <= step * _LABELS_FIT)
        shown = places[::step]
        axes.set_xticks(shown, [bars[place].label.split("-")[0] for place in shown])
        axes.yaxis.set_major_locator(matplotlib.ticker.MaxNLocator(5, integer=True))
        axes.yaxis.set_major_formatter(matplotlib.ticker.FuncFormatter(_short))
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        stream = io.StringIO()
        no_metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(stream, format="svg", transparent=True, metadata=no_metadata)
    words = "; ".join(f"{bar.label}: {bar.count:,}" for bar in bars)
    return _inline(stream.getvalue(), description=f"{y} by {x}. {words}")


def _short(value: float, _: int) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


def _inline(document: str, *, description: str) -> str:
    """Turn matplotlib's SVG document into an element of a page."""
    svg = document[document.index("<svg") :]
    svg = svg.replace(_INK, "currentColor").replace(_BAR, "var(--bar)")
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    # The groups' ids are the same in each chart, and nothing refers to them.
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    [view_box] = re.findall(r'<svg [^>]*(viewBox="[^"]*")', svg)
    label = html.escape(description)
    body = svg.partition(">")[2].replace("xlink:href", "href")
    return f'<svg {view_box} role="img" aria-label="{label}">{body}'
