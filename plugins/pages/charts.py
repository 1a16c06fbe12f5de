"""Lays out points, bars and labels of small charts; the templates draw them as SVG."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

MOST_POINTS = 400
"""Most points of a line: more cannot be told apart in a chart of this width."""

_WIDTH, _HEIGHT = 480.0, 220.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 44.0, 40.0, 12.0, 38.0

_LEAST = 1e-3
"""Least range of an axis, for losses and shares: smaller differences could not be told apart."""

_WRITTEN_OUT = 1e6
"""Numbers on an axis below this are written without an exponent."""

Point = tuple[float, float]


@dataclass(frozen=True)
class Tick:
    """A label at an axis and its position along it."""

    place: float
    label: str


@dataclass(frozen=True)
class Line:
    """A named line: its path for SVG, and the points that are drawn as dots."""

    name: str
    style: str
    path: str
    dots: list[Point]


@dataclass(frozen=True)
class LineChart:
    """Lines over two axes; positions in pixels of a chart of ``width`` by ``height``."""

    title: str
    x_label: str
    y_label: str
    lines: list[Line]
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    width: float = _WIDTH
    height: float = _HEIGHT
    left: float = _LEFT
    right: float = _WIDTH - _RIGHT
    top: float = _TOP
    bottom: float = _HEIGHT - _BOTTOM


@dataclass(frozen=True)
class Series:
    """Points of one line. ``style`` is a class of the style sheet."""

    name: str
    style: str
    points: Sequence[Point]
    dots: bool = False


def line_chart(
    title: str,
    x_label: str,
    y_label: str,
    series: Sequence[Series],
    *,
    x_names: Sequence[str] | None = None,
) -> LineChart | None:
    """Return a chart of the series; None when none has a finite point.

    :param x_names: names of the positions 0, 1, 2, …; without, the x axis has numbers.
    """
    drawn = [Series(one.name, one.style, _thinned(_finite(one.points)), one.dots) for one in series]
    points = [point for one in drawn for point in one.points]
    if not points:
        return None
    x_low, x_high = _range([x for x, _ in points])
    y_low, y_high = _range([y for _, y in points], least=_LEAST)
    # Margin, so that no dot lies on the names below.
    spare = (y_high - y_low) * 0.04
    y_low, y_high = y_low - spare, y_high + spare

    def place(point: Point) -> Point:
        x, y = point
        right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
        return (
            round(_LEFT + (x - x_low) / (x_high - x_low) * (right - _LEFT), 1),
            round(bottom - (y - y_low) / (y_high - y_low) * (bottom - _TOP), 1),
        )

    lines = []
    for one in drawn:
        places = [place(point) for point in one.points]
        path = "M" + " L".join(f"{x:g} {y:g}" for x, y in places) if places else ""
        # A line through a single point is invisible.
        has_dots = one.dots or len(places) == 1
        lines.append(Line(one.name, one.style, path, places if has_dots else []))
    return LineChart(
        title=title,
        x_label=x_label,
        y_label=y_label,
        lines=[line for line in lines if line.path],
        x_ticks=[
            Tick(place((value, y_low))[0], label)
            for value, label in _x_labels({x for x, _ in points}, x_low, x_high, x_names)
        ],
        y_ticks=[
            Tick(place((x_low, value))[1], label) for value, label in _y_labels(y_low, y_high)
        ],
    )


@dataclass(frozen=True)
class Bar:
    """A value with its interval; positions in percent of the chart's width."""

    name: str
    value: float
    low: float | None
    high: float | None
    place: float
    low_place: float | None
    high_place: float | None

    @property
    def style(self) -> str:
        """A class of the style sheet: ``good`` or ``bad``, or ``none`` if it may be either."""
        low = self.value if self.low is None else self.low
        high = self.value if self.high is None else self.high
        # Rounded as displayed: +0.0000 is no difference.
        return "good" if round(low, 4) > 0 else "bad" if round(high, 4) < 0 else "none"


@dataclass(frozen=True)
class IntervalChart:
    """Differences around a zero line."""

    zero: float
    bars: list[Bar]


def interval_chart(
    rows: Sequence[tuple[str, float, float | None, float | None]],
) -> IntervalChart | None:
    """Return a chart of differences; None when no difference is finite.

    :param rows: name, difference, and the ends of its interval where they are known.
    """
    rows = [row for row in rows if math.isfinite(row[1])]
    if not rows:
        return None
    ends = [end for row in rows for end in row[1:] if end is not None and math.isfinite(end)]
    low, high = _range([0.0, *ends], least=_LEAST)

    def place(value: float | None) -> float | None:
        if value is None or not math.isfinite(value):
            return None
        return round(4 + (value - low) / (high - low) * 92, 2)

    return IntervalChart(
        zero=place(0.0) or 0.0,
        bars=[
            Bar(
                name, value, low_end, high_end, place(value) or 0.0, place(low_end), place(high_end)
            )
            for name, value, low_end, high_end in rows
        ],
    )


@dataclass(frozen=True)
class Part:
    """A part of a bar: position and width in percent of the bar. ``style`` is a CSS class."""

    name: str
    style: str
    value: float
    place: float
    width: float


@dataclass(frozen=True)
class ShareBar:
    """Parts of a whole, side by side."""

    parts: list[Part]


def share_bar(parts: Sequence[tuple[str, str, float]]) -> ShareBar | None:
    """Return a chart of parts of a whole; None when the whole is zero.

    :param parts: name, style and value, which is not negative.
    """
    whole = sum(value for *_, value in parts)
    if not whole > 0:
        return None
    drawn, place = [], 0.0
    for name, style, value in parts:
        width = value / whole * 100
        drawn.append(Part(name, style, value, round(place, 3), round(width, 3)))
        place += width
    return ShareBar(drawn)


def _finite(points: Sequence[Point]) -> list[Point]:
    return [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)]


def _thinned(points: Sequence[Point]) -> list[Point]:
    """Return at most about :data:`MOST_POINTS` of the points, always with the last one."""
    every = math.ceil(len(points) / MOST_POINTS) or 1
    kept = list(points[::every])
    if points and kept[-1] != points[-1]:
        kept.append(points[-1])
    return kept


def _range(values: Sequence[float], *, least: float = 0.0) -> tuple[float, float]:
    low, high = min(values), max(values)
    if low == high:
        spare = abs(low) * 0.05 or 1.0
        return low - spare, high + spare
    spare = max(0.0, least - (high - low)) / 2
    return low - spare, high + spare


def _steps(low: float, high: float) -> list[float]:
    """Return a few round numbers within the range."""
    size = 10 ** math.floor(math.log10(high - low))
    step = next(size * part for part in (0.1, 0.2, 0.5, 1, 2) if (high - low) / (size * part) <= 6)
    first = math.ceil(low / step)
    return [round(n * step, 10) for n in range(first, math.floor(high / step) + 1)]


def _y_labels(low: float, high: float) -> list[tuple[float, str]]:
    """Return a few round numbers with labels that all have the same number of decimals."""
    values = _steps(low, high)
    short = [f"{value:g}" for value in values]
    if max(map(abs, values), default=0.0) >= _WRITTEN_OUT and len(set(short)) == len(short):
        return list(zip(values, short, strict=True))
    decimals = next(n for n in range(11) if all(round(value, n) == value for value in values))
    return [(value, f"{value:,.{decimals}f}") for value in values]


def _x_labels(
    at: Collection[float], low: float, high: float, names: Sequence[str] | None
) -> list[tuple[float, str]]:
    """Return positions on the x axis with their names or numbers.

    :param at: distinct positions of points; without names, a single one is the only label.
    """
    if names is None:
        values = _steps(low, high) if len(at) > 1 else at
        if all(float(value).is_integer() for value in at):
            values = [value for value in values if float(value).is_integer()]
        return [(value, f"{value:,.10g}") for value in values]
    every = math.ceil(len(names) / 6)
    return [
        (float(number), name)
        for number, name in enumerate(names)
        if number % every == 0 and low <= number <= high
    ]
