"""Draws the panels of Grafana's dashboards from a Prometheus server's answers to their queries.

python -m local.demo.dashboards --prometheus http://127.0.0.1:9090 [--output docs/images]

This is not Grafana: the pictures show the panels and the results of their queries, and state that
they were drawn by matplotlib.
"""

from __future__ import annotations

import re
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from pipeline_config.command_line import command_parser
from pipeline_metrics.dashboards import COLUMNS, DASHBOARDS, Dashboard, Panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes

POINTS = 200
_UNITS = {"s": (1.0, "s"), "percentunit": (100.0, "%"), "short": (1.0, "")}
_MOST_SERIES = 8
_TIMEOUT = 60.0


class PrometheusError(Exception):
    """There is nothing to draw from; the message says why."""


def main(argv: list[str] | None = None) -> int:
    """Draw the dashboards; return the exit status."""
    parser = command_parser("local.demo.dashboards", __doc__)
    parser.add_argument("--prometheus", required=True, metavar="URL", help="its address")
    parser.add_argument(
        "--minutes", type=float, default=30.0, help="so far back (default: %(default)g)"
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("docs/images"),
        help="folder of the pictures (default: %(default)s)",
    )
    options = parser.parse_args(argv)
    options.output.mkdir(parents=True, exist_ok=True)
    try:
        for dashboard in DASHBOARDS:
            path = options.output / f"dashboard-{dashboard.uid.partition('-')[2]}.png"
            draw(dashboard, options.prometheus.rstrip("/"), options.minutes * 60, path)
            print(path)
    except (PrometheusError, httpx.HTTPError) as error:
        print(f"dashboards: {error}", file=sys.stderr)
        return 1
    return 0


def draw(dashboard: Dashboard, address: str, seconds: float, path: Path) -> None:
    """Draw all panels of a dashboard into one picture.

    :raises PrometheusError: no panel has anything to show.
    """
    from matplotlib.figure import Figure

    end = time.time()
    rows = -(-len(dashboard.panels) // COLUMNS)
    figure = Figure(figsize=(5.2 * COLUMNS, 2.7 * rows + 0.9), dpi=90, layout="constrained")
    figure.suptitle(
        f"{dashboard.title}\ndrawn by matplotlib from a Prometheus' answers to the queries of "
        f"{dashboard.uid}.json; not a picture of Grafana",
        fontsize=11,
    )
    is_empty = True
    axes = figure.subplots(rows, COLUMNS, squeeze=False).flatten()
    for panel, one in zip(dashboard.panels, axes, strict=False):
        series = dict(_series(panel, address, end - seconds, end))
        is_empty = is_empty and not series
        _draw_panel(one, panel, series, (end - seconds, end))
    for unused in axes[len(dashboard.panels) :]:
        unused.set_axis_off()
    if is_empty:
        raise PrometheusError(
            f"{address} has no value of any panel of {dashboard.uid} in the last "
            f"{seconds / 60:g} minutes: does it scrape the exporter (docs/operate/metrics.md)?"
        )
    figure.savefig(path)


def legend(form: str, labels: dict[str, str]) -> str:
    """Return a series' legend as Grafana formats it: ``{{label}}`` becomes the label's value."""
    return re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), form)


def _series(panel: Panel, address: str, start: float, end: float) -> Any:
    step = max(5.0, (end - start) / POINTS)
    for expression, form in zip(panel.expressions, panel.queries.values(), strict=True):
        query = {
            # The value of Grafana's variable for *All*.
            "query": expression.replace("$lineage", ".*"),
            "start": f"{start:.3f}",
            "end": f"{end:.3f}",
            "step": f"{step:.3f}",
        }
        answer = httpx.get(
            f"{address}/api/v1/query_range", params=query, timeout=_TIMEOUT, trust_env=False
        )
        content = answer.json()
        if content.get("status") != "success":
            raise PrometheusError(f"{address} refuses {expression}: {content.get('error')}")
        for row in content["data"]["result"]:
            values = [(float(at), float(value)) for at, value in row["values"]]
            yield legend(form, row["metric"]), values


def _draw_panel(
    one: Axes,
    panel: Panel,
    series: dict[str, list[tuple[float, float]]],
    window: tuple[float, float],
) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    factor, unit = _UNITS.get(panel.unit, (1.0, panel.unit))
    one.set_title(panel.title + (f" ({unit})" if unit else ""), fontsize=9, loc="left")
    one.tick_params(labelsize=7)
    if not series:
        one.set_axis_off()
        one.text(0.5, 0.5, "no data", ha="center", va="center", fontsize=9, color="gray")
        return
    if panel.kind == "stat":
        one.set_axis_off()
        lines = [
            f"{name}\n{values[-1][1] * factor:,.4g} {unit}".strip()
            for name, values in series.items()
        ]
        one.text(0.5, 0.5, "\n".join(lines[:3]), ha="center", va="center", fontsize=13)
        return
    # Largest first: the series that are left out are the least visible ones.
    shown = sorted(series.items(), key=lambda row: -max(value for _, value in row[1]))
    for name, values in shown[:_MOST_SERIES]:
        times = [_date(at) for at, _ in values]
        one.plot(times, [value * factor for _, value in values], label=name, linewidth=1.3)
    largest = max(value * factor for _, values in shown for _, value in values)
    one.set_ylim(bottom=min(0.0, one.get_ylim()[0]), top=1.0 if largest == 0.0 else None)
    one.set_xlim(*map(_date, window))
    one.xaxis.axis_date()
    locator = AutoDateLocator(maxticks=6)
    one.xaxis.set_major_locator(locator)
    one.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=UTC))
    one.xaxis.get_offset_text().set_fontsize(7)
    one.grid(alpha=0.3)
    one.legend(fontsize=6, loc="best", framealpha=0.6)


def _date(seconds: float) -> float:
    """Return a time in matplotlib's unit, days."""
    from matplotlib.dates import date2num

    return float(date2num(datetime.fromtimestamp(seconds, UTC)))


if __name__ == "__main__":
    sys.exit(main())
