"""Turns the benchmark's JSON lines into the table of docs/data-speed.md.

python -m verification.benchmarks.data > rows.jsonl
python -m verification.benchmarks.data.table rows.jsonl
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_HEAD = ("row", "input", "value", "ratio", "CPU ratio", "wall / CPU", "peak", "peer: wall / CPU")


def markdown(rows: Iterable[dict[str, Any]]) -> str:
    """Return a Markdown table of the rows."""
    lines = [_line(_HEAD), _line(["---"] * len(_HEAD)), *(_line(_cells(row)) for row in rows)]
    return "\n".join(lines)


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cells(row: dict[str, Any]) -> list[str]:
    return [
        f"`{row['name']}`",
        _number(row.get("input_mb"), "MB"),
        _number(row["value"], row["unit"]),
        _number(row["ratio"], "x"),
        _number(row.get("cpu_ratio"), "x"),
        _pair(row.get("wall_s"), row.get("cpu_s")),
        _number(row["peak_rss_mb"], "MB"),
        _pair(row.get("peer_wall_s"), row.get("peer_cpu_s")),
    ]


def _number(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    digits = f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
    return f"{digits} {unit}" if unit != "share" else f"{value:.4f}"


def _pair(wall: float | None, cpu: float | None) -> str:
    return "" if wall is None or cpu is None else f"{wall:.1f} / {cpu:.1f} s"


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m verification.benchmarks.data.table",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "rows", type=Path, help="what python -m verification.benchmarks.data printed"
    )
    options = parser.parse_args(argv)
    print(markdown(json.loads(line) for line in options.rows.read_text().splitlines()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
